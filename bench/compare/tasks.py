#!/usr/bin/env python3
"""Times empty and busy tasks of our runtime and of StarPU, on one and two workers.

  bench/compare/tasks.py [--turns 5] [--seconds 0.3] [--schedulers eager prio lws] [--json FILE]

Ours is build/host/bin/bench_tasks (or in $BIN), StarPU's is starpu_tasks.cpp beside this file, built here with the
flags of pkg-config (Debian: libstarpu-dev). Both take turns. Of StarPU's schedulers the fastest counts, for each case.
Prints the median over turns of the fastest runs: microseconds per task, and the length of busy tasks at half
efficiency. Without StarPU its columns stay empty.

The clocks differ in StarPU's favour: ours includes the start of the threads.
"""
import argparse
import json
import math
import os
import re
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True

from peer_program import ROOT, Missing, build, our_program, output, without_thread_settings

WORKERS = (1, 2)
LENGTHS = (1, 2, 5, 10, 20)  # µs, of busy tasks
SCHEDULERS = ("eager", "prio", "lws")
EMPTY = {"independent": "no dependences", "three": "three dependences", "inserted": "three, with their insertion"}


def aloni_times(program, seconds):
    """{case: seconds per task} of the fastest runs; and the version."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/out.json"
        cases = "|".join([f"task/({'|'.join(EMPTY)})/", "busy/"])
        output([ROOT / "scripts/mpirun", "-n", 1, program, f"--benchmark_filter=^({cases})",
                f"--benchmark_min_time={seconds}", f"--benchmark_out={file}", "--benchmark_out_format=json"],
               without_thread_settings())
        with open(file, encoding="utf-8") as stream:
            content = json.load(stream)
    times = {}
    for case in content["benchmarks"]:
        name = re.sub(r"^task/|/iterations:\d+.*$", "", case["name"])
        tasks = case["items_per_second"] * case["real_time"] * 1e-6
        times[name] = case["best_us"] * 1e-6 / tasks
    return times, content["context"]["aloni"]


def starpu_times(program, seconds, home, schedulers):
    """The same of StarPU, for the fastest scheduler of each case."""
    times = {}
    for workers in WORKERS:
        for scheduler in schedulers:
            environment = without_thread_settings() | {"STARPU_SILENT": "1", "STARPU_HOME": home}
            result = json.loads(output([program, workers, scheduler, seconds], environment))
            version = result.pop("version")
            for case, values in result.items():
                name = f"{case}/w{workers}"
                times[name] = min(times.get(name, math.inf), values["seconds"] / values["tasks"])
    return times, version


def half_efficiency(times, workers):
    """The length of tasks in µs at which `workers` reach half of the ideal rate; interpolated between the lengths in
    the logarithm. The least length if its efficiency is higher, None if none is long enough."""
    efficiency = [(length, length * 1e-6 / (workers * times[f"busy/{length}us/w{workers}"])) for length in LENGTHS]
    before = None
    for length, value in efficiency:
        if value >= 0.5:
            if before is None:
                return float(length)
            shorter, less = before
            return shorter * (length / shorter) ** ((0.5 - less) / (value - less))
        before = length, value
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="least time of a case")
    parser.add_argument("--schedulers", nargs="+", default=SCHEDULERS, help="of StarPU")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.turns < 1 or options.seconds <= 0:
        parser.error("--turns and --seconds must be above 0")
    turns = {"aloni": [], "StarPU": []}
    versions = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            ours = our_program("bench_tasks")
        except Missing as error:
            sys.exit(f"tasks.py: {error}")
        try:
            peer = build("starpu_tasks.cpp", "starpu-1.3", "libstarpu-dev", folder)
        except Missing as error:
            peer = None
            print(f"tasks.py: no times of StarPU: {error}", file=sys.stderr)
        for _ in range(options.turns):
            times, versions["aloni"] = aloni_times(ours, options.seconds)
            turns["aloni"].append(times)
            if peer:
                times, versions["StarPU"] = starpu_times(peer, options.seconds, folder, options.schedulers)
                turns["StarPU"].append(times)
    names = [f"{case}/w{w}" for w in WORKERS for case in (*EMPTY, *(f"busy/{length}us" for length in LENGTHS))]
    medians = {who: {name: statistics.median(t[name] for t in all_turns) for name in names}
               for who, all_turns in turns.items() if all_turns}
    half = {who: {f"w{w}": half_efficiency(times, w) for w in WORKERS} for who, times in medians.items()}

    def row(name, values, unit):
        cells = [f"{value:10.3f}" if value is not None else f"{'–':>10}" for value in values]
        ratio = f"{values[0] / values[1]:8.3f}" if None not in values else f"{'–':>8}"
        print(f"{name:<34}{''.join(cells)}{ratio}  {unit}")

    print(f"{'':<34}{'aloni':>10}{'StarPU':>10}{'ratio':>8}")
    for name in names:
        values = [medians[who][name] * 1e6 if who in medians else None for who in turns]
        row(name, values, "µs per task")
    for w in WORKERS:
        row(f"half efficiency/w{w}", [half.get(who, {}).get(f"w{w}") for who in turns], "µs")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"versions": versions, "turns": options.turns, "cores": len(os.sched_getaffinity(0)),
                       "seconds_per_task": medians, "half_efficiency_us": half}, file, indent=1)


if __name__ == "__main__":
    main()
