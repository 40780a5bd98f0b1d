#!/usr/bin/env python3
"""Times one training step of LeNet-5 in PyTorch: DistributedDataParallel over gloo, float, channels last.

  lenet5_pytorch.py --batch 64 [--ranks 2] [--steps 200]

One thread per process, each process on its own core. SGD with momentum; the synthetic input is in memory. Prints one
line of JSON with the median over steps of rank 0.
"""
import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn

import gloo_rank


def lenet5():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


def work(rank, options, meeting, results):
    gloo_rank.join(rank, options.ranks, meeting)
    torch.manual_seed(1)
    samples = options.batch // options.ranks
    images = torch.randn(samples, 1, 28, 28).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (samples,))
    network = nn.parallel.DistributedDataParallel(lenet5().to(memory_format=torch.channels_last))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss = criterion(network(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()  # waits for the result, as a training loop that prints its loss does

    for _ in range(options.warmup):
        step()
    seconds = []
    for _ in range(options.steps):
        dist.barrier()
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        results.put({"framework": "PyTorch " + torch.__version__, "ranks": options.ranks, "batch": options.batch,
                     "step_seconds": statistics.median(seconds)})
    # Destroying the process group sometimes aborts in Gloo's threads: all processes exit together, without it.
    dist.barrier()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64, help="samples per step over all ranks")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=20)
    options = parser.parse_args()
    if options.batch % options.ranks:
        parser.error("--batch must be a multiple of --ranks")
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        results = context.SimpleQueue()
        multiprocessing.spawn(work, (options, os.path.join(folder, "meeting"), results), nprocs=options.ranks)
        print(json.dumps(results.get()))


if __name__ == "__main__":
    main()
