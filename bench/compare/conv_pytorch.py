#!/usr/bin/env python3
"""Times forward and backward of the layers of bench_conv in PyTorch: float, channels last.

  conv_pytorch.py [--threads 2]     one process
  conv_pytorch.py --ranks 2         DTensor over gloo, one thread per process, each process on its own core

Prints one line per layer: its name and the milliseconds of the fastest step. With --ranks DTensor splits the input by
its last dimension, because its convolution splits no other. The layers are square, so this equals a split by height.
Filters are replicated and their gradients are summed. If DTensor refuses a layer or its result is wrong, the line has
the reason instead of a time.
"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn import functional

import gloo_rank
from conv_layers import LAYERS, arguments, best_milliseconds


def convolution(layer):
    settings = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}
    function = getattr(functional, f"conv{'_transpose' if layer.transposed else ''}{layer.dimensions}d")
    return lambda x, w: function(x, w, **settings)


def operands(layer):
    torch.manual_seed(1)
    order = torch.channels_last if layer.dimensions == 2 else torch.channels_last_3d
    outer = (layer.channels, layer.filters) if layer.transposed else (layer.filters, layer.channels // layer.groups)
    # Small integers: sums are exact in any order.
    x = torch.randint(-3, 4, (1, layer.channels) + (layer.size,) * layer.dimensions).float().to(memory_format=order)
    w = torch.randint(-3, 4, outer + (layer.kernel,) * layer.dimensions).float().to(memory_format=order)
    with torch.no_grad():
        dy = torch.randint_like(convolution(layer)(x, w), -3, 4).to(memory_format=order)
    return x, w, dy


def step(layer, x, w, dy):
    x.grad = w.grad = None
    y = convolution(layer)(x, w)
    y.backward(dy)
    return y


def one_process(options):
    torch.set_num_threads(options.threads)
    for layer in LAYERS:
        x, w, dy = operands(layer)
        x.requires_grad_(), w.requires_grad_()
        print(layer.name, f"{best_milliseconds(lambda: step(layer, x, w, dy), options):.3f}", flush=True)


def split(rank, options, meeting):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    ranks = options.ranks
    gloo_rank.join(rank, ranks, meeting)
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in LAYERS:
        plain = operands(layer)
        last = layer.dimensions + 1
        reason, time = None, None
        try:
            x = distribute_tensor(plain[0], mesh, [Shard(last)]).requires_grad_()
            w = distribute_tensor(plain[1], mesh, [Replicate()]).requires_grad_()
            dy = plain[2].chunk(ranks, last)[rank].clone()

            def whole_step():
                x.grad = w.grad = None
                # DTensor of PyTorch 2.15 labels its block of y as a replica of the whole; the placement corrects that.
                y = convolution(layer)(x, w).to_local(grad_placements=[Shard(last)])
                y.backward(dy)
                gradient = w.grad.to_local()
                dist.all_reduce(gradient)
                return y, gradient

            y, gradient = whole_step()
            if x.grad is None:
                raise RuntimeError("gives no gradient of the input")
            check_x, check_w = plain[0].clone().requires_grad_(), plain[1].clone().requires_grad_()
            expected = step(layer, check_x, check_w, plain[2])
            for what, ours, theirs in (("y", y, expected.chunk(ranks, last)[rank]),
                                       ("dx", x.grad.to_local(), check_x.grad.chunk(ranks, last)[rank]),
                                       ("dw", gradient, check_w.grad)):
                if reason is None and not torch.equal(ours, theirs):
                    reason = f"wrong {what}"
        except Exception as error:  # DTensor raises several types
            reason = "refused: " + (str(error).strip().splitlines() or [type(error).__name__])[0]
        reasons = [None] * ranks
        dist.all_gather_object(reasons, reason)
        reason = next((r for r in reasons if r is not None), None)
        if reason is None:
            time = best_milliseconds(whole_step, options)
        if rank == 0:
            print(layer.name, f"{time:.3f}" if reason is None else reason, flush=True)
    # Destroying the process group sometimes aborts in Gloo's threads: all processes exit together, without it.
    dist.barrier()
    os._exit(0)


def main():
    parser = arguments(__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    if options.ranks == 1:
        return one_process(options)
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(split, args=(options, os.path.join(folder, "meeting")), nprocs=options.ranks)


if __name__ == "__main__":
    main()
