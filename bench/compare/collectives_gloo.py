#!/usr/bin/env python3
"""Times torch.distributed.all_reduce over gloo: float sums in place, one thread per process, each on its own core.

  collectives_gloo.py [--ranks 2] [--seconds 0.3] BYTES…

Prints one line of JSON. Per size it has the seconds of the slowest rank, as the median over batches.
"""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist

import gloo_rank

BATCHES = 10


def work(rank, options, meeting, results):
    gloo_rank.join(rank, options.ranks, meeting)

    def slowest(seconds):
        longest = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        return longest.item()

    def batch(data, repetitions):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(repetitions):
            dist.all_reduce(data)
        return slowest(time.perf_counter() - start) / repetitions

    times = {}
    for size in options.bytes:
        data = (torch.arange(size // 4) + rank).remainder(251).float()
        dist.all_reduce(data)
        expected = sum((torch.arange(size // 4) + r).remainder(251) for r in range(options.ranks)).float()
        assert torch.equal(data, expected), f"wrong sum of {size} bytes"
        data.zero_()  # repeated sums would overflow
        batch(data, 3)
        repetitions = max(1, int(options.seconds / BATCHES / batch(data, 3)))
        times[size] = statistics.median(batch(data, repetitions) for _ in range(BATCHES))
    if rank == 0:
        results.put({"library": f"PyTorch {torch.__version__}, gloo", "ranks": options.ranks, "seconds": times})
    # Destroying the process group sometimes aborts in Gloo's threads: all processes exit together, without it.
    dist.barrier()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bytes", type=int, nargs="+")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3, help="per size, sum over batches")
    options = parser.parse_args()
    if any(size < 4 or size % 4 for size in options.bytes):
        parser.error("BYTES must be multiples of 4, the size of a float")
    gloo_rank.run(work, options)


if __name__ == "__main__":
    main()
