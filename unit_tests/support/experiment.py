"""Records the trials of an experiment for docs/guarantees.md.

If ALONI_GUARANTEES names a folder, record() writes a JSON file there, which scripts/guarantees.py reads."""
import json
import os
import pathlib


def record(name, trials, failures, seconds=()):
    """`name`: one of scripts/guarantees.py. `seconds`: of each trial that has a time."""
    folder = os.environ.get("ALONI_GUARANTEES")
    if not folder:
        return
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    file = pathlib.Path(folder) / f"{name.replace('/', '-')}.1.json"
    entry = {"id": name, "trials": trials, "failures": failures, "seconds": list(seconds)}
    file.write_text(json.dumps(entry) + "\n", encoding="utf-8")
