#!/usr/bin/env python3
"""Measures every figure of docs/performance.md and writes its tables.

  bench/report.py --python ~/peers/bin/python     everything; 40 to 60 minutes on two cores
  bench/report.py --only all_reduce               one section, merged into the existing figures
  bench/report.py --tables                        the tables again, from the existing figures

Runs the suites build/host/bin/bench_* and the peers that this machine has, in turns, on the first two cores. Writes
docs/performance.json, then the tables between `<!-- figures: bench/report.py NAME -->` and `<!-- end of figures -->`
in docs/performance.md and README.md. NAME is a section, `machine` or `summary`.

Peers: memcpy, matrix products, oneDNN and Open MPI are inside the suites. PyTorch and JAX run if a --python has them
(bench/compare/README.md). Two shaped hosts need root (bench/two_hosts.sh). A missing peer, a failed program and a
missing case leave their bars out; the report says which and why.

StarPU and ScaLAPACK run if they are installed (bench/compare/README.md).

Needs a build of the host preset: the bench_* programs, aloni_command, cholesky, stencil and test_halo_pure. Run it on
an otherwise idle machine.
"""
import argparse
import datetime
import json
import os
import pathlib
import signal
import sys
import time
import traceback

sys.dont_write_bytecode = True

from figures.run import ROOT, Run, library_versions, output_of, say
from figures.sections import SECTIONS
from figures.tables import with_tables

FIGURES = ROOT / "docs/performance.json"
DOCUMENTS = (ROOT / "docs/performance.md", ROOT / "README.md")


def git_commit():
    git = ("git", "-C", str(ROOT))
    commit = output_of(*git, "rev-parse", "--short=12", "HEAD") or "unknown"
    changed = output_of(*git, "status", "--porcelain", "--untracked-files=no", "--", "*.hpp", "*.cpp", "*.sh", "*.py")
    return f"{commit}, with changes" if changed else commit


def write_tables(data):
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        document.write_text(with_tables(text, data), encoding="utf-8")


def read(file):
    try:
        return json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        sys.exit(f"report.py: {file} is not JSON ({error}); remove it and measure again")


def enter(data, run, about):
    """Replaces the section's bars; keeps the order of SECTIONS."""
    bars = [bar for bar in data["bars"] if bar["section"] != run.section] + run.bars
    sections = data["sections"] | {run.section: about}
    data["bars"] = [bar for name in SECTIONS for bar in bars if bar["section"] == name]
    data["sections"] = {name: sections[name] for name in SECTIONS if name in sections}
    libraries = data["machine"]["libraries"] | run.machine["libraries"] | library_versions()
    data["machine"] = run.machine | {"libraries": libraries}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="SECTION",
                        help=f"one of {', '.join(SECTIONS)}; may be repeated")
    parser.add_argument("--json", default=str(FIGURES), metavar="FILE",
                        help="other figures than docs/performance.json; leaves the documents alone")
    parser.add_argument("--tables", action="store_true", help="write the tables from the existing figures")
    parser.add_argument("--turns", type=int, help="of all sections, instead of their own")
    parser.add_argument("--quick", action="store_true", help="a smoke run of minutes; its figures mean nothing")
    parser.add_argument("--python", action="append", metavar="PATH",
                        help="a Python with PyTorch, JAX or both; may be repeated; default: $PYTHON")
    options = parser.parse_args()
    options.python = options.python or list(filter(None, (os.environ.get("PYTHON"), os.environ.get("JAX_PYTHON"))))
    if options.turns is not None and options.turns < 1:
        parser.error(f"--turns {options.turns}: at least 1")
    return options


def main():
    options = arguments()
    file = pathlib.Path(options.json).resolve()
    data = read(file)
    if options.tables:
        if data is None:
            sys.exit(f"report.py: no {file}; measure first")
        write_tables(data)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the running program too
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
    run = Run(options)
    other = data is not None and any(data["machine"][key] != run.machine[key] for key in ("processor", "cores"))
    if other and options.only:
        sys.exit(f"report.py: the figures of {file} are of another machine ({data['machine']['processor']}); "
                 "measure all sections, or use --json")
    if data is None or other:
        data = {"machine": dict(run.machine), "sections": {}, "bars": []}
    if not options.only:
        data["machine"]["libraries"] = {}
    commit, begin = git_commit(), time.monotonic()
    for name in options.only or SECTIONS:
        start = time.monotonic()
        say(f"== {name}")
        run.start_section(name, SECTIONS[name].turns)
        try:
            SECTIONS[name].measure(run)
        except Exception as error:  # must not end the other sections
            traceback.print_exc()
            run.problems.append(f"bench/figures/sections.py: {type(error).__name__}: {error}")
        about = {"date": datetime.date.today().isoformat(), "commit": commit, "turns": run.turns,
                 "quick": options.quick, "problems": run.problems}
        enter(data, run, about)
        file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if file == FIGURES:
            write_tables(data)
        say(f"{name}: {time.monotonic() - start:.0f} s")
    say(f"all: {time.monotonic() - begin:.0f} s; {file}")


if __name__ == "__main__":
    main()
