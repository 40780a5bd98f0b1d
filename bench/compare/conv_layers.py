"""The layers of bench_conv (bench/conv/layers.hpp), one sample each, for the scripts beside this file."""
import argparse
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    name: str
    channels: int
    size: int
    filters: int
    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    dimensions: int = 2
    transposed: bool = False


LAYERS = (
    Layer("resnet_conv1", 3, 224, 64, 7, stride=2, padding=3),
    Layer("res3b_branch2a", 512, 28, 128, 1),
    Layer("mesh_conv1_1", 18, 1024, 128, 5, stride=2, padding=2),
    Layer("mesh_conv6_1", 384, 64, 128, 3, stride=2, padding=1),
    Layer("c64_256", 64, 256, 64, 3, padding=1),
    Layer("c32_3d", 32, 64, 32, 3, padding=1, dimensions=3),
    Layer("depthwise", 128, 128, 128, 3, padding=1, groups=128),
    Layer("dilated", 64, 128, 64, 3, padding=2, dilation=2),
    Layer("transposed", 64, 128, 32, 4, stride=2, padding=1, transposed=True),
)


def arguments(documentation):
    """A parser with the options that all scripts have."""
    parser = argparse.ArgumentParser(description=documentation, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15, help="timed steps per layer; the fastest counts")
    parser.add_argument("--warm_up", type=int, default=3, help="steps before the clock starts")
    return parser


def best_milliseconds(step, options):
    """Time of the fastest step. `step` returns when its results are complete."""
    for _ in range(options.warm_up):
        step()
    best = float("inf")
    for _ in range(options.repetitions):
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    return 1e3 * best
