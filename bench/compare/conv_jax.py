#!/usr/bin/env python3
"""Times forward and backward of the layers of bench_conv in JAX: two devices made of the CPU, float, channels last.

Input, output and their gradients are split by height; filters are replicated. Prints one line per layer: its name and
the milliseconds of the fastest step.
"""
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2 " + os.environ.get("XLA_FLAGS", "")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from conv_layers import LAYERS, arguments, best_milliseconds


def convolution(layer):
    spatial = "DHW"[3 - layer.dimensions:]
    numbers = ("N" + spatial + "C", spatial + "IO", "N" + spatial + "C")
    reach = (layer.kernel - 1) * layer.dilation
    padding = reach - layer.padding if layer.transposed else layer.padding
    ones, strides = (1,) * layer.dimensions, (layer.stride,) * layer.dimensions
    return lambda x, w: jax.lax.conv_general_dilated(
        x, w, window_strides=ones if layer.transposed else strides, padding=((padding, padding),) * layer.dimensions,
        lhs_dilation=strides if layer.transposed else ones, rhs_dilation=(layer.dilation,) * layer.dimensions,
        dimension_numbers=numbers, feature_group_count=layer.groups)


def main():
    options = arguments(__doc__).parse_args()
    mesh = Mesh(numpy.array(jax.devices()[:2]), ("ranks",))
    random = numpy.random.default_rng(1)

    def integers(shape):  # small integers: sums are exact in any order
        return random.integers(-3, 4, shape).astype(numpy.float32)

    for layer in LAYERS:
        split = NamedSharding(mesh, PartitionSpec(*((None,) * (layer.dimensions - 1)), "ranks"))  # height: next to last
        whole = NamedSharding(mesh, PartitionSpec())
        function = convolution(layer)

        def both(x, w, dy):
            y, backward = jax.vjp(function, x, w)
            return (y, *backward(dy))

        x = integers((1,) + (layer.size,) * layer.dimensions + (layer.channels,))
        w = integers((layer.kernel,) * layer.dimensions + (layer.channels // layer.groups, layer.filters))
        dy = integers(jax.eval_shape(function, x, w).shape)
        expected = jax.jit(both)(x, w, dy)
        step = jax.jit(both, in_shardings=(split, whole, split), out_shardings=(split, split, whole))
        operands = jax.device_put(x, split), jax.device_put(w, whole), jax.device_put(dy, split)
        for ours, theirs in zip(step(*operands), expected):
            numpy.testing.assert_array_equal(ours, theirs)
        time = best_milliseconds(lambda: jax.block_until_ready(step(*operands)), options)
        print(layer.name, f"{time:.3f}", flush=True)


if __name__ == "__main__":
    main()
