#!/usr/bin/env python3
"""Times one training step of a network in PyTorch: float, channels last, SGD with momentum.

  steps_pytorch.py --model resnet18 --input 32x32x3 --batch 64 [--ranks 1] [--steps 10]

One rank: one process with two threads. More ranks: DistributedDataParallel over gloo, one thread per process, each
process on its own core. The synthetic input is in memory. Prints one line of JSON: the median over steps of rank 0,
and the sum over processes of their largest resident sets.
"""
import argparse
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

import gloo_rank
import zoo_pytorch


def work(rank, options, meeting, results):
    alone = options.ranks == 1
    if alone:
        torch.set_num_threads(options.threads)
    else:
        gloo_rank.join(rank, options.ranks, meeting)
    torch.manual_seed(1)
    network, loss, x, target = zoo_pytorch.make(options.model, options.batch // options.ranks, options.input)
    parameters = zoo_pytorch.parameters_of(network)
    if not alone:
        network = nn.parallel.DistributedDataParallel(network)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)

    def step():
        optimiser.zero_grad()
        value = loss(network(x), target)
        value.backward()
        optimiser.step()
        return value.item()  # waits for the result, as a training loop that prints its loss does

    for _ in range(options.warmup):
        step()
    seconds = []
    for _ in range(options.steps):
        if not alone:
            dist.barrier()
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    peak = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    if not alone:
        dist.all_reduce(peak)
    if rank == 0:
        results.put({"framework": "PyTorch " + torch.__version__, "ranks": options.ranks, "parameters": parameters,
                     "step_seconds": statistics.median(seconds), "peak_memory_bytes": peak.item()})
    # Destroying the process group sometimes aborts in Gloo's threads: all processes exit together, without it.
    if not alone:
        dist.barrier()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=zoo_pytorch.NAMES, default="lenet5")
    parser.add_argument("--input", default="28x28x1", help="extents of a sample: HxWxC or DxHxWxC")
    parser.add_argument("--batch", type=int, default=64, help="samples per step over all ranks")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2, help="of a single rank")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=20)
    options = parser.parse_args()
    options.input = [int(extent) for extent in options.input.split("x")]
    if options.batch % options.ranks:
        parser.error("--batch must be a multiple of --ranks")
    gloo_rank.run(work, options, 1 if options.ranks > 1 else options.threads)


if __name__ == "__main__":
    main()
