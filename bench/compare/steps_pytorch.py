#!/usr/bin/env python3
"""Times one training step of a network in PyTorch: channels last, SGD with momentum.

  steps_pytorch.py --model resnet18 --input 32x32x3 --batch 64 [--ranks 1] [--steps 10]
  steps_pytorch.py --model resnet50 --input 224x224x3 --batch 64 --ranks 1 --device cuda --compile

One rank: one process with two threads. More ranks: DistributedDataParallel over gloo, one thread per process, each
process on its own core. The synthetic input is in memory. Prints one line of JSON: the median over steps of rank 0,
and the sum over processes of their largest resident sets, or on a device the most memory that PyTorch held there.

float is float: TF32 is off. bfloat16 is autocast: parameters are float, as in aloni. A step on a device ends when the
device has finished it. Without PyTorch, or without the device, the exit status is 77.
"""
import argparse
import contextlib
import json
import os
import resource
import statistics
import sys
import time

try:
    import torch
    import torch.distributed as dist
    from torch import nn

    import gloo_rank
    import zoo_pytorch
except ImportError as error:
    print(f"no PyTorch: {error}")
    sys.exit(77)  # "not available" for scripts/gpu_acceptance.sh


def step_of(network, loss, x, target, precision=contextlib.nullcontext):
    """A training step as a function, which returns the loss. `precision`: makes the context of the forward pass."""
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)

    def step():
        optimiser.zero_grad()
        with precision():
            value = loss(network(x), target)
        value.backward()
        optimiser.step()
        return value.item()  # waits for the device, as a training loop that prints its loss does
    return step


def on_device(options):
    """One process on one CUDA device: returns the results."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    network, loss, x, target = zoo_pytorch.make(options.model, options.batch, options.input)
    parameters = zoo_pytorch.parameters_of(network)
    network, x, target = network.cuda(), x.cuda(), target.cuda()
    called = torch.compile(network) if options.compile else network
    step = step_of(called, loss, x, target,
                   lambda: torch.autocast("cuda", torch.bfloat16, enabled=options.precision == "bfloat16"))
    for _ in range(options.warmup):
        step()
    seconds = []
    for _ in range(options.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return {"framework": "PyTorch " + torch.__version__, "device": torch.cuda.get_device_name(), "ranks": 1,
            "compiled": options.compile, "precision": options.precision, "parameters": parameters,
            "step_seconds": statistics.median(seconds), "peak_memory_bytes": torch.cuda.max_memory_allocated()}


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
    step = step_of(network, loss, x, target)
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
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compile", action="store_true", help="torch.compile; on a device")
    parser.add_argument("--precision", choices=("float", "bfloat16"), default="float", help="bfloat16: on a device")
    parser.add_argument("--json", help="write the line to this file too; on a device")
    options = parser.parse_args()
    options.input = [int(extent) for extent in options.input.split("x")]
    if options.batch % options.ranks:
        parser.error("--batch must be a multiple of --ranks")
    if options.device == "cuda":
        if options.ranks != 1:
            parser.error("--device cuda times one process: give --ranks 1")
        if not torch.cuda.is_available():
            print("PyTorch finds no CUDA device")
            sys.exit(77)
        text = json.dumps(on_device(options))
        print(text)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                file.write(text + "\n")
        return
    if options.compile or options.precision != "float" or options.json:
        parser.error("--compile, --precision and --json need --device cuda")
    gloo_rank.run(work, options, 1 if options.ranks > 1 else options.threads)


if __name__ == "__main__":
    main()
