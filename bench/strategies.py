#!/usr/bin/env python3
"""Measures the strategies of a training beside the cost model: is the prediction right, and is the automatic one best?

  bench/strategies.py --machine FILE.json                    all networks on two ranks
  bench/strategies.py --machine FILE.json --only mesh        networks whose name contains `mesh`
  bench/strategies.py --machine FILE.json --turns 5          each strategy five times, in turns
  bench/strategies.py --machine FILE.json --launcher "bench/two_hosts.sh run 1"
  bench/strategies.py --machine FILE.json --steps 4          fewer steps per run, for slow links
  bench/strategies.py --machine FILE.json --json FILE        the figures as JSON too

Needs aloni_command of the host preset, and a machine file that `aloni calibrate` wrote with the same launcher. No
network here is part of a calibration. `measured` is the median over turns of the median step without the input, on the
slowest rank; `predicted` is the time of the cost model. The automatic strategy is chosen once per network, with an
empty cache, and its choice is not part of the times. The last lines have the mean error of all predictions, the errors
of the phases of steps, weighted by their times, and for each network the automatic strategy against the fastest uniform
one.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True

from figures.run import ROOT, Failed, aloni

CASES = {  # name: (arguments, steps of a run)
    "lenet5": (["--model", "lenet5", "--batch", "128"], 200),
    "mesh1k 256²": (["--model", "mesh1k", "--input", "256x256x18", "--batch", "2"], 12),
    "mesh1k 512²": (["--model", "mesh1k", "--input", "512x512x18", "--batch", "2"], 10),
    "resnet18 64²": (["--model", "resnet18", "--input", "64x64x3", "--batch", "4"], 14),
    "densenet121 32²": (["--model", "densenet121", "--input", "32x32x3", "--batch", "8"], 14),
    "unet2d 64²": (["--model", "unet2d", "--input", "64x64x3", "--batch", "2"], 14),
    "cosmoflow 32³": (["--model", "cosmoflow", "--input", "32x32x32x4", "--batch", "2"], 60),
}
UNIFORM, AUTOMATIC = ("n2", "h2", "w2", "f2", "c2"), "automatic"
NEAR = 1.05  # largest time of the automatic strategy, as a multiple of the fastest uniform one


def measure(options, arguments, steps):
    """{strategy: {"measured_seconds", "predicted_seconds", "phases"} or {"error"}}, each strategy in each turn.
    "phases": those of all turns."""
    found = {strategy: {"measured": [], "phases": []} for strategy in (*UNIFORM, AUTOMATIC)}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.turns):
            order = list(found) if turn % 2 == 0 else list(reversed(found))
            for strategy in order:
                chosen = [] if strategy == AUTOMATIC else ["--strategy", strategy]
                try:
                    comparison = aloni(options.build, shlex.split(options.launcher),
                                       ["train", *arguments, *chosen, "--data", "synthetic", "--steps", str(steps),
                                        "--machine", str(options.machine), "--compare", "--progress", "none"],
                                       {"XDG_CACHE_HOME": folder})["comparison"]
                except Failed as failed:
                    found[strategy]["error"] = str(failed)
                    continue
                found[strategy]["measured"].append(comparison["step"]["measured_seconds"])
                found[strategy]["predicted_seconds"] = comparison["step"]["predicted_seconds"]
                found[strategy]["phases"] += comparison["phases"]
    for times in found.values():
        measured = times.pop("measured")
        if measured:
            times["measured_seconds"] = statistics.median(measured)
    return found


def judge(found):
    """(fastest uniform strategy, time of the automatic one as a multiple of its time); None if one is missing."""
    uniform = {s: found[s]["measured_seconds"] for s in UNIFORM if "measured_seconds" in found[s]}
    if not uniform or "measured_seconds" not in found[AUTOMATIC]:
        return None
    best = min(uniform, key=uniform.get)
    return best, found[AUTOMATIC]["measured_seconds"] / uniform[best]


def phase_errors(figures):
    """{phase: sum of |predicted - measured| of all strategies / sum of measured}: each strategy counts by its time."""
    wrong, measured = {}, {}
    for phase in (phase for found in figures.values() for times in found.values() for phase in times["phases"]):
        name, seconds = phase["name"], phase["measured_seconds"]
        wrong[name] = wrong.get(name, 0) + abs(phase["predicted_seconds"] - seconds)
        measured[name] = measured.get(name, 0) + seconds
    return {name: wrong[name] / measured[name] for name in measured if measured[name] > 0}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", type=pathlib.Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, help="at most this number of steps per run")
    parser.add_argument("--launcher", default="scripts/mpirun -n 2")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/host")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.machine = options.machine.resolve()
    if not options.machine.exists():
        parser.error(f"--machine {options.machine}: no such file; aloni calibrate --output writes one")
    cases = {name: case for name, case in CASES.items() if options.only in name}
    if not cases or options.turns < 1 or (options.steps is not None and options.steps < 2):
        names = ", ".join(CASES)
        parser.error(f"--only {options.only}: expected a part of one of {names}; at least 1 turn; at least 2 steps")

    figures, errors = {}, []
    print(f"{'network':16} {'strategy':10} {'predicted':>10} {'measured':>10} {'error':>8}")
    for name, (arguments, steps) in cases.items():
        figures[name] = found = measure(options, arguments, min(steps, options.steps or steps))
        for strategy, times in found.items():
            if "measured_seconds" not in times:
                print(f"{name:16} {strategy:10} {times['error']}")
                continue
            error = times["predicted_seconds"] / times["measured_seconds"] - 1
            errors.append(abs(error))
            print(f"{name:16} {strategy:10} {1e3 * times['predicted_seconds']:7.2f} ms "
                  f"{1e3 * times['measured_seconds']:7.2f} ms {100 * error:+6.1f} %", flush=True)
    print()
    failed = not errors
    if errors:
        print(f"error of {len(errors)} predictions: mean {100 * statistics.mean(errors):.1f} %, "
              f"worst {100 * max(errors):.1f} %")
        print("weighted errors of phases: "
              + ", ".join(f"{name} {100 * error:.1f} %" for name, error in phase_errors(figures).items()))
    for name, found in figures.items():
        verdict = judge(found)
        failed |= verdict is None or verdict[1] > NEAR
        text = f"automatic: {verdict[1]:.2f} × the time of {verdict[0]}, the best uniform one" if verdict else "missing"
        print(f"{name:16} {text}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return os.EX_OK if not failed else 1


if __name__ == "__main__":
    sys.exit(main())
