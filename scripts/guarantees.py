#!/usr/bin/env python3
"""Writes the figures of docs/guarantees.md.

  scripts/guarantees.py FOLDER     enters the records in FOLDER into docs/guarantees.json, then writes the tables
  scripts/guarantees.py            the tables again, from docs/guarantees.json
  scripts/guarantees.py --tests    the tests that write records, as a regular expression for ctest -R

Tests write the records if ALONI_GUARANTEES names the folder (unit_tests/support/experiment.hpp, experiment.py), and so
does bench/compare_builds.py --record. Records of one experiment are added: they are of different rank counts and
transports. An experiment without a record keeps its figures. scripts/test_nightly.sh runs this program at its end.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from figures.run import processor
from figures.tables import MISSING, marked, number, table
from report import git_commit

PROGRAM = "scripts/guarantees.py"
MARKED = marked(PROGRAM)
FIGURES = ROOT / "docs/guarantees.json"
DOCUMENT = ROOT / "docs/guarantees.md"

# Section: experiment, its text, its test, the longest time allowed.
SECTIONS = {
    "command": [
        ("kill/start", "killed while MPI starts", "test_killed.py", "10 s"),
        ("kill/set_up", "killed in a call of the set-up", "test_killed.py", "10 s"),
        ("kill/exchange", "killed in the first exchanges", "test_killed.py", "10 s"),
        ("kill/training", "killed in the training", "test_killed.py", "10 s"),
        ("kill/farewell", "killed in the farewell", "test_killed.py", "10 s"),
        ("kill/finalize", "killed in `MPI_Finalize`", "test_killed.py", "10 s"),
        ("stop/start", "stopped while MPI starts", "test_killed.py", "3 + 5 s"),
        ("stop/set_up", "stopped in a call of the set-up", "test_killed.py", "3 + 5 s"),
        ("stop/exchange", "stopped in the first exchanges", "test_killed.py", "3 + 5 s"),
        ("stop/training", "stopped in the training", "test_killed.py", "3 + 5 s"),
        ("stop/farewell", "stopped in the farewell", "test_killed.py", "3 + 5 s"),
        ("stop/finalize", "stopped in `MPI_Finalize`", "test_killed.py", "3 + 5 s"),
    ],
    "launcher": [
        ("launcher/kill", "hangs after the end of all ranks: one killed", "test_killed.py", MISSING),
        ("launcher/stop", "hangs after the end of all ranks: one stopped", "test_killed.py", MISSING),
    ],
    "resume": [
        ("resume/call", "killed in a call on files of a checkpoint", "test_resume.py", MISSING),
        ("resume/moment", "killed while checkpoints are written", "test_resume.py", "10 s"),
    ],
    "library": [
        ("failures/kill", "killed during communication", "test_failures.py", "4 s"),
        ("failures/stop", "stopped during communication", "test_failures.py", "2 + 4 s"),
        ("factorisations/kill", "killed during a factorisation", "test_failures.py", "4 s"),
        ("factorisations/stop", "stopped during a factorisation", "test_failures.py", "2 + 4 s"),
    ],
    "calls": [
        ("wrong_calls", "one rank makes another call", "test_wrong_calls", MISSING),
        ("arguments", "one rank passes another argument", "test_replicated", MISSING),
        ("faulty_exchanges", "messages late, lost or damaged", "test_faulty_exchanges", MISSING),
        ("random_orders", "late messages in a factorisation", "test_random_orders", MISSING),
    ],
    "input": [
        ("bad_input", "wrong requests and damaged files", "test_bad_input.py", "20 s"),
        ("bounds/boxes", "boxes of every size", "test_distribution", MISSING),
        ("bounds/distributions", "extents and grids of every size", "test_distribution", MISSING),
        ("bounds/shared_heap", "blocks of shared memory of every size", "test_shared_heap", MISSING),
    ],
}
SUMS = {"command": (("killed, all phases", "kill/"), ("stopped, all phases", "stop/"))}


def seconds_text(value):
    return MISSING if value is None else f"{number(value)} s" if value >= 1 else f"{number(1e3 * value)} ms"


def rate_text(trials, failures):
    """Without failures the rate is below 3/n with 95 % confidence."""
    return MISSING if failures or not trials else f"{number(300 / trials)} %"


def row(text, test, limit, entries):
    """Of one experiment or of several, which have no common median."""
    if not entries:
        return [text, test, limit, *[MISSING] * 5]
    trials, failures = (sum(e[key] for e in entries) for key in ("trials", "failures"))
    median = entries[0]["median"] if len(entries) == 1 else None
    longest = max((e["longest"] for e in entries if e["longest"] is not None), default=None)
    return [text, test, limit, f"{trials:,}", f"**{failures:,}**" if failures else "0", rate_text(trials, failures),
            seconds_text(median), seconds_text(longest)]


def origin(entries):
    return "; ".join(dict.fromkeys(f"{e['date']}, commit {e['commit']}" for e in entries)) + ".\n"


def section_text(data, name):
    all_entries = data["experiments"]
    found = [all_entries[key] for key, *_ in SECTIONS[name] if key in all_entries]
    rows = [row(text, f"`{test}`", limit, [all_entries[key]] if key in all_entries else [])
            for key, text, test, limit in SECTIONS[name]]
    rows += [row(text, "", "", [e for key, e in all_entries.items() if key.startswith(start)])
             for text, start in SUMS.get(name, ())]
    headings = ["failure", "test", "within", "trials", "failures", "rate below", "median", "longest"]
    return table(headings, rows) + ("\n" + origin(found) if found else "\nNot measured yet.\n")


def cost_text(data):
    entries = data["cost"]
    rows = [[e["what"], f"{e['median_ratio']:.3f} ×", f"{e['best_ratio']:.3f} ×", str(e["turns"])] for e in entries]
    text = table(["operation, two ranks", "median", "best", "turns"], rows)
    if not entries:
        return text + "\nNot measured yet.\n"
    return text + f"\nAgainst commit {entries[0]['before']}; " + origin(entries)


def tables_of(data, name):
    """The text between the markers NAME. Throws KeyError if there is no such section."""
    if name == "cost":
        return cost_text(data)
    if name == "machine":
        return f"{data['processor']}; {data['cores']} cores.\n"
    if name not in SECTIONS:
        raise KeyError(f"no section {name}; sections are {', '.join(SECTIONS)}, cost, machine")
    return section_text(data, name)


def read():
    return json.loads(FIGURES.read_text(encoding="utf-8"))


def enter(data, folder, about):
    records, costs = {}, []
    for file in sorted(pathlib.Path(folder).glob("*.json")):
        entry = json.loads(file.read_text(encoding="utf-8"))
        if entry["id"].startswith("cost/"):
            costs.append(about | {key: value for key, value in entry.items() if key != "id"})
            continue
        record = records.setdefault(entry["id"], {"trials": 0, "failures": 0, "seconds": []})
        for key in record:
            record[key] += entry[key]
    if not records and not costs:
        sys.exit(f"guarantees.py: no records in {folder}; set ALONI_GUARANTEES when the tests run")
    order = [key for section in SECTIONS.values() for key, *_ in section]
    if unknown := sorted(set(records) - set(order)):
        sys.exit(f"guarantees.py: {folder} has records of unknown experiments: {', '.join(unknown)}")
    for key, record in records.items():
        seconds = record.pop("seconds")
        data["experiments"][key] = record | {
            "median": float(f"{statistics.median(seconds):.3g}") if seconds else None,
            "longest": float(f"{max(seconds):.3g}") if seconds else None} | about
    data["experiments"] = {key: data["experiments"][key] for key in order if key in data["experiments"]}
    data["cost"] = costs or data["cost"]


def expression_of_tests():
    tests = sorted({test for rows in SECTIONS.values() for _, _, test, _ in rows})
    return "^(" + "|".join(test.replace(".", "[.]") for test in tests) + ")($|[.])"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="of records")
    parser.add_argument("--tests", action="store_true", help="print the tests that write records")
    options = parser.parse_args()
    if options.tests:
        print(expression_of_tests())
        return
    data = read()
    if options.folder:
        data |= {"processor": processor(), "cores": len(os.sched_getaffinity(0))}
        enter(data, options.folder, {"date": datetime.date.today().isoformat(), "commit": git_commit()})
        FIGURES.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = DOCUMENT.read_text(encoding="utf-8")
    text = MARKED.sub(lambda match: match[1] + tables_of(data, match[2]) + match[4], text)
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
