#!/usr/bin/env python3
"""Compares two builds, in turns: communication, steps, convolutions, and the set-up of networks.

  bench/compare_builds.py BEFORE AFTER [--only GROUP …] [--turns N] [--record FOLDER]

BEFORE and AFTER are build folders of two trees with equal options. Every turn runs each program of both builds once;
the build that comes first alternates. Prints for each case the median and the best time over turns, and the ratios
AFTER / BEFORE, with the largest ratio that is allowed. Groups and the programs that they need:

  communication   bench_collectives, bench_exchange, aloni_command: short messages, two ranks
  steps           bench_train_step: LeNet-5 with 64 and 1,024 samples on one rank, and on two ranks by h2 and n2
  convolutions    bench_conv: the three passes of each layer together, split by height on two ranks
  set_up          bench_set_up: the constructor of Network for LeNet-5 and ResNet-18 (see there for an older tree)
  times           bench_train_step of AFTER alone: a step with times of all nodes against a step without

With --record it writes the ratios of `communication` for docs/guarantees.md (scripts/guarantees.py).
"""
import argparse
import dataclasses
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

START = "start and end of `aloni info`"
LAYERS = ("resnet_conv1", "res3b_branch2a", "mesh_conv1_1", "mesh_conv6_1", "c64_256", "c32_3d", "depthwise", "dilated",
          "transposed")
PASSES = ("forward", "backward_data", "backward_filter")
SLOWER, LARGER_SET_UP, WITH_TIMES = 1 / 0.98, 1.2, 1.02  # largest allowed ratios of times


@dataclasses.dataclass
class Suite:
    """Cases of one program: {name: benchmarks whose times are added}."""
    program: str
    ranks: int
    cases: dict
    largest: float = 0.0  # allowed ratio; 0: none


def step(kind, batch):
    return f"train_step/lenet5/float/{kind}-b{batch}"


def steps(ranks, grid):
    where = "one rank" if ranks == 1 else f"{grid} on two ranks"
    return Suite("bench_train_step", ranks, {f"step of LeNet-5, {batch:,} samples, {where}": [step(grid, batch)]
                                             for batch in (64, 1024)}, SLOWER)


GROUPS = {
    "communication": [
        Suite("bench_collectives", 2, {"all-reduce of 8 bytes, shared memory": ["allreduce/shared/8"],
                                       "all-reduce of 8 bytes, private memory": ["allreduce/private/8"]}),
        Suite("bench_exchange", 2, {"halo exchange of 84 KiB, forward": ["exchange/lenet-conv2/forward/h2"],
                                    "halo exchange of 84 KiB, adjoint": ["exchange/lenet-conv2/adjoint/h2"]}),
        Suite("aloni", 2, {START: []})],
    "steps": [steps(1, "1"), steps(2, "n2"), steps(2, "h2")],
    "convolutions": [Suite("bench_conv", 2, {f"passes of {layer}": [f"conv/{layer}/{p}/h2" for p in PASSES]
                                             for layer in LAYERS}, SLOWER)],
    "set_up": [Suite("bench_set_up", ranks, {f"set-up of {model}, {grid}": [f"set_up/{model}/{grid}-b64"]
                                             for model in ("lenet5", "resnet18") for grid in grids}, LARGER_SET_UP)
               for ranks, grids in ((1, ("1",)), (2, ("n2", "h2")))],
}
# {name: (ranks, the case without times, the case with times)}
TIMES = {"times of nodes, one rank": (1, step("1", 64), step("timed-1", 64)),
         "times of nodes, n2 on two ranks": (2, step("n2", 64), step("timed-n2", 64)),
         "times of nodes, h2 on two ranks": (2, step("h2", 64), step("timed-h2", 64))}


def run(command):
    begin = time.monotonic()
    subprocess.run(command, cwd=ROOT, env=clean_environment() | ONE_THREAD, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def command_of(build, program, ranks):
    return [str(ROOT / "scripts/mpirun"), "-n", str(ranks), str(build / "bin" / program)]


def seconds_of(build, program, ranks, cases, seconds):
    """{benchmark: s}"""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/out.json"
        pattern = "^(" + "|".join(cases) + ")/"
        run([*command_of(build, program, ranks), f"--benchmark_filter={pattern}", f"--benchmark_min_time={seconds}",
             f"--benchmark_out={file}", "--benchmark_out_format=json"])
        with open(file, encoding="utf-8") as stream:
            found = json.load(stream)["benchmarks"]
    times = {}
    for case in cases:
        one = next((entry for entry in found if entry["name"].startswith(case + "/")), None)
        if one is None:
            sys.exit(f"compare_builds.py: {build}/bin/{program} has no case {case} on {ranks} ranks")
        times[case] = one["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[one["time_unit"]]
    return times


def measure(build, suite, seconds):
    """{name: s}"""
    if START in suite.cases:
        return {START: min(run([*command_of(build, suite.program, suite.ranks), "info"]) for _ in range(3))}
    cases = [case for parts in suite.cases.values() for case in parts]
    times = seconds_of(build, suite.program, suite.ranks, cases, seconds)
    return {name: sum(times[case] for case in parts) for name, parts in suite.cases.items()}


def compare(builds, suites, options):
    """Two lists of {name: times in s}: one value for each turn."""
    times = [{}, {}]
    for turn in range(options.turns):
        for build in (0, 1) if turn % 2 == 0 else (1, 0):
            for suite in suites:
                for name, seconds in measure(builds[build], suite, options.seconds).items():
                    times[build].setdefault(name, []).append(seconds)
        print(f"turn {turn + 1}", file=sys.stderr, flush=True)
    return times


def compare_with_times(build, options):
    """The same lists for steps without and with times of nodes."""
    times = [{}, {}]
    for turn in range(options.turns):
        for name, (ranks, without, timed) in TIMES.items():
            found = seconds_of(build, "bench_train_step", ranks, [without, timed], options.seconds)
            for side, case in enumerate((without, timed)):
                times[side].setdefault(name, []).append(found[case])
        print(f"turn {turn + 1}", file=sys.stderr, flush=True)
    return times


def show(times, largest):
    """Prints a line for each case. Returns {name: (ratio of medians, ratio of best times)}."""
    ratios = {}
    for name, before in times[0].items():
        after = times[1][name]
        medians = statistics.median(before), statistics.median(after)
        ratio, best = ratios[name] = medians[1] / medians[0], min(after) / min(before)
        bar = largest.get(name, 0)
        verdict = "" if bar == 0 else f"; at most {bar:.3f}: {'yes' if ratio <= bar else 'NO'}"
        print(f"{name}: median {1e6 * medians[0]:.4g} to {1e6 * medians[1]:.4g} µs, {ratio:.3f} ×; "
              f"best {1e6 * min(before):.4g} to {1e6 * min(after):.4g} µs, {best:.3f} ×{verdict}", flush=True)
    return ratios


def record(ratios, options):
    options.record.mkdir(parents=True, exist_ok=True)
    for number, (name, (ratio, best)) in enumerate(ratios.items()):
        entry = {"id": f"cost/{number}", "what": name, "before": options.before_commit, "turns": options.turns,
                 "median_ratio": ratio, "best_ratio": best}
        if options.after_commit:
            entry["commit"] = options.after_commit
        (options.record / f"cost-{number}.json").write_text(json.dumps(entry), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", metavar="GROUP", choices=[*GROUPS, "times"], default=[*GROUPS, "times"])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.3, help="least time of a case in a turn")
    parser.add_argument("--before-commit", default="", help="name of the tree of BEFORE")
    parser.add_argument("--after-commit", default="", help="name of the tree of AFTER, if it is not the present one")
    parser.add_argument("--record", metavar="FOLDER", type=pathlib.Path)
    options = parser.parse_args()
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
    builds = [options.before.resolve(), options.after.resolve()]
    for group in options.only:
        if group == "times":
            show(compare_with_times(builds[1], options), dict.fromkeys(TIMES, WITH_TIMES))
            continue
        suites = GROUPS[group]
        ratios = show(compare(builds, suites, options), {name: s.largest for s in suites for name in s.cases})
        if options.record and group == "communication":
            record(ratios, options)


if __name__ == "__main__":
    main()
