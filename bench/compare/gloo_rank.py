"""Ranks of PyTorch over gloo, for the scripts beside this file."""
import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def run(work, options, threads=1):
    """Calls work(rank, options, meeting, results) in options.ranks processes of so many threads, and prints as JSON
    the object that one of them puts into `results`. `meeting`: for join()."""
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("spawn")
        results = context.SimpleQueue()
        multiprocessing.spawn(work, (options, os.path.join(folder, "meeting"), results), nprocs=options.ranks)
        print(json.dumps(results.get()))


def join(rank, ranks, meeting):
    """Makes this process rank `rank` of `ranks`: on a core of its own, with one thread. `meeting`: a file's path."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
