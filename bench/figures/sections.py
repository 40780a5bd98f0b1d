"""What bench/report.py measures: one function per section, which runs its programs and enters its bars.

The first line of a function says how one figure comes from the turns; the documents quote it.
"""
import functools
import json
import os
import re
import shlex
import shutil
import tempfile
import time
from typing import Callable, NamedTuple

from figures import roofline
from figures.run import (BIN, MICRO, ONE_THREAD, Failed, clean_environment, fastest, median, over, pass_text, run_text,
                         times)

LAYERS = ("resnet_conv1", "res3b_branch2a", "mesh_conv1_1", "mesh_conv6_1", "c64_256", "c32_3d", "depthwise", "dilated",
          "transposed")
MEBI = 1 << 20
PASSES = ("forward", "backward_data", "backward_filter")
SIZES = tuple(1 << shift for shift in (3, 10, 14, 16, 18, 20, 22, 23, 25))  # bytes of an all-reduce
WIDTHS = (128, 256, 512, 1024, 2048)
LOCAL_LAYERS = {
    "lenet-conv1-n32": "LeNet-5 conv1, 32 samples",
    "lenet-conv2-n32": "LeNet-5 conv2, 32 samples",
    "lenet-conv1-n512": "LeNet-5 conv1, 512 samples",
    "lenet-conv2-n512": "LeNet-5 conv2, 512 samples",
    "image64-c64-f64": "64 to 64 channels, 3×3, 64×64",
    "volume24-c16-f16": "16 to 16 channels, 3×3×3, 24³",
}


class NetworkCase(NamedTuple):
    """One training step on two ranks."""
    model: str
    input: str
    batch: int
    steps: int
    splits: tuple
    at_least: float  # times as fast as PyTorch


AUTOMATIC = "automatic"
NETWORKS = {
    "LeNet-5, 64 samples": NetworkCase("lenet5", "28x28x1", 64, 300, ("n2",), 2),
    "LeNet-5, 1,024 samples": NetworkCase("lenet5", "28x28x1", 1024, 60, ("n2",), 2),
    "mesh 1K, 512²": NetworkCase("mesh1k", "512x512x18", 1, 6, ("h2", AUTOMATIC), 1.15),
    "ResNet-18, 32², 64 samples": NetworkCase("resnet18", "32x32x3", 64, 6, ("n2", "c2", AUTOMATIC), 0.95),
    "U-Net, 256²": NetworkCase("unet2d", "256x256x1", 1, 6, ("h2", "c2", AUTOMATIC), 1.15),
    "3-D U-Net, 64³": NetworkCase("unet3d", "64x64x64x1", 1, 4, ("d2", AUTOMATIC), 1.15),
    "DenseNet-121, 32², 64 samples": NetworkCase("densenet121", "32x32x3", 64, 5, ("n2", "c2", AUTOMATIC), 1.3),
}


def size_text(size):
    if size >= 1 << 20:
        return f"{size >> 20} MiB"
    return f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} bytes"


def training(run):
    """The median over turns: of aloni train and PyTorch the median step, of bench_train_step the mean."""

    def ours(batch, steps):
        result = run.train("--batch", batch, "--steps", steps, "--strategy", "n2", "--shift", "0", pinned=True)
        return {f"ours/{batch}": result["step_seconds"]}

    def pytorch(batch, steps):
        output = run.peer("PyTorch", "steps_pytorch.py", "--ranks", 2, "--batch", batch, "--steps", steps)
        return {f"PyTorch/{batch}": json.loads(output)["step_seconds"]}

    def demo():
        start = time.monotonic()
        result = run.train("--epochs", 5, "--batch", 64, "--strategy", "h2")
        shares = result["time"]
        values = {f"demo/{name}": 100 * part / sum(shares.values()) for name, part in shares.items()}
        values["demo/seconds"] = time.monotonic() - start
        values["demo/accuracy"] = 100 * result["epochs"][-1]["test_accuracy"]
        return values

    steps = {64: 50, 1024: 10} if run.options.quick else {64: 500, 1024: 100}
    cases = "^train_step/lenet5/float/"
    values = run.in_turns(lambda: ours(64, steps[64]), lambda: pytorch(64, steps[64]), lambda: ours(1024, steps[1024]),
                          lambda: pytorch(1024, steps[1024]),
                          lambda: run.suite("bench_train_step", cases, min_time=1), demo)
    for batch in steps:
        run.bar(f"n2-b{batch}", f"step of {batch:,} samples, two ranks by sample", median(values, f"ours/{batch}"),
                median(values, f"PyTorch/{batch}"), "PyTorch", at_most=1, command=f"bench/compare/lenet5.sh {batch}")
    for batch in steps:
        for split, text in (("n2", "sample"), ("h2", "height")):
            name = f"train_step/lenet5/float/%s-b{batch}"
            run.bar(f"cost-{split}-b{batch}", f"cost of the split by {text}, {batch:,} samples",
                    median(values, name % split), median(values, name % "alone"), "without messages",
                    command=run_text("bench_train_step", cases))
    for split, text in (("n2", "sample"), ("h2", "height")):
        run.bar(f"times-{split}-b64", f"step with times of all nodes, two ranks by {text}, 64 samples",
                median(values, f"train_step/lenet5/float/timed-{split}-b64"),
                median(values, f"train_step/lenet5/float/{split}-b64"), "without times", at_most=1.02,
                command=run_text("bench_train_step", cases))
    run.bar("demo-accuracy", "digits, two ranks by height: test accuracy after 5 epochs",
            median(values, "demo/accuracy"), unit="%", at_least=97, command="scripts/demo.sh")
    run.bar("demo-seconds", "the demo after set-up and compilation", median(values, "demo/seconds"), at_most=180,
            command="scripts/demo.sh")
    for name in ("compute", "halo", "collective", "input"):
        run.bar(f"demo-{name}", f"share of a step of the demo: {name}", median(values, f"demo/{name}"), unit="%",
                command="scripts/demo.sh")


def networks(run):
    """The faster of our splits against the faster of PyTorch's two ways; the median over turns of median steps."""
    with tempfile.TemporaryDirectory() as folder:
        measure_networks(run, folder)


def measure_networks(run, folder):
    """`folder`: for the machine file and the automatic strategies."""

    def arguments(case):
        return ["--model", case.model, "--input", case.input, "--batch", case.batch]

    def strategy_of(name, case):
        """The automatic strategy, in a file."""
        file = f"{folder}/{name}"
        if not os.path.exists(file):
            run.program([BIN + "aloni", "plan", *map(str, arguments(case)), "--ranks", "2", "--machine",
                         run.quick_machine(folder), "--strategy", "auto", "--export-strategy", file])
        return file

    def ours(name, case, split):
        if split == AUTOMATIC:
            split = strategy_of(name, case)
            return {key.replace(split, AUTOMATIC): value for key, value in ours(name, case, split).items()}
        result = run.train("--input", case.input, "--batch", case.batch, "--steps", case.steps + 2, "--strategy", split,
                           model=case.model, data="synthetic", pinned=True)
        return {f"ours/{name}/{split}": result["step_seconds"],
                f"memory/{name}/{split}": result["memory_of_all_ranks_bytes"] / MEBI}

    def pytorch(name, case, ranks):
        output = run.peer("PyTorch", "steps_pytorch.py", *arguments(case), "--ranks", ranks, "--steps", case.steps,
                          "--warmup", 2)
        result = json.loads(output)
        return {f"PyTorch/{name}/{ranks}": result["step_seconds"],
                f"PyTorch memory/{name}/{ranks}": result["peak_memory_bytes"] / MEBI}

    measurements = []
    for name, case in NETWORKS.items():
        measurements += [functools.partial(ours, name, case, split) for split in case.splits]
        measurements += [functools.partial(pytorch, name, case, ranks) for ranks in (1, 2) if case.batch % ranks == 0]
    values = run.in_turns(*measurements)

    def least(prefix):
        """The least median, and its case."""
        medians = {key.removeprefix(prefix): median(values, key) for key in values if key.startswith(prefix)}
        return min(((value, key) for key, value in medians.items()), default=(None, ""))

    for name, case in NETWORKS.items():
        (time, split), (peer, ranks) = least(f"ours/{name}/"), least(f"PyTorch/{name}/")
        command = f"bench/compare/steps_pytorch.py {shlex.join(map(str, arguments(case)))} --ranks {ranks}"
        run.bar(f"{name}-step", f"{name}: step, split {split}", time, peer, "PyTorch", at_least=case.at_least,
                command=command)
        memory, of_peer = median(values, f"memory/{name}/{split}"), median(values, f"PyTorch memory/{name}/{ranks}")
        run.bar(f"{name}-memory", f"{name}: memory", memory, of_peer, "PyTorch", unit="MiB", at_most=0.7,
                command=command)


def steps_and_limits(run):
    """The median over turns: of a trace the mean over ranks of medians over its steps, of a limit the fastest."""
    roofline.measure(run, NETWORKS)


def threads(run):
    """Steps: the median over turns of means. Layers: the fastest batch of all turns."""
    steps, layers = "^train_step/lenet5/float/(1|n2)-b", "^overlap/{}/interior_first/"

    def step(ranks):
        return lambda: run.suite("bench_train_step", steps, ranks=ranks, threads=None, min_time=1)

    def layer(name, ranks):
        values = run.suite("bench_conv", layers.format(name), ranks=ranks, threads=None, min_time=0.5, fastest=True)
        return {f"{name}/{ranks}": values[f"overlap/{name}/interior_first"]}

    values = run.in_turns(step(1), step(2),
                          *(functools.partial(layer, name, ranks) for name in LAYERS for ranks in (1, 2)))
    without = "scripts/mpirun -n {} " + BIN
    for batch in (64, 1024):
        name = f"train_step/lenet5/float/%s-b{batch}"
        run.bar(f"step-b{batch}", f"LeNet-5, step of {batch:,} samples", median(values, name % 1),
                median(values, name % "n2"), "two ranks", at_most=1.10,
                command=f"{without.format('1|2')}bench_train_step --benchmark_filter='{steps}'")
    for name in LAYERS:
        run.bar(f"layer-{name}", f"{name}, forward and backward", fastest(values, f"{name}/1"),
                fastest(values, f"{name}/2"), "two ranks", at_most=1.10,
                command=f"{without.format('1|2')}bench_conv --benchmark_filter='{layers.format(name)}'")


def all_reduce(run):
    """The median over turns of means; of gloo the median over its batches."""
    sizes = "|".join(map(str, SIZES))
    cases = f"^allreduce/(shared|private|mpi)/({sizes})/"
    others = "^(allreduce/private/67108864|message/shared/8|message/(mpi|ucx)/(8|1048576)|many/.*|urgent/.*)/"
    check = "^contract/"

    def gloo():
        output = run.peer("PyTorch", "collectives_gloo.py", "--ranks", 2, "--seconds", run.seconds(0.1), *SIZES)
        return {f"gloo/{size}": value for size, value in json.loads(output)["seconds"].items()}

    def contract_check():
        """Seconds of an all-reduce of two ranks simulated in one process, and of its comparisons of contracts."""
        values = run.suite("bench_collectives", check, min_time=0.2, pinned=True)
        return {name: seconds / 1000 if name.startswith("contract/comparisons/") else seconds
                for name, seconds in values.items()}

    def late():
        return run.suite("bench_collectives", "^skewed/", ranks=4, extra=["--time_oversubscribed"], min_time=1)

    values = run.in_turns(
        lambda: run.suite("bench_collectives", cases, min_time=0.1, pinned=True), gloo,
        lambda: run.suite("bench_collectives", others, min_time=0.2, pinned=True),
        contract_check, late)
    of = functools.partial(median, values)
    for size in SIZES:
        for memory in ("shared", "private"):
            if memory == "shared":
                least = 1 if size < 65536 else 6 if size >= 32 << 20 else 4
            else:
                least = None if size < 65536 else 2 if size >= 1 << 20 else 1
            run.bar(f"{size}/{memory}/Open MPI", f"{size_text(size)}, {memory} memory",
                    of(f"allreduce/{memory}/{size}"), of(f"allreduce/mpi/{size}"), "Open MPI", at_least=least,
                    speed=True, command=run_text("bench_collectives", cases))
            run.bar(f"{size}/{memory}/gloo", f"{size_text(size)}, {memory} memory", of(f"allreduce/{memory}/{size}"),
                    of(f"gloo/{size}"), "gloo", at_least=4, command="bench/compare/collectives.sh")
    command = run_text("bench_collectives", others)
    run.bar("8-byte", "all-reduce of 8 bytes against a message one way", of("allreduce/shared/8"),
            of("message/shared/8"), "message", at_most=2.5, command=command)
    run.bar("fused", "64 all-reduces of 4 KiB, pieces of one array: fused", of("many/fused/4096"),
            of("many/single/4096"), "one by one", at_least=4, command=command)
    run.bar("scattered", "64 all-reduces of 4 KiB, tensors anywhere: fused", of("many/scattered/4096"),
            of("many/single/4096"), "one by one", speed=True, command=command)
    part = over(of("allreduce/private/67108864"), 128)  # its parts have 512 KiB
    alone = of("urgent/alone/4096")
    run.bar("urgent", "4 KiB of higher priority behind 64 MiB", of("urgent/behind/4096"),
            None if part is None or alone is None else part + alone, "a part and itself", at_most=1, command=command)
    for size in (8, 4096):
        whole, comparisons = of(f"contract/all_reduce/{size}"), of("contract/comparisons/1000")
        without = None if whole is None or comparisons is None else whole - comparisons
        run.bar(f"contract/{size}", f"cost of the contract check, {size_text(size)}, without network", whole, without,
                "without the check", at_most=1.02, command=run_text("bench_collectives", check))
    run.bar("skewed", "four ranks, one of them 5 ms late, 1 MiB: majority", of("skewed/majority/1048576"),
            of("skewed/all/1048576"), "waiting for all", at_least=1,
            command=run_text("bench_collectives", "^skewed/", 4) + " --time_oversubscribed")
    for size in (8, 1 << 20):
        run.bar(f"ucx/{size}", f"message of {size_text(size)} through UCX", of(f"message/ucx/{size}"),
                of(f"message/mpi/{size}"), "through MPI", speed=True, command=command)


def halo(run):
    """The median over turns of means."""
    cases = "^(exchange|memcpy)/(lenet-conv2|image512-c64|volume64-c16)/.*(h2|w2|d2)/"
    moves = "^redistribution/lenet-conv2/"
    values = run.in_turns(lambda: run.suite("bench_exchange", cases), lambda: run.suite("bench_exchange", moves))
    of = functools.partial(median, values)
    command = run_text("bench_exchange", cases)
    for name, split, text in (("lenet-conv2", "h2", "LeNet-5 conv2 input by height, 84 KiB"),
                              ("image512-c64", "h2", "512²×64 by height, contiguous, 514 KiB"),
                              ("image512-c64", "w2", "512²×64 by width, strided, 514 KiB"),
                              ("volume64-c16", "d2", "64³×16 by depth, 1.06 MiB")):
        for direction in ("forward", "adjoint"):
            run.bar(f"{name}/{split}/{direction}", f"{text}, {direction}",
                    of(f"exchange/{name}/{direction}/{split}"), of(f"memcpy/{name}/{split}"), "memcpy", command=command)
    for move in ("h2-n2", "n2-h2"):
        run.bar(f"redistribution/{move}",
                f"redistribution of LeNet-5 conv2 input, 147 KiB, {move.replace('-', ' to ')}",
                of(f"redistribution/lenet-conv2/forward/{move}"), command=run_text("bench_exchange", moves))


def stencil(run):
    """The median over turns of means; of the application the best step of all turns."""
    faces = "face-(depth|height|width|depth-64k)/(shared|mpi)"
    cases = f"^(halo/({faces}|(face-depth-radius3|all|all-scalar|fused|per-field)/shared)|memcpy/.*)/"
    deep = "^heat/64/"
    size, steps = ("128", "1") if run.options.quick else ("256", "3")
    measure = f"--grid d2 --size {size} --steps {steps} --measure"
    scale = f"--size 128 --steps {steps} --scaling"

    def output_of(options):
        command = ["scripts/mpirun", "-n", "2", BIN + "stencil", *options.split()]
        return run.program(command, clean_environment() | ONE_THREAD)

    def application():
        """Lines have a name, the median and the best of all steps, in ms."""
        row = r"^(step with|computation alone, at|exchanges alone).* ([\d.]+) *$"
        rows = re.findall(row, output_of(measure), re.MULTILINE)
        return {f"stencil/{name}": 1e-3 * float(best) for name, best in rows}

    def scaling():
        """Lines have ranks, split, weak (ms), efficiency, %, strong (ms), speed-up, checksum."""
        values = {}
        for words in map(str.split, output_of(scale).splitlines()):
            if len(words) == 8 and words[0] in ("1", "2"):
                values[f"scaling/weak/{words[0]}"] = 1e-3 * float(words[2])
                values[f"scaling/strong/{words[0]}"] = 1e-3 * float(words[5])
        return values

    values = run.in_turns(lambda: run.suite("bench_halo", cases), lambda: run.suite("bench_deep_halo", deep),
                          application, scaling)
    of = functools.partial(median, values)
    command = run_text("bench_halo", cases)
    for case, text in (("face-depth", "contiguous faces of 1 MiB"),
                       ("face-depth-radius3", "contiguous faces of 3 MiB")):
        run.bar(case, text, of(f"halo/{case}/shared"), of(f"memcpy/{case}"), "memcpy", at_most=1.3, command=command)
    run.bar("all", "all 26 neighbours, periodic, 8 doubles per cell", of("halo/all/shared"), of("memcpy/all"), "memcpy",
            at_most=3, command=command)
    run.bar("all-scalar", "all 26 neighbours, periodic, one double per cell", of("halo/all-scalar/shared"),
            of("memcpy/all-scalar"), "memcpy", command=command)
    for direction in ("width", "height"):
        run.bar(f"slowest-{direction}", f"faces by {direction} against contiguous ones",
                of(f"halo/face-{direction}/shared"), of("halo/face-depth/shared"), "by depth", at_most=6,
                command=command)
    run.bar("fused", "8 Views in one exchange", of("halo/fused/shared"), of("halo/per-field/shared"), "one by one",
            at_most=1.05, command=command)
    for case, text in (("face-depth-64k", "64 KiB"), ("face-depth", "1 MiB by depth"),
                       ("face-height", "1 MiB by height"), ("face-width", "1 MiB by width")):
        run.bar(f"mpi-{case}", f"shared memory against messages of MPI, faces of {text}", of(f"halo/{case}/shared"),
                of(f"halo/{case}/mpi"), "MPI", at_least=1.5, command=command)
    command = f"OMP_NUM_THREADS=1 OMP_PROC_BIND=false scripts/mpirun -n 2 {BIN}stencil "
    run.bar("overlap", f"application, {size}³ × 8 doubles: step with exchanges", fastest(values, "stencil/step with"),
            fastest(values, "stencil/computation alone, at"), "computing alone", at_most=1.05,
            command=command + measure)
    run.bar("exchanges", "application: its three exchanges alone", fastest(values, "stencil/exchanges alone"),
            command=command + measure)
    for kind, text in (("weak", "128³ cells per rank"), ("strong", "128³ cells")):
        run.bar(f"scaling-{kind}", f"application, {text}: two ranks against one", fastest(values, f"scaling/{kind}/2"),
                fastest(values, f"scaling/{kind}/1"), "one rank", speed=kind == "strong", command=command + scale)
    for transport in ("shared", "mpi"):
        for every in (2, 4, 8):
            run.bar(f"deep/{transport}/{every}",
                    f"deep halo, 8 steps of 64² cells, {transport}: exchange in {every} steps",
                    of(f"heat/64/every{every}/{transport}"), of(f"heat/64/every1/{transport}"), "every step",
                    speed=True, command=run_text("bench_deep_halo", deep))


def placement(run):
    """The median over turns of processor time."""
    tests = "Placement.Places1024Ranks*:Placement.SendsLessThanHalfOverTheLink*"

    def measure():
        output = run.program([BIN + "test_halo_pure", f"--gtest_filter={tests}"], clean_environment() | ONE_THREAD)
        values = {"seconds": float(seconds) for seconds in re.findall(r"; ([\d.e+-]+) s$", output, re.MULTILINE)}
        for name, placed, trivial in re.findall(r"^(\w+): (\d+)\D+(\d+) bytes", output, re.MULTILINE):
            values |= {f"{name}/placed": float(placed), f"{name}/trivial": float(trivial)}
        return values

    values = run.in_turns(measure)
    command = f"{BIN}test_halo_pure --gtest_filter='{tests}'"
    run.bar("1024-ranks", "1,024 ranks on 128 nodes, dealt round-robin, periodic", median(values, "seconds"), at_most=2,
            command=command)
    for name, text in (("zero", "open ends"), ("periodic", "periodic")):
        run.bar(f"two-hosts-{name}", f"bytes over the link of two hosts, {text}", median(values, f"{name}/placed"),
                median(values, f"{name}/trivial"), "order of ranks", unit="bytes", at_most=0.5, command=command)


def convolution(run):
    """The fastest batch of all turns."""
    cases, chain = "^(limit/{0}/|conv/{0}/[a-z_]+/[hwcf]2/)", "^chain/"
    filters = [cases.format(name) for name in LAYERS] + [chain]
    values = run.in_turns(*(functools.partial(run.suite, "bench_conv", one, fastest=True) for one in filters))
    of = functools.partial(fastest, values)
    for name in LAYERS:
        for one in PASSES:
            limit = of(f"limit/{name}/{one}")
            for split, text in (("h2", "height"), ("w2", "width"), ("c2", "channels"), ("f2", "filters")):
                least = {"h2": 0.95 if limit is None or limit > 1e-3 else 0.80, "w2": 0.88}.get(split, 0.80)
                run.bar(f"{name}/{one}/{split}", f"{name}, {pass_text(one)}, by {text}",
                        of(f"conv/{name}/{one}/{split}"), limit, "oneDNN", at_least=least,
                        command=run_text("bench_conv", cases.format(name)))
    for other, text in (("interior_first", "interior first"), ("blocking", "blocking")):
        run.bar(f"chain/{other}", "eight thin layers, one wide exchange for all of them",
                of("chain/recompute_halo"), of(f"chain/{other}"), text, speed=True,
                command=run_text("bench_conv", chain))


def frameworks(run):
    """The fastest batch of all turns; of PyTorch and JAX the fastest step of all turns."""
    cases = "^overlap/{}/interior_first/"
    repetitions, warm_up = (1, 1) if run.options.quick else (10, 2)

    def lines(name, *arguments):
        output = run.peer(name, *arguments, "--repetitions", repetitions, "--warm_up", warm_up)
        return {f"{name}/{layer}": 1e-3 * float(value) for layer, value in map(str.split, output.splitlines())}

    values = run.in_turns(
        *(functools.partial(run.suite, "bench_conv", cases.format(name), min_time=1, fastest=True) for name in LAYERS),
        lambda: lines("PyTorch", "conv_pytorch.py", "--threads", 2), lambda: lines("JAX", "conv_jax.py"))
    for peer, least in (("PyTorch", 0.97), ("JAX", 1.5)):
        for name in LAYERS:
            ours = fastest(values, f"overlap/{name}/interior_first")
            run.bar(f"{name}/{peer}", f"{name}, forward and backward", ours, fastest(values, f"{peer}/{name}"), peer,
                    at_least=least,
                    command="bench/compare/conv.sh; " + run_text("bench_conv", cases.format(name)))


def local_kernels(run):
    """The fastest batch of all turns."""
    backends = ("automatic", "direct", "onednn", "kokkos_kernels")
    cases = f"^local_conv/({'|'.join(LOCAL_LAYERS)})/[a-z_]+/({'|'.join(backends)})/"
    large = ("^(gemm/image256-c64-f64|local_conv/(image256-c64-f64/[a-z_]+/(kokkos_kernels|automatic|bfloat16)"
             "|image64-(c64-f64|c32-f32|c3-f16)/[a-z_]+/(automatic|bfloat16)))/")
    values = run.in_turns(lambda: run.suite("bench_local_conv", cases, fastest=True, min_time=0.2),
                          lambda: run.suite("bench_local_conv", large, fastest=True, min_time=0.3))

    def rate(case):
        """GFLOP/s."""
        return over(median(values, case + ":work"), times(fastest(values, case), 1e9))

    for name, text in LOCAL_LAYERS.items():
        for one in PASSES:
            rates = {backend: rate(f"local_conv/{name}/{one}/{backend}") for backend in backends[1:]}
            best = max((backend for backend in rates if rates[backend] is not None), key=rates.get, default="others")
            run.bar(f"{name}/{one}", f"{text}, {pass_text(one)}", rate(f"local_conv/{name}/{one}/automatic"),
                    rates.get(best), best, unit="GFLOP/s", speed=True, command=run_text("bench_local_conv", cases))
    command = run_text("bench_local_conv", large)
    for one in PASSES:
        case = f"local_conv/image256-c64-f64/{one}/kokkos_kernels"
        run.bar(f"gemm/{one}", f"Kokkos Kernels, 64 to 64 channels, 3×3, 256², {pass_text(one)}", rate(case),
                rate("gemm/image256-c64-f64"), "GEMM", unit="GFLOP/s", at_least=0.7, command=command)
    for one in PASSES:
        space = over(median(values, f"local_conv/image256-c64-f64/{one}/kokkos_kernels:workspace_bytes"), 1 << 20)
        run.bar(f"workspace/{one}", f"its workspace per rank, {pass_text(one)}", space, unit="MiB", at_most=32,
                command=command)
    for name, text in (("image256-c64-f64", "C64 256²"), ("image64-c64-f64", "C64 64²"), ("image64-c32-f32", "C32 64²"),
                       ("image64-c3-f16", "C3 64²")):
        for one in PASSES:
            run.bar(f"bfloat16/{name}/{one}", f"bfloat16, {text}, {pass_text(one)}",
                    rate(f"local_conv/{name}/{one}/bfloat16"), rate(f"local_conv/{name}/{one}/automatic"), "float",
                    unit="GFLOP/s", speed=True, command=command)


def sizes(run):
    """The fastest batch."""
    widths = WIDTHS[:2] if run.options.quick else WIDTHS
    cases = "^size/{}/(" + "|".join(map(str, widths)) + ")/"
    values = run.in_turns(*(functools.partial(run.suite, "bench_conv", cases.format(one), min_time=0.5, fastest=True,
                                              limit=900) for one in PASSES))
    for one in PASSES:
        command = run_text("bench_conv", cases.format(one))
        per_pixel = [over(fastest(values, f"size/{one}/{width}"), width * width) for width in widths]
        memory = [median(values, f"size/{one}/{width}:extra_memory") for width in widths]
        for width, pixel in zip(widths, per_pixel):
            run.bar(f"{one}/{width}", f"{pass_text(one)}, {width:,}²: time per output pixel", pixel, command=command)
        spread = extra = None
        if None not in per_pixel + memory:
            spread = 100 * (max(per_pixel) - min(per_pixel)) / (max(per_pixel) + min(per_pixel))
            extra = 100 * max(memory)
        run.bar(f"{one}/spread", f"{pass_text(one)}: largest deviation from the middle of these", spread, unit="%",
                at_most=15, command=command)
        run.bar(f"{one}/memory", f"{pass_text(one)}: extra memory, share of activations and gradients", extra, unit="%",
                at_most=10, command=command)


def check_shaped_hosts():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        raise Failed("two shaped hosts need root, ip and tc (bench/two_hosts.sh)")


def on_shaped_link(run, suite, cases, place="slot", **options):
    """A measurement between two hosts that a link of 1 Gbit/s joins."""
    def measure():
        check_shaped_hosts()
        run.program(["bench/two_hosts.sh", "up", "1gbit"])
        try:
            values = run.suite(suite, cases, hosts=place, extra=["--time_oversubscribed"], **options)
        finally:
            run.program(["bench/two_hosts.sh", "down"])
        return {f"{place}/{name}": value for name, value in values.items()}
    return measure


def two_hosts(run):
    """The median over turns of means; four ranks share two cores."""
    link = 1e9 / 8  # bytes per second
    on_link = functools.partial(on_shaped_link, run)

    reduce_sizes = (1 << 20, 8 << 20) + (() if run.options.quick else (64 << 20,))
    reduces = f"^allreduce/(mpi|hierarchical)/({'|'.join(map(str, reduce_sizes))})/"
    faces = "^halo/(face-depth|all-scalar|all)/(consolidated|separate)/"
    deep, chain = "^heat/64/.*/shared/", "^chain/"

    def overlap():
        check_shaped_hosts()
        output = run.program(["bench/overlap.sh"], limit=900)
        rows = re.findall(r"^(\w+) +(\d+) us", output, re.MULTILINE)
        return {f"slot/overlap/{name}": MICRO * float(value) for name, value in rows}

    values = run.in_turns(on_link("bench_collectives", reduces, min_time=1),
                          on_link("bench_collectives", reduces, "node", min_time=1),
                          on_link("bench_halo", faces, min_time=0.5), on_link("bench_deep_halo", deep, ranks=1),
                          on_link("bench_conv", chain, ranks=1), overlap)

    def of(name, place="slot"):
        return median(values, f"{place}/{name}")

    def command(suite, cases, ranks=2, place=""):
        return f"{place}bench/two_hosts.sh run {ranks} {BIN}{suite} --time_oversubscribed --benchmark_filter='{cases}'"

    for place, text in (("slot", "ranks in order"), ("node", "round-robin")):
        for size in reduce_sizes:
            run.bar(f"all-reduce/{place}/{size}", f"hierarchical all-reduce of {size_text(size)}, {text}",
                    of(f"allreduce/hierarchical/{size}", place), of(f"allreduce/mpi/{size}", place), "Open MPI",
                    at_least=1.5, command=command("bench_collectives", reduces, place=f"PLACE={place} "))
    for size in reduce_sizes:
        run.bar(f"all-reduce-bytes/{size}", f"its bytes over the link, both ways, {size_text(size)}",
                of(f"allreduce/hierarchical/{size}:link_bytes"), 2.0 * size, "least possible", unit="bytes",
                at_most=1.01, command=command("bench_collectives", reduces))
    for case, text in (("face-depth", "faces of 1 MiB"), ("all-scalar", "all neighbours, one double"),
                       ("all", "all neighbours, 8 doubles")):
        for way in ("consolidated", "separate"):
            name = f"halo/{case}/{way}"
            run.bar(f"halo/{case}/{way}", f"{text}, {way} messages", of(name), over(of(name + ":node_bytes"), 2 * link),
                    "the link", at_most=1.15 if way == "consolidated" else None, command=command("bench_halo", faces))
        run.bar(f"halo-messages/{case}", f"{text}: messages per direction, consolidated",
                over(of(f"halo/{case}/consolidated:node_messages"), 2), unit="messages", at_most=1,
                command=command("bench_halo", faces))
    for every in (2, 4, 8):
        run.bar(f"deep/{every}", f"deep halo, 8 steps of 64² cells: exchange in {every} steps",
                of(f"heat/64/every{every}/shared"), of("heat/64/every1/shared"), "every step", speed=True,
                command=command("bench_deep_halo", deep, 1))
    for other, text in (("interior_first", "interior first"), ("blocking", "blocking")):
        run.bar(f"chain/{other}", "eight thin layers, one wide exchange for all of them", of("chain/recompute_halo"),
                of(f"chain/{other}"), text, speed=True, command=command("bench_conv", chain, 1))
    longer = max(filter(None, (of("overlap/computation"), of("overlap/communication"))), default=None)
    for way, text, most in (("interior_first", "interior in slabs", 1.3), ("progress_thread", "progress thread", None),
                            ("blocking", "blocking", None)):
        run.bar(f"overlap/{way}", f"c64_256, halos as long as the computation: {text}", of(f"overlap/{way}"), longer,
                "the longer of both", at_most=most, command="bench/overlap.sh")


def tasks(run):
    """The median over turns of the fastest runs; a version has the tiles that are the fastest for it."""
    sizes = (2048,) if run.options.quick else (2048, 4096, 8192)
    choices = {}  # of ScaLAPACK, by the first turn

    def comparison(script, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/out.json"
            run.program([f"bench/compare/{script}", *map(str, arguments), "--turns", "1", "--json", file], limit=1800)
            with open(file, encoding="utf-8") as stream:
                return json.load(stream)

    def libraries(n):
        known = ["--scalapack", ",".join(map(str, choices[n]))] if n in choices else []
        repeat = 1 if run.options.quick or n > 4096 else 3  # a run of 8,192 rows takes 7 s
        result = comparison("cholesky.py", n, "--repeat", repeat, *known)
        run.machine["libraries"] |= result["versions"]
        row = result["rows"][0]
        if row["scalapack"]:
            choices[n] = row["scalapack"]
        return {f"{name}/{n}": rate for name, rate in row["gflops"].items()}

    def runtimes():
        result = comparison("tasks.py", "--seconds", run.seconds(0.3))
        run.machine["libraries"] |= {name: text for name, text in result["versions"].items() if name != "aloni"}
        values = {f"{who}/{case}": seconds for who, times in result["seconds_per_task"].items()
                  for case, seconds in times.items()}
        return values | {f"{who}/half/{w}": MICRO * length for who, half in result["half_efficiency_us"].items()
                         for w, length in half.items() if length is not None}

    n = 2048 if run.options.quick else 4096
    versions = "^cholesky/(tasks|bulk|no_barrier)/"
    slow, even = f"{versions}(slow|by_speed)/n{n}/", f"{versions}even/n{n}/"

    def one_machine():
        return run.suite("bench_cholesky", slow, min_time=0.5, fastest=True, limit=1800)

    between_hosts = on_shaped_link(run, "bench_cholesky", even, ranks=1, min_time=0.5, fastest=True, limit=1800)
    values = run.in_turns(*(functools.partial(libraries, size) for size in sizes), runtimes, one_machine, between_hosts)

    def version(name, place=""):
        """The fastest over tiles of the medians."""
        found = [median(values, case) for case in values
                 if case.startswith(f"{place}cholesky/{name}/n{n}/") and ":" not in case]
        return min(found, default=None)

    command = "bench/compare/cholesky.py"
    for size, least in zip(sizes, (0.8, 0.9, 0.93)):
        text = f"Cholesky, double, {size:,} rows"
        alone, two = median(values, f"1x2/{size}"), median(values, f"2x1/{size}")
        run.bar(f"cholesky/{size}/DGEMM", f"{text}, two workers", alone, median(values, f"dgemm/{size}"), "DGEMM",
                unit="GFLOP/s", at_least=least, command=command)
        run.bar(f"cholesky/{size}/OpenBLAS", f"{text}, two workers", alone, median(values, f"dpotrf/{size}"),
                "dpotrf, two threads", unit="GFLOP/s", at_least=1, command=command)
        run.bar(f"cholesky/{size}/ScaLAPACK", f"{text}, two ranks", two, median(values, f"pdpotrf/{size}"),
                "pdpotrf, two ranks", unit="GFLOP/s", at_least=1, command=command)
        run.bar(f"cholesky/{size}/ranks", f"{text}, two ranks", two, alone, "two workers", unit="GFLOP/s",
                at_least=0.95 if size == 4096 else None, speed=True, command=command)
    command = run_text("bench_cholesky", slow)
    for ours, other, text, peer in (
            ("slow", "slow", "equal shares", "bulk-synchronous"),
            ("by_speed", "by_speed", "shares by speed", "bulk-synchronous"),
            ("by_speed", "slow", "shares by speed", "bulk-synchronous, equal shares")):
        run.bar(f"slow/{ours}-{other}", f"{n:,} rows, one of two ranks at half speed: {text}", version(f"tasks/{ours}"),
                version(f"bulk/{other}"), peer, at_least=1.2, command=command)
        run.bar(f"slow/{ours}-{other}/no_barrier", f"{n:,} rows, one of two ranks at half speed: {text}",
                version(f"tasks/{ours}"), version(f"no_barrier/{other}"), f"{peer}, no barrier", speed=True,
                command=command)
    command = f"bench/two_hosts.sh run 1 {BIN}bench_cholesky --time_oversubscribed --benchmark_filter='{even}'"
    for name, peer, least in (("bulk", "bulk-synchronous", 1.2), ("no_barrier", "without barrier", None)):
        run.bar(f"hosts/{name}", f"{n:,} rows, two hosts, 1 Gbit/s", version("tasks/even", "slot/"),
                version(f"{name}/even", "slot/"), peer, at_least=least, speed=True, command=command)
    command = "bench/compare/tasks.py"
    for case, text, most in (("independent", "empty task, one worker: no dependences", MICRO),
                             ("three", "empty task, one worker: three dependences", 2 * MICRO)):
        run.bar(case, text, median(values, f"aloni/{case}/w1"), at_most=most, command=command)
    for case, text in (("independent", "no dependences"), ("three", "three dependences"),
                       ("inserted", "three dependences, with insertion")):
        for w, workers in (("w1", "one worker"), ("w2", "two workers")):
            run.bar(f"{case}/{w}/StarPU", f"empty task, {workers}: {text}", median(values, f"aloni/{case}/{w}"),
                    median(values, f"StarPU/{case}/{w}"), "StarPU", speed=True, command=command)
    run.bar("half", "length of tasks at half efficiency, two workers", median(values, "aloni/half/w2"),
            at_most=5 * MICRO, command=command)
    run.bar("half/StarPU", "length of tasks at half efficiency, two workers", median(values, "aloni/half/w2"),
            median(values, "StarPU/half/w2"), "StarPU", command=command)


class Section(NamedTuple):
    measure: Callable
    turns: int


SECTIONS = {
    "training": Section(training, 5),
    "networks": Section(networks, 3),
    "roofline": Section(steps_and_limits, 1),
    "threads": Section(threads, 3),
    "all_reduce": Section(all_reduce, 5),
    "halo": Section(halo, 5),
    "stencil": Section(stencil, 3),
    "placement": Section(placement, 3),
    "convolution": Section(convolution, 3),
    "frameworks": Section(frameworks, 2),
    "local_kernels": Section(local_kernels, 2),
    "sizes": Section(sizes, 1),
    "two_hosts": Section(two_hosts, 2),
    "tasks": Section(tasks, 2),
}
