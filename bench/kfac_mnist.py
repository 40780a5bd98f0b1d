#!/usr/bin/env python3
"""Compares K-FAC with tuned SGD on LeNet-5: the test accuracy after as few steps as possible, and the time of a step.

  bench/kfac_mnist.py --data FOLDER                   MNIST, the four files of its authors; on 1 and 2 ranks
  bench/kfac_mnist.py --data examples/data/mnist_subset --budgets 125 250 500 --ranks 1

Needs aloni_command of the host preset. A budget is the total number of steps; the learning rate falls to zero at its
end, so each budget is a training of its own. Both optimisers are tuned on the largest budget, with seed 1 on one rank:
every combination of the values below. Then each budget is run with the best values and other seeds. A target is
reached with the least budget whose mean accuracy over the seeds is at least the target. `share`: steps of K-FAC for the
accuracy of tuned SGD with its largest budget, divided by the steps of that SGD. Times are medians of alternating
runs.
"""
import argparse
import itertools
import json
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True

from figures.run import ROOT, aloni

TUNED = {
    "sgd": {"--learning-rate": ["0.01", "0.02", "0.05", "0.1"], "--momentum": ["0.9"], "--weight-decay": ["0", "5e-4"]},
    "kfac": {"--learning-rate": ["0.02", "0.05", "0.1"], "--momentum": ["0.9"], "--kfac-damping": ["0.03", "0.1"],
             "--kfac-clip": ["3e-4", "1e-3"]},
}


def train(options, ranks, optimiser, steps, seed, words):
    return aloni(options.build, [str(ROOT / "scripts/mpirun"), "-n", str(ranks)],
                 ["train", "--model", "lenet5", "--data", options.data, "--batch", str(options.batch), "--steps",
                  str(steps), "--seed", str(seed), "--strategy", f"n{ranks}" if ranks > 1 else "1", "--optimiser",
                  optimiser, "--progress", "none", *words, *(options.kfac if optimiser == "kfac" else [])])


def accuracy(report):
    return report["epochs"][-1]["test_accuracy"]


def combinations(values):
    for chosen in itertools.product(*values.values()):
        yield [word for pair in zip(values, chosen) for word in pair]


def tune(options, optimiser):
    """The words of the best combination on the largest budget."""
    results = []
    for words in combinations(TUNED[optimiser]):
        results.append((accuracy(train(options, 1, optimiser, max(options.budgets), 1, words)), words))
        print(f"  {optimiser} {' '.join(words)}: {results[-1][0]:.4f}", file=sys.stderr, flush=True)
    return max(results)[1]


def least(budgets, means, target):
    return min((steps for steps in budgets if means[steps] >= target), default=None)


def compare(options, ranks, words):
    """The accuracies and step times of both optimisers on this number of ranks."""
    result = {"ranks": ranks, "mean_accuracy": {}, "steps": {}, "step_ms": {}}
    for optimiser in TUNED:
        means = {}
        for steps in options.budgets:
            means[steps] = statistics.mean(accuracy(train(options, ranks, optimiser, steps, seed, words[optimiser]))
                                           for seed in options.seeds)
            print(f"  {optimiser}, {ranks} ranks, {steps} steps: {means[steps]:.4f}", file=sys.stderr, flush=True)
        result["mean_accuracy"][optimiser] = means
        result["steps"][optimiser] = {target: least(options.budgets, means, target) for target in options.targets}
    goal = result["mean_accuracy"]["sgd"][max(options.budgets)]
    found = least(options.budgets, result["mean_accuracy"]["kfac"], goal)
    result["share"] = found / max(options.budgets) if found else None
    times = {optimiser: [] for optimiser in TUNED}
    for _, optimiser in itertools.product(range(options.turns), TUNED):
        times[optimiser].append(train(options, ranks, optimiser, 100, 1, words[optimiser])["step_seconds"] * 1e3)
    result["step_ms"] = {optimiser: statistics.median(values) for optimiser, values in times.items()}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the four files of MNIST")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/host")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--budgets", type=int, nargs="+", default=[500, 700, 960, 1200, 1600])
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--targets", type=float, nargs="+", default=[0.985, 0.99])
    parser.add_argument("--turns", type=int, default=3, help="alternating runs for the time of a step")
    parser.add_argument("--kfac", nargs=argparse.REMAINDER, default=[], help="more options of K-FAC; the last argument")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.data = str(pathlib.Path(options.data).resolve())
    words = {optimiser: tune(options, optimiser) for optimiser in TUNED}
    results = {"batch": options.batch, "seeds": options.seeds, "tuned": words, "kfac": options.kfac,
               "runs": [compare(options, ranks, words) for ranks in options.ranks]}
    for optimiser, chosen in words.items():
        print(f"{optimiser}: {' '.join(chosen)}")
    for run in results["runs"]:
        print(f"{run['ranks']} ranks: share of steps {run['share']}, time of a step {run['step_ms']['kfac']:.2f} ms "
              f"({run['step_ms']['sgd']:.2f} ms by SGD)")
        for target in options.targets:
            steps = {optimiser: run["steps"][optimiser][target] for optimiser in TUNED}
            print(f"  {target:.3f}: {steps['kfac']} steps by K-FAC, {steps['sgd']} by SGD")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
