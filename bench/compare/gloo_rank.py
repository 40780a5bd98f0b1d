"""A rank of PyTorch over gloo, for the scripts beside this file."""
import os

import torch
import torch.distributed as dist


def join(rank, ranks, meeting):
    """Makes this process rank `rank` of `ranks`: on a core of its own, with one thread. `meeting`: a file's path."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
