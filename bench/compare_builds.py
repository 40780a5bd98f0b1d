#!/usr/bin/env python3
"""Compares the cost of communication in two builds, in turns, on two ranks.

  bench/compare_builds.py BEFORE AFTER [--turns N] [--record FOLDER]

BEFORE and AFTER are build folders of two trees with equal options; each needs aloni_command, bench_collectives and
bench_exchange. Every turn runs each program of both builds once; the build that comes first alternates. Prints for each
case the median and the best time over turns, and the ratios AFTER / BEFORE. With --record it writes the ratios for
docs/guarantees.md (scripts/guarantees.py).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

from figures.run import ONE_THREAD, ROOT, clean_environment

SUITES = {  # program: {case: (its name in the document, least time of a turn in s)}
    "bench_collectives": {"allreduce/shared/8": "all-reduce of 8 bytes, shared memory",
                          "allreduce/private/8": "all-reduce of 8 bytes, private memory"},
    "bench_exchange": {"exchange/lenet-conv2/forward/h2": "halo exchange of 84 KiB, forward",
                       "exchange/lenet-conv2/adjoint/h2": "halo exchange of 84 KiB, adjoint"},
}
START = "start and end of `aloni info`"


def run(command):
    begin = time.monotonic()
    subprocess.run(command, cwd=ROOT, env=clean_environment() | ONE_THREAD, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def measure(build, seconds):
    """{name: s}"""
    launcher, programs, times = [str(ROOT / "scripts/mpirun"), "-n", "2"], build / "bin", {}
    for suite, cases in SUITES.items():
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/out.json"
            pattern = "^(" + "|".join(cases) + ")/"
            run([*launcher, str(programs / suite), f"--benchmark_filter={pattern}", f"--benchmark_min_time={seconds}",
                 f"--benchmark_out={file}", "--benchmark_out_format=json"])
            with open(file, encoding="utf-8") as stream:
                found = json.load(stream)["benchmarks"]
        for case, name in cases.items():
            one = next(entry for entry in found if entry["name"].startswith(case + "/"))
            times[name] = one["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[one["time_unit"]]
    times[START] = min(run([*launcher, str(programs / "aloni"), "info"]) for _ in range(3))
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3, help="least time of a case in a turn")
    parser.add_argument("--before-commit", default="", help="name of the tree of BEFORE")
    parser.add_argument("--after-commit", default="", help="name of the tree of AFTER, if it is not the present one")
    parser.add_argument("--record", metavar="FOLDER", type=pathlib.Path)
    options = parser.parse_args()
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
    builds = [options.before.resolve(), options.after.resolve()]
    times = [{}, {}]
    for turn in range(options.turns):
        for build in (0, 1) if turn % 2 == 0 else (1, 0):
            for name, seconds in measure(builds[build], options.seconds).items():
                times[build].setdefault(name, []).append(seconds)
        print(f"turn {turn + 1}", file=sys.stderr, flush=True)
    for number, name in enumerate(times[0]):
        before, after = times[0][name], times[1][name]
        medians = statistics.median(before), statistics.median(after)
        ratio, best = medians[1] / medians[0], min(after) / min(before)
        print(f"{name}: median {1e6 * medians[0]:.4g} to {1e6 * medians[1]:.4g} µs, {ratio:.3f} ×; "
              f"best {1e6 * min(before):.4g} to {1e6 * min(after):.4g} µs, {best:.3f} ×")
        if options.record:
            entry = {"id": f"cost/{number}", "what": name, "before": options.before_commit, "turns": options.turns,
                     "median_ratio": ratio, "best_ratio": best}
            if options.after_commit:
                entry["commit"] = options.after_commit
            options.record.mkdir(parents=True, exist_ok=True)
            (options.record / f"cost-{number}.json").write_text(json.dumps(entry), encoding="utf-8")


if __name__ == "__main__":
    main()
