#!/usr/bin/env python3
"""Prints the memory of a training: predicted, measured, and their ratio, for several networks and ranks.

  bench/memory.py                      LeNet-5, mesh1k at 512², ResNet-50 and U-Net
  bench/memory.py --only mesh          cases whose name contains `mesh`
  bench/memory.py --before FOLDER      LeNet-5 in another build as well (build/host of an older tree)
  bench/memory.py --python PYTHON      PyTorch as well, if this Python has it
  bench/memory.py --json FILE          the figures as JSON too

Needs aloni_command of the host preset. `planned`: memory of the plan of a training step, learned tensors included.
`unshared`: its memory if each buffer had its own. Trees before buffers shared memory have no models by name, so
`unshared` stands for them. Of several ranks, the largest counts.
"""
import argparse
import json
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True

from figures.run import ONE_THREAD, ROOT, Failed, aloni, clean_environment

MESH = ["--model", "mesh1k", "--input", "512x512x18", "--batch", "1"]
CASES = {  # name: (ranks, arguments)
    "lenet5 b1024": (1, ["--batch", "1024"]),
    "lenet5 b1024 h2": (2, ["--batch", "1024", "--strategy", "h2"]),
    "mesh1k 512² b1": (1, MESH),
    "mesh1k 512² b1 h2": (2, [*MESH, "--strategy", "h2"]),
    "resnet50 b8": (1, ["--model", "resnet50", "--batch", "8"]),
    "resnet50 b8 h2": (2, ["--model", "resnet50", "--batch", "8", "--strategy", "h2"]),
    "unet2d b1": (1, ["--model", "unet2d", "--batch", "1"]),
    "unet2d b1 h2": (2, ["--model", "unet2d", "--batch", "1", "--strategy", "h2"]),
}
PYTORCH = [ROOT / "bench/compare/steps_pytorch.py", *MESH, "--ranks", "1", "--threads", "1", "--steps", "1", "--warmup",
           "1"]


def report_of(build, ranks, *arguments):
    """What the command writes with --json. None: it does not know the arguments."""
    try:
        return aloni(build, [str(ROOT / "scripts/mpirun"), "-n", str(ranks)], arguments)
    except Failed as failed:
        print(f"{build} {' '.join(arguments)}: {failed}", file=sys.stderr)
        return None


def figures_of(options, ranks, arguments):
    """{figure: bytes or a ratio}"""
    figures = {}
    report = report_of(options.build, ranks, "train", "--data", "synthetic", "--steps", "2", "--progress", "none",
                       *arguments)
    if report:
        figures["measured"], figures["predicted"] = report["peak_memory_bytes"], report["predicted_memory_bytes"]
        figures["measured / predicted"] = figures["measured"] / figures["predicted"]
    plan = report_of(options.build, 1, "plan", "--ranks", str(ranks), *arguments)
    if plan:
        figures["planned"], figures["unshared"] = plan["memory_bytes_per_rank"], plan["separate_bytes_per_rank"]
    if options.before and "--model" not in arguments:
        digits = str(ROOT / "examples/data/mnist_subset")
        before = report_of(options.before, ranks, "train", "--data", digits, "--steps", "2", "--progress", "none",
                           *arguments)
        if before:
            figures["measured before"] = before["peak_memory_bytes"]
    return figures


def text_of(value):
    return f"{value:.3f}" if isinstance(value, float) else f"{value / 2**20:.1f} MiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/host")
    parser.add_argument("--before", type=pathlib.Path, help="build folder of another tree")
    parser.add_argument("--only", default="", help="part of the names of the cases to run")
    parser.add_argument("--python", help="a Python with PyTorch")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.build = options.build.resolve()
    options.before = options.before and options.before.resolve()
    all_figures = {}
    for name, (ranks, arguments) in CASES.items():
        if options.only not in name:
            continue
        figures = all_figures[name] = figures_of(options, ranks, arguments)
        print(f"{name}: " + ", ".join(f"{key} {text_of(value)}" for key, value in figures.items()), flush=True)
    if options.python:
        done = subprocess.run([options.python, *PYTORCH], env=clean_environment() | ONE_THREAD, check=False,
                              capture_output=True, text=True)
        if done.returncode == 0:
            measured = json.loads(done.stdout)["peak_memory_bytes"]
            all_figures["PyTorch, mesh1k 512² b1"] = {"measured": measured}
            print(f"PyTorch, mesh1k 512² b1, one process: measured {text_of(measured)}")
        else:
            print(f"PyTorch: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps(all_figures, indent=2, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
