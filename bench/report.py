#!/usr/bin/env python3
"""Measures every figure of docs/performance.md and writes its tables.

  bench/report.py --python ~/peers/bin/python     everything; at most 45 minutes on two cores
  bench/report.py --only all_reduce               one section, merged into the existing figures
  bench/report.py --tables                        the tables again, from the existing figures

Runs the suites build/host/bin/bench_* and the peers that this machine has, in turns, on the first two cores. Writes
docs/performance.json, then the tables between `<!-- figures: bench/report.py NAME -->` and `<!-- end of figures -->`
in docs/performance.md and README.md. NAME is a section, `machine` or `summary`.

Peers: memcpy, matrix products, oneDNN and Open MPI are inside the suites. PyTorch and JAX run if a --python has them
(bench/compare/README.md). Two shaped hosts need root (bench/two_hosts.sh). A missing peer, a failed program and a
missing case leave their bars out; the report says which and why.

Needs a build of the host preset: the bench_* programs, aloni_command, stencil and test_placement. Run it on an
otherwise idle machine.
"""
import argparse
import datetime
import functools
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = "build/host/bin/"
FIGURES = ROOT / "docs/performance.json"
DOCUMENTS = (ROOT / "docs/performance.md", ROOT / "README.md")
MARKED = re.compile(r"(<!-- figures: bench/report\.py (\w+) -->\n)(.*?)(<!-- end of figures -->)", re.DOTALL)
MICRO = 1e-6
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}

LAYERS = ("resnet_conv1", "res3b_branch2a", "mesh_conv1_1", "mesh_conv6_1", "c64_256", "c32_3d", "depthwise", "dilated",
          "transposed")
PASSES = ("forward", "backward_data", "backward_filter")
SIZES = tuple(1 << shift for shift in (3, 10, 14, 16, 18, 20, 22, 23, 25))  # bytes of an all-reduce
WIDTHS = (128, 256, 512, 1024, 2048)
LOCAL_LAYERS = {"lenet-conv1-n32": "LeNet-5 conv1, 32 samples", "lenet-conv2-n32": "LeNet-5 conv2, 32 samples",
                "lenet-conv1-n512": "LeNet-5 conv1, 512 samples", "lenet-conv2-n512": "LeNet-5 conv2, 512 samples",
                "image64-c64-f64": "64 to 64 channels, 3×3, 64×64", "volume24-c16-f16": "16 to 16 channels, 3×3×3, 24³"}


class Failed(Exception):
    """A program failed or a peer is missing; the text is the reason."""


# Running programs

class Run:
    """One run of the report: its options, and the bars of the section being measured."""

    def __init__(self, options):
        self.options = options
        self.machine = {"processor": processor(), "cores": len(os.sched_getaffinity(0)), "libraries": {}}
        self.section, self.turns, self.bars, self.problems = "", 1, [], []
        self.peers, self.missing = {}, {}
        for name, module in (("PyTorch", "torch"), ("JAX", "jax")):
            self.find_peer(name, module)

    def find_peer(self, name, module):
        for python in self.options.python:
            environment = environment_of(python)
            found = subprocess.run([python, "-c", f"import {module}; print({module}.__version__)"], env=environment,
                                   capture_output=True, text=True, check=False)
            if found.returncode == 0:
                self.peers[name] = python, environment
                self.machine["libraries"][name] = found.stdout.strip().split("+")[0]
                return
        self.missing[name] = f"no Python with {name} (--python, bench/compare/README.md)"
        say(f"{name}: {self.missing[name]}")

    def start_section(self, name):
        self.section, self.bars, self.problems = name, [], []
        self.turns = 1 if self.options.quick else self.options.turns or SECTIONS[name].turns

    def seconds(self, wish):
        """Value of --benchmark_min_time."""
        return 0.01 if self.options.quick else wish

    def in_turns(self, *measurements):
        """Calls all measurements, turn after turn. Returns {name: one value per turn}. A failure ends no other."""
        values = {}
        for turn in range(self.turns):
            for measure in measurements:
                try:
                    for name, value in measure().items():
                        values.setdefault(name, []).append(value)
                except (Failed, OSError, ValueError, KeyError) as error:
                    problem = str(error) or type(error).__name__
                    if problem not in self.problems:
                        self.problems.append(problem)
                        say(f"{self.section}, turn {turn + 1}: {problem}")
        return values

    def program(self, command, environment=None, limit=600):
        """The program's standard output. Throws Failed."""
        environment = dict(clean_environment() if environment is None else environment)
        say(f"  {shown(command, environment)}")
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failed(f"{pathlib.Path(command[0]).name}: no result after {limit} s: {shlex.join(command)}") from None
        if process.returncode:
            last = (errors.strip() or output.strip() or "no message").splitlines()[-1]
            raise Failed(f"exit status {process.returncode} of {shlex.join(command)}: {last}")
        return output

    def suite(self, name, cases, *, ranks=2, min_time=0.3, fastest=False, threads="1", pinned=False, extra=(),
              hosts=None, limit=600):
        """{case: seconds, "case:counter": value} of a Google Benchmark suite. Seconds are the mean, or with `fastest`
        those of the fastest batch. `threads`: OMP_NUM_THREADS, None to leave it unset. `hosts`: a placement of two
        shaped hosts, `ranks` on each."""
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/out.json"
            program = [BIN + name, f"--benchmark_filter={cases}", f"--benchmark_min_time={self.seconds(min_time)}", *extra,
                       f"--benchmark_out={file}", "--benchmark_out_format=json"]
            environment = clean_environment()
            if threads is not None:
                environment |= {"OMP_NUM_THREADS": threads, "OMP_PROC_BIND": "false"}
            if hosts:
                command = ["bench/two_hosts.sh", "run", str(ranks), *program]
                environment |= {"PLACE": hosts}
            else:
                command = launched(ranks, program, pinned)
            self.program(command, environment, limit)
            with open(file, encoding="utf-8") as stream:
                content = json.load(stream)
        self.machine["libraries"] |= {name: content["context"][key] for name, key in
                                      (("Kokkos", "kokkos"), ("MPI", "mpi"), ("GCC", "compiler"))}
        values = {}
        for case in content["benchmarks"]:
            short = re.sub(r"(/iterations:\d+)?/manual_time$", "", case["name"])
            mean = case["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[case["time_unit"]]
            if mean <= 0:  # more ranks than cores
                continue
            values[short] = case["best_us"] * MICRO if fastest else mean
            for counter in ("bytes", "extra_memory", "workspace_bytes", "link_bytes", "node_messages", "node_bytes"):
                if counter in case:
                    values[f"{short}:{counter}"] = case[counter]
            if "flops" in case:
                values[f"{short}:work"] = case["flops"] * mean
        return values

    def train(self, *words, pinned=False):
        """The JSON of `aloni train` on two ranks of one thread."""
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/out.json"
            program = [BIN + "aloni", "train", "--model", "lenet5", "--data", "examples/data/mnist_subset", *map(str, words),
                       "--progress", "none", "--json", file]
            self.program(launched(2, program, pinned), clean_environment() | ONE_THREAD)
            with open(file, encoding="utf-8") as stream:
                return json.load(stream)

    def peer(self, name, script, *arguments, limit=600):
        """The standard output of bench/compare/SCRIPT."""
        if name not in self.peers:
            raise Failed(self.missing[name])
        python, environment = self.peers[name]
        return self.program([python, f"bench/compare/{script}", *map(str, arguments)], environment, limit)

    def bar(self, name, what, ours, peer=None, peer_name="", *, unit="s", at_most=None, at_least=None, speed=False,
            command=""):
        """Enters a bar. With a peer the requirement is on the ratio: how much of the peer's time ours takes, or with
        `at_least` or `speed` how many times as fast ours is. Without one it is on `ours` itself. Values in s are shown
        in the unit that fits; GFLOP/s are rates."""
        about = {"id": f"{self.section}/{name}", "section": self.section, "what": what}
        if ours is None or (peer_name and peer is None):
            who = peer_name if ours is not None else "ours"
            reason = self.missing.get(peer_name if ours is not None else "") or (
                self.problems[-1] if self.problems else f"no figure of {who}")
            self.bars.append(about | {"left_out": reason})
            return
        speed = speed or (peer is not None and at_least is not None)
        ratio = None
        if peer is not None:
            less = (unit == "GFLOP/s") != speed  # whether the smaller figure goes above
            ratio = peer / ours if less else ours / peer
        if unit == "s":
            scale, unit = next((s, u) for s, u in ((1, "s"), (1e3, "ms"), (1e6, "µs")) if max(ours, peer or 0) * s >= 1 or u == "µs")
            ours, peer = ours * scale, None if peer is None else peer * scale
        measured = ours if ratio is None else ratio
        required = {key: value for key, value in (("at_most", at_most), ("at_least", at_least)) if value is not None}
        met = all((measured <= value) if key == "at_most" else (measured >= value) for key, value in required.items())
        self.bars.append(about | {
            "ours": digits(ours), "unit": unit, "peer_name": peer_name or None, "peer": digits(peer), "ratio": digits(ratio),
            "ratio_is": None if ratio is None else "times as fast" if speed else "times the time",
            "required": required or None, "met": met if required else None, "command": command})


def launched(ranks, program, pinned=False):
    """The command that runs a program on ranks; `pinned`: each rank on a core of its own."""
    if not pinned:
        return ["scripts/mpirun", "-n", str(ranks), *program]
    command = ["scripts/mpirun"]
    for rank, core in zip(range(ranks), sorted(os.sched_getaffinity(0))):
        command += [":"] * (rank > 0) + ["-n", "1", "taskset", "-c", str(core), *program]
    return command


def digits(value):
    return value if value is None else float(f"{value:.4g}")


def say(text):
    print(f"report.py: {text}", file=sys.stderr, flush=True)


def shown(command, environment):
    """A command as a person would type it."""
    names = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "PLACE")
    words = [word for word in map(str, command) if not word.startswith("--benchmark_out")]
    return shlex.join([f"{name}={environment[name]}" for name in names if name in environment] + words)


def clean_environment():
    """Without settings of the caller that change times."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "OPENBLAS_", "KOKKOS_"))}


def environment_of(python):
    """With the libraries of a PyTorch that was installed in part (bench/compare/README.md)."""
    found = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
                           capture_output=True, text=True, check=False)
    folders = sorted(glob.glob(f"{found.stdout.strip()}/nvidia/*/lib")) + glob.glob("/usr/local/cuda/lib64")
    return clean_environment() | {"LD_LIBRARY_PATH": ":".join(folders + [os.environ.get("LD_LIBRARY_PATH", "")])}


def processor():
    fields = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    vectors = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"))
                    if flag in fields.get("flags", "").split()), "no AVX2")
    return (f"{fields.get('model name', 'unknown')}, family {fields.get('cpu family', '?')} model {fields.get('model', '?')}, "
            f"{vectors}")


def library_versions():
    """oneDNN and BLAS, by the files that the loader finds."""
    found = subprocess.run(["ldd", str(ROOT / BIN / "bench_local_conv")], capture_output=True, text=True, check=False).stdout
    files = {name: re.search(rf"{library}\S* => (\S+)", found) for name, library in (("oneDNN", "libdnnl"), ("BLAS", "lib\\w*blas"))}
    versions = {}
    for name, match in files.items():
        if match:
            path = pathlib.Path(match[1]).resolve()
            owner = subprocess.run(["dpkg-query", "-S", str(path)], capture_output=True, text=True, check=False).stdout
            package = owner.partition(": ")[0].split(",")[0]
            version = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True,
                                     check=False).stdout if package else ""
            versions[name] = f"{package.partition(':')[0]} {version}" if version else path.name
    return versions


def git_commit():
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    dirty = subprocess.run(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "--", "*.[ch]pp", "*.sh", "*.py"],
                           capture_output=True, text=True, check=False)
    return (commit.stdout.strip() or "unknown") + (", changed" if dirty.stdout.strip() else "")


def median(values, name):
    return statistics.median(values[name]) if values.get(name) else None


def fastest(values, name):
    return min(values[name]) if values.get(name) else None


def times(a, b):
    return None if a is None or b is None else a * b


def over(a, b):
    return None if a is None or b is None else a / b


def size_text(size):
    return next(f"{size // unit:g} {name}" for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")) if size >= unit)


def pass_text(name):
    return name.replace("_", "-")


def run_text(suite, cases, ranks=2):
    return f"OMP_NUM_THREADS=1 scripts/mpirun -n {ranks} {BIN}{suite} --benchmark_filter='{cases}'"


# Sections: each measures, then enters its bars

def training(run):
    """The median over turns: of aloni train and PyTorch the median step, of bench_train_step the mean."""
    def ours(batch, steps):
        result = run.train("--batch", batch, "--steps", steps, "--strategy", "n2", "--shift", "0", pinned=True)
        return {f"ours/{batch}": result["step_seconds"]}

    def pytorch(batch, steps):
        output = run.peer("PyTorch", "lenet5_pytorch.py", "--ranks", 2, "--batch", batch, "--steps", steps)
        return {f"PyTorch/{batch}": json.loads(output)["step_seconds"]}

    def demo():
        start = time.monotonic()
        result = run.train("--epochs", 5, "--batch", 64, "--strategy", "h2")
        shares = result["time"]
        return {"demo/seconds": time.monotonic() - start, "demo/accuracy": 100 * result["epochs"][-1]["test_accuracy"],
                **{f"demo/{name}": 100 * part / sum(shares.values()) for name, part in shares.items()}}

    few = run.options.quick
    steps = {64: 50 if few else 500, 1024: 10 if few else 100}
    alone = "^train_step/lenet5/float/"
    values = run.in_turns(*(functools.partial(measure, batch, count) for batch, count in steps.items() for measure in (ours, pytorch)),
                          lambda: run.suite("bench_train_step", alone, min_time=1), demo)
    for batch in steps:
        run.bar(f"n2-b{batch}", f"step of {batch:,} samples, two ranks by sample", median(values, f"ours/{batch}"),
                median(values, f"PyTorch/{batch}"), "PyTorch", at_most=1, command=f"bench/compare/lenet5.sh {batch}")
    for batch in steps:
        for split, text in (("n2", "sample"), ("h2", "height")):
            name = f"train_step/lenet5/float/%s-b{batch}"
            run.bar(f"cost-{split}-b{batch}", f"cost of the split by {text}, {batch:,} samples", median(values, name % split),
                    median(values, name % "alone"), "without messages", command=run_text("bench_train_step", alone))
    run.bar("demo-accuracy", "digits, two ranks by height: test accuracy after 5 epochs", median(values, "demo/accuracy"), unit="%",
            at_least=97, command="scripts/demo.sh")
    run.bar("demo-seconds", "the demo after set-up and compilation", median(values, "demo/seconds"), at_most=180,
            command="scripts/demo.sh")
    for name in ("compute", "halo", "collective", "input"):
        run.bar(f"demo-{name}", f"share of a step of the demo: {name}", median(values, f"demo/{name}"), unit="%", command="scripts/demo.sh")


def threads(run):
    """Steps: the median over turns of means. Layers: the fastest batch of all turns."""
    steps, layers = "^train_step/lenet5/float/(1|n2)-b", "^overlap/{}/interior_first/"

    def step(ranks):
        return lambda: run.suite("bench_train_step", steps, ranks=ranks, threads=None, min_time=1)

    def layer(name, ranks):
        def measure():
            values = run.suite("bench_conv", layers.format(name), ranks=ranks, threads=None, min_time=0.5, fastest=True)
            return {f"{case}/{ranks}": value for case, value in values.items()}
        return measure

    values = run.in_turns(step(1), step(2), *(layer(name, ranks) for name in LAYERS for ranks in (1, 2)))
    without = "scripts/mpirun -n {} " + BIN
    for batch in (64, 1024):
        name = f"train_step/lenet5/float/%s-b{batch}"
        run.bar(f"step-b{batch}", f"LeNet-5, step of {batch:,} samples", median(values, name % 1), median(values, name % "n2"),
                "two ranks", at_most=1.10, command=f"{without.format('1|2')}bench_train_step --benchmark_filter='{steps}'")
    for name in LAYERS:
        case = f"overlap/{name}/interior_first/"
        run.bar(f"layer-{name}", f"{name}, forward and backward", fastest(values, case + "1"), fastest(values, case + "2"), "two ranks",
                at_most=1.10, command=f"{without.format('1|2')}bench_conv --benchmark_filter='{layers.format(name)}'")


def all_reduce(run):
    """The median over turns of means; of gloo the median over its batches."""
    sizes = "|".join(map(str, SIZES))
    cases = f"^allreduce/(shared|private|mpi)/({sizes})/"
    others = "^(message/shared/8|message/(mpi|ucx)/(8|1048576)|many/.*|urgent/.*)/"

    def gloo():
        output = run.peer("PyTorch", "collectives_gloo.py", "--ranks", 2, "--seconds", run.seconds(0.1), *SIZES)
        return {f"gloo/{size}": value for size, value in json.loads(output)["seconds"].items()}

    def late():
        return run.suite("bench_collectives", "^skewed/", ranks=4, extra=["--time_oversubscribed"], min_time=1)

    values = run.in_turns(lambda: run.suite("bench_collectives", cases, min_time=0.1, pinned=True), gloo,
                          lambda: run.suite("bench_collectives", others + "|^allreduce/shared/67108864/", min_time=0.2, pinned=True), late)
    of = functools.partial(median, values)
    for size in SIZES:
        for memory in ("shared", "private"):
            if memory == "shared":
                least = 1 if size < 65536 else 6 if size >= 32 << 20 else 4
            else:
                least = None if size < 65536 else 2 if size >= 1 << 20 else 1
            run.bar(f"{size}/{memory}/Open MPI", f"{size_text(size)}, {memory} memory", of(f"allreduce/{memory}/{size}"),
                    of(f"allreduce/mpi/{size}"), "Open MPI", at_least=least, speed=True, command=run_text("bench_collectives", cases))
            run.bar(f"{size}/{memory}/gloo", f"{size_text(size)}, {memory} memory", of(f"allreduce/{memory}/{size}"), of(f"gloo/{size}"),
                    "gloo", at_least=4, command="bench/compare/collectives.sh")
    command = run_text("bench_collectives", others)
    run.bar("8-byte", "all-reduce of 8 bytes against a message one way", of("allreduce/shared/8"), of("message/shared/8"), "message",
            at_most=2.5, command=command)
    run.bar("fused", "64 all-reduces of 4 KiB, pieces of one array: fused", of("many/fused/4096"), of("many/single/4096"), "one by one",
            at_least=4, command=command)
    run.bar("scattered", "64 all-reduces of 4 KiB, tensors anywhere: fused", of("many/scattered/4096"), of("many/single/4096"),
            "one by one", speed=True, command=command)
    part = over(of("allreduce/shared/67108864"), 128)
    alone = of("urgent/alone/4096")
    run.bar("urgent", "4 KiB of higher priority behind 64 MiB", of("urgent/behind/4096"),
            None if part is None or alone is None else part + alone, "a part and itself", at_most=1, command=command)
    run.bar("skewed", "four ranks, one of them 5 ms late, 1 MiB: majority", of("skewed/majority/1048576"), of("skewed/all/1048576"),
            "waiting for all", at_least=1, command=run_text("bench_collectives", "^skewed/", 4) + " --time_oversubscribed")
    for size in (8, 1 << 20):
        run.bar(f"ucx/{size}", f"message of {size_text(size)} through UCX", of(f"message/ucx/{size}"), of(f"message/mpi/{size}"),
                "through MPI", speed=True, command=command)


def halo(run):
    """The median over turns of means."""
    cases = "^(exchange|memcpy|redistribution)/(lenet-conv2|image512-c64|volume64-c16)/.*(h2|w2|d2)/"
    values = run.in_turns(lambda: run.suite("bench_exchange", cases))
    of = functools.partial(median, values)
    command = run_text("bench_exchange", cases)
    for name, split, text in (("lenet-conv2", "h2", "LeNet-5 conv2 input by height"), ("image512-c64", "h2", "512²×64 by height, contiguous"),
                              ("image512-c64", "w2", "512²×64 by width, strided"), ("volume64-c16", "d2", "64³×16 by depth")):
        size = over(of(f"exchange/{name}/forward/{split}:bytes"), 1024)
        for direction in ("forward", "adjoint"):
            run.bar(f"{name}/{split}/{direction}", f"{text}, {0 if size is None else size:,.0f} KiB, {direction}",
                    of(f"exchange/{name}/{direction}/{split}"), of(f"memcpy/{name}/{split}"), "memcpy", command=command)
    values = run.in_turns(lambda: run.suite("bench_exchange", "^redistribution/lenet-conv2/"))
    for move in ("h2-n2", "n2-h2"):
        run.bar(f"redistribution/{move}", f"redistribution of LeNet-5 conv2 input, 147 KiB, {move.replace('-', ' to ')}",
                median(values, f"redistribution/lenet-conv2/forward/{move}"), command=run_text("bench_exchange", "^redistribution/lenet-conv2/"))


def stencil(run):
    """The median over turns of means; of the application the best step of all turns."""
    cases = "^(halo/(face-(depth|height|width|depth-64k)/(shared|mpi)|(face-depth-radius3|all|all-scalar|fused|per-field)/shared)|memcpy/.*)/"
    deep = "^heat/64/"
    size, steps = ("128", "1") if run.options.quick else ("256", "3")
    flags = clean_environment() | ONE_THREAD

    def application():
        output = run.program(["scripts/mpirun", "-n", "2", BIN + "stencil", "--grid", "d2", "--size", size, "--steps", steps, "--measure"], flags)
        rows = re.findall(r"^(step with|computation alone, at|exchanges alone).*?([\d.]+) +([\d.]+)$", output, re.MULTILINE)
        return {f"stencil/{name}": 1e-3 * float(best) for name, _, best in rows}

    def scaling():
        output = run.program(["scripts/mpirun", "-n", "2", BIN + "stencil", "--size", "128", "--steps", steps, "--scaling"], flags)
        return {f"scaling/{kind}/{row[0]}": 1e-3 * float(row[column]) for row in map(str.split, output.splitlines())
                if row and row[0] in ("1", "2") and len(row) == 8 for kind, column in (("weak", 2), ("strong", 5))}

    values = run.in_turns(lambda: run.suite("bench_halo", cases), lambda: run.suite("bench_deep_halo", deep), application, scaling)
    of = functools.partial(median, values)
    command = run_text("bench_halo", cases)
    for case, text in (("face-depth", "contiguous faces of 1 MiB"), ("face-depth-radius3", "contiguous faces of 3 MiB")):
        run.bar(case, text, of(f"halo/{case}/shared"), of(f"memcpy/{case}"), "memcpy", at_most=1.3, command=command)
    run.bar("all", "all 26 neighbours, periodic, 8 doubles per cell", of("halo/all/shared"), of("memcpy/all"), "memcpy", at_most=3, command=command)
    run.bar("all-scalar", "all 26 neighbours, periodic, one double per cell", of("halo/all-scalar/shared"), of("memcpy/all-scalar"), "memcpy",
            command=command)
    for direction in ("width", "height"):
        run.bar(f"slowest-{direction}", f"faces by {direction} against contiguous ones", of(f"halo/face-{direction}/shared"),
                of("halo/face-depth/shared"), "by depth", at_most=6, command=command)
    run.bar("fused", "8 Views in one exchange", of("halo/fused/shared"), of("halo/per-field/shared"), "one by one", at_most=1.05, command=command)
    for case, text in (("face-depth-64k", "64 KiB"), ("face-depth", "1 MiB by depth"), ("face-height", "1 MiB by height"),
                       ("face-width", "1 MiB by width")):
        run.bar(f"mpi-{case}", f"shared memory against messages of MPI, faces of {text}", of(f"halo/{case}/shared"), of(f"halo/{case}/mpi"), "MPI",
                at_least=1.5, command=command)
    application_text = f"OMP_NUM_THREADS=1 OMP_PROC_BIND=false scripts/mpirun -n 2 {BIN}stencil --grid d2 --size 256 --steps 3 --measure"
    run.bar("overlap", f"application, {size}³ × 8 doubles: step with exchanges", fastest(values, "stencil/step with"),
            fastest(values, "stencil/computation alone, at"), "computing alone", at_most=1.05, command=application_text)
    run.bar("exchanges", "application: its three exchanges alone", fastest(values, "stencil/exchanges alone"), command=application_text)
    for kind, text in (("weak", "128³ cells per rank"), ("strong", "128³ cells")):
        run.bar(f"scaling-{kind}", f"application, {text}: two ranks against one", fastest(values, f"scaling/{kind}/2"),
                fastest(values, f"scaling/{kind}/1"), "one rank", speed=kind == "strong",
                command=f"OMP_NUM_THREADS=1 OMP_PROC_BIND=false scripts/mpirun -n 2 {BIN}stencil --size 128 --steps 3 --scaling")
    for transport in ("shared", "mpi"):
        for every in (2, 4, 8):
            run.bar(f"deep/{transport}/{every}", f"deep halo, 8 steps of 64² cells, {transport}: exchange in {every} steps",
                    of(f"heat/64/every{every}/{transport}"), of(f"heat/64/every1/{transport}"), "every step", speed=True,
                    command=run_text("bench_deep_halo", deep))


def placement(run):
    """The median over turns of processor time."""
    tests = "Placement.PlacesAThousandRanksInTwoSeconds:Placement.SendsLessThanHalfOverTheLinkWhenRanksAreDealtToTwoHosts"

    def measure():
        output = run.program([BIN + "test_placement", f"--gtest_filter={tests}"], clean_environment() | ONE_THREAD)
        values = {name: float(value) for name, value in re.findall(r"(seconds) ([\d.e+-]+)$", re.sub(r"; ([\d.e+-]+) s$", "; seconds \\1", output, flags=re.M), re.M)}
        for name, placed, trivial in re.findall(r"^(\w+): (\d+)\D+(\d+) bytes", output, re.M):
            values |= {f"{name}/placed": float(placed), f"{name}/trivial": float(trivial)}
        return values

    values = run.in_turns(measure)
    command = f"{BIN}test_placement --gtest_filter='{tests}'"
    run.bar("1024-ranks", "1,024 ranks on 128 nodes, dealt round-robin, periodic", median(values, "seconds"), at_most=2, command=command)
    for name, text in (("zero", "open ends"), ("periodic", "periodic")):
        run.bar(f"two-hosts-{name}", f"bytes over the link of two hosts, {text}", median(values, f"{name}/placed"),
                median(values, f"{name}/trivial"), "order of ranks", unit="bytes", at_most=0.5, command=command)


def convolution(run):
    """The fastest batch of all turns."""
    cases = "^(limit/{0}/|conv/{0}/[a-z_]+/[hwcf]2/)"
    values = run.in_turns(*(functools.partial(run.suite, "bench_conv", cases.format(name), fastest=True) for name in LAYERS))
    of = functools.partial(fastest, values)
    for name in LAYERS:
        for one in PASSES:
            limit = of(f"limit/{name}/{one}")
            for split, text in (("h2", "height"), ("w2", "width"), ("c2", "channels"), ("f2", "filters")):
                least = {"h2": 0.95 if limit is None or limit > 1e-3 else 0.80, "w2": 0.88}.get(split, 0.80)
                run.bar(f"{name}/{one}/{split}", f"{name}, {pass_text(one)}, by {text}", of(f"conv/{name}/{one}/{split}"), limit, "oneDNN",
                        at_least=least, command=run_text("bench_conv", cases.format(name)))
    chain = "^chain/"
    values = run.in_turns(lambda: run.suite("bench_conv", chain, fastest=True))
    for other, text in (("interior_first", "interior first"), ("blocking", "blocking")):
        run.bar(f"chain/{other}", "eight thin layers, one wide exchange for all of them", fastest(values, "chain/recompute_halo"),
                fastest(values, f"chain/{other}"), text, speed=True, command=run_text("bench_conv", chain))


def frameworks(run):
    """The fastest batch of all turns; of PyTorch and JAX the fastest step of all turns."""
    cases = "^overlap/{}/interior_first/"
    repetitions, warm_up = (1, 1) if run.options.quick else (10, 2)

    def lines(name, *arguments):
        output = run.peer(name, *arguments, "--repetitions", repetitions, "--warm_up", warm_up)
        return {f"{name}/{layer}": 1e-3 * float(value) for layer, value in map(str.split, output.splitlines())}

    values = run.in_turns(*(functools.partial(run.suite, "bench_conv", cases.format(name), min_time=1, fastest=True) for name in LAYERS),
                          lambda: lines("PyTorch", "conv_pytorch.py", "--threads", 2), lambda: lines("JAX", "conv_jax.py"))
    for peer, least in (("PyTorch", 0.97), ("JAX", 1.5)):
        for name in LAYERS:
            run.bar(f"{name}/{peer}", f"{name}, forward and backward", fastest(values, f"overlap/{name}/interior_first"),
                    fastest(values, f"{peer}/{name}"), peer, at_least=least, command="bench/compare/conv.sh; " + run_text("bench_conv", cases.format(name)))


def local_kernels(run):
    """The fastest batch of all turns."""
    backends = ("automatic", "direct", "onednn", "kokkos_kernels")
    cases = f"^local_conv/({'|'.join(LOCAL_LAYERS)})/[a-z_]+/({'|'.join(backends)})/"
    large = "^(gemm/image256-c64-f64|local_conv/image256-c64-f64/[a-z_]+/(kokkos_kernels|automatic|bfloat16)|local_conv/image64-.*/(automatic|bfloat16))/"
    values = run.in_turns(lambda: run.suite("bench_local_conv", cases, fastest=True, min_time=0.2),
                          lambda: run.suite("bench_local_conv", large, fastest=True, min_time=0.3))

    def rate(case):
        return over(median(values, case + ":work"), times(fastest(values, case), 1e9))

    for name, text in LOCAL_LAYERS.items():
        for one in PASSES:
            rates = {backend: rate(f"local_conv/{name}/{one}/{backend}") for backend in backends[1:]}
            best = max((backend for backend in rates if rates[backend] is not None), key=rates.get, default="others")
            run.bar(f"{name}/{one}", f"{text}, {pass_text(one)}", rate(f"local_conv/{name}/{one}/automatic"), rates.get(best), best,
                    unit="GFLOP/s", speed=True, command=run_text("bench_local_conv", cases))
    command = run_text("bench_local_conv", large)
    for one in PASSES:
        case = f"local_conv/image256-c64-f64/{one}/kokkos_kernels"
        run.bar(f"gemm/{one}", f"Kokkos Kernels, 64 to 64 channels, 3×3, 256², {pass_text(one)}", rate(case), rate("gemm/image256-c64-f64"), "GEMM",
                unit="GFLOP/s", at_least=0.7, command=command)
    for one in PASSES:
        space = over(median(values, f"local_conv/image256-c64-f64/{one}/kokkos_kernels:workspace_bytes"), 1 << 20)
        run.bar(f"workspace/{one}", f"its workspace per rank, {pass_text(one)}", space, unit="MiB", at_most=32, command=command)
    for name, text in (("image256-c64-f64", "C64 256²"), ("image64-c64-f64", "C64 64²"), ("image64-c32-f32", "C32 64²"), ("image64-c3-f16", "C3 64²")):
        for one in PASSES:
            run.bar(f"bfloat16/{name}/{one}", f"bfloat16, {text}, {pass_text(one)}", rate(f"local_conv/{name}/{one}/bfloat16"),
                    rate(f"local_conv/{name}/{one}/automatic"), "float", unit="GFLOP/s", speed=True, command=command)


def sizes(run):
    """The fastest batch of all turns."""
    widths = WIDTHS[:2] if run.options.quick else WIDTHS
    cases = "^size/{}/(" + "|".join(map(str, widths)) + ")/"
    values = run.in_turns(*(functools.partial(run.suite, "bench_conv", cases.format(one), min_time=0.5, fastest=True, limit=900) for one in PASSES))
    for one in PASSES:
        command = run_text("bench_conv", cases.format(one))
        per_pixel = [over(fastest(values, f"size/{one}/{width}"), width * width) for width in widths]
        memory = [median(values, f"size/{one}/{width}:extra_memory") for width in widths]
        for width, pixel in zip(widths, per_pixel):
            run.bar(f"{one}/{width}", f"{pass_text(one)}, {width:,}²: time per output pixel", pixel, command=command)
        complete = None not in per_pixel
        run.bar(f"{one}/spread", f"{pass_text(one)}: largest deviation from the middle of these",
                100 * (max(per_pixel) - min(per_pixel)) / (max(per_pixel) + min(per_pixel)) if complete else None, unit="%", at_most=15, command=command)
        run.bar(f"{one}/memory", f"{pass_text(one)}: extra memory, share of activations and gradients",
                100 * max(memory) if None not in memory else None, unit="%", at_most=10, command=command)


def two_hosts(run):
    """The median over turns of means; four ranks share two cores."""
    link = 1e9 / 8  # bytes per second

    def on_link(measure):
        """Between two hosts joined by a link of 1 Gbit/s."""
        def run_it():
            if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
                raise Failed("two shaped hosts need root, ip and tc (bench/two_hosts.sh)")
            run.program(["bench/two_hosts.sh", "up", "1gbit"])
            try:
                return measure()
            finally:
                run.program(["bench/two_hosts.sh", "down"])
        return run_it

    reduce_sizes = (1 << 20, 8 << 20) + (() if run.options.quick else (64 << 20,))
    reduces = f"^allreduce/(mpi|hierarchical)/({'|'.join(map(str, reduce_sizes))})/"
    faces = "^halo/(face-depth|all-scalar|all)/(consolidated|separate)/"
    slow = ["--time_oversubscribed"]

    def collectives(place):
        values = run.suite("bench_collectives", reduces, hosts=place, extra=slow, min_time=1)
        return {f"{place}/{name}": value for name, value in values.items()}

    def overlap():
        output = run.program(["bench/overlap.sh"], limit=900)
        return {f"overlap/{name}": MICRO * float(value) for name, value in re.findall(r"^(\w+) +(\d+) us", output, re.M)}

    def overlap_if_root():
        if os.geteuid() != 0 or not shutil.which("tc"):
            raise Failed("bench/overlap.sh needs root and tc")
        return overlap()

    values = run.in_turns(on_link(lambda: collectives("slot")), on_link(lambda: collectives("node")),
                          on_link(lambda: run.suite("bench_halo", faces, hosts="slot", extra=slow, min_time=0.5)),
                          on_link(lambda: run.suite("bench_deep_halo", "^heat/64/.*/shared/", ranks=1, hosts="slot", extra=slow)),
                          on_link(lambda: run.suite("bench_conv", "^chain/", ranks=1, hosts="slot", extra=slow, fastest=True)),
                          overlap_if_root)
    of = functools.partial(median, values)

    def command(suite, cases, ranks=2, place=""):
        return f"{place}bench/two_hosts.sh run {ranks} {BIN}{suite} --time_oversubscribed --benchmark_filter='{cases}'"

    for place, text in (("slot", "ranks in order"), ("node", "round-robin")):
        for size in reduce_sizes:
            run.bar(f"all-reduce/{place}/{size}", f"hierarchical all-reduce of {size_text(size)}, {text}", of(f"{place}/allreduce/hierarchical/{size}"),
                    of(f"{place}/allreduce/mpi/{size}"), "Open MPI", at_least=1.5, command=command("bench_collectives", reduces, place=f"PLACE={place} "))
    for size in reduce_sizes:
        run.bar(f"all-reduce-bytes/{size}", f"its bytes over the link, both ways, {size_text(size)}",
                of(f"slot/allreduce/hierarchical/{size}:link_bytes"), 2.0 * size, "least possible", unit="bytes", at_most=1.01,
                command=command("bench_collectives", reduces))
    for case, text in (("face-depth", "faces of 1 MiB"), ("all-scalar", "all neighbours, one double"), ("all", "all neighbours, 8 doubles")):
        for way in ("consolidated", "separate"):
            name = f"halo/{case}/{way}"
            run.bar(f"halo/{case}/{way}", f"{text}, {way} messages", of(name), over(of(name + ":node_bytes"), 2 * link), "the link",
                    at_most=1.15, command=command("bench_halo", faces))
        run.bar(f"halo-messages/{case}", f"{text}: messages per direction, consolidated", over(of(f"halo/{case}/consolidated:node_messages"), 2),
                unit="messages", at_most=1, command=command("bench_halo", faces))
    for every in (2, 4, 8):
        run.bar(f"deep/{every}", f"deep halo, 8 steps of 64² cells: exchange in {every} steps", of(f"heat/64/every{every}/shared"),
                of("heat/64/every1/shared"), "every step", speed=True, command=command("bench_deep_halo", "^heat/64/.*/shared/", 1))
    for other, text in (("interior_first", "interior first"), ("blocking", "blocking")):
        run.bar(f"chain/{other}", "eight thin layers, one wide exchange for all of them", of("chain/recompute_halo"), of(f"chain/{other}"), text,
                speed=True, command=command("bench_conv", "^chain/", 1))
    longer = max(filter(None, (of("overlap/computation"), of("overlap/communication"))), default=None)
    for way, text, most in (("interior_first", "interior in slabs", 1.3), ("progress_thread", "progress thread", None), ("blocking", "blocking", None)):
        run.bar(f"overlap/{way}", f"c64_256, halos as long as the computation: {text}", of(f"overlap/{way}"), longer, "the longer of both",
                at_most=most, command="bench/overlap.sh")


# Tables: pure functions of the figures

def number(value):
    if value is None:
        return "–"
    value = float(f"{value:.3g}")
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.{1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 3}f}"


def figure(value, unit):
    return f"{number(value)} {unit}" if value is not None else "–"


def table(headings, rows):
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def ratio_of(bar):
    """Bold where the requirement is missed."""
    if bar is None or "left_out" in bar:
        return "–"
    text = number(bar["ratio"])
    return f"**{text}**" if bar["met"] is False else text


def required(bar):
    if not bar["required"]:
        return "–"
    texts = {"at_most": "at most", "at_least": "at least"}
    unit = "" if bar["ratio"] is not None or bar["unit"] in ("messages",) else f" {bar['unit']}"
    if bar["unit"] in ("ms", "µs") and bar["ratio"] is None:
        unit = " s"
    return ", ".join(f"{texts[key]} {value:g}{unit}" for key, value in bar["required"].items())


def bar_table(bars):
    rows = []
    for bar in bars:
        peer = f"{bar['peer_name']}: {figure(bar['peer'], bar['unit'])}" if bar["peer_name"] else "–"
        ratio = f"{number(bar['ratio'])} {'× as fast' if bar['ratio_is'] == 'times as fast' else '× the time'}" if bar["ratio"] is not None else "–"
        if bar["unit"] == "bytes" and bar["ratio"] is not None:
            ratio = f"{number(bar['ratio'])} × the bytes"
        met = {True: "yes", False: "**no**", None: "–"}[bar["met"]]
        rows.append([bar["what"], figure(bar["ours"], bar["unit"]), peer, ratio, required(bar), met])
    return table(["bar", "ours", "peer", "ratio", "required", "met"], rows)


def microseconds(bar, key):
    if bar is None or "left_out" in bar:
        return "–"
    return number(bar[key] * {"µs": 1, "ms": 1e3, "s": 1e6}[bar["unit"]])


def all_reduce_matrix(bars):
    rows = []
    for size in SIZES:
        of = {name: bars.get(f"all_reduce/{size}/{name}") for name in ("shared/Open MPI", "private/Open MPI", "shared/gloo", "private/gloo")}
        rows.append([size_text(size), microseconds(of["shared/Open MPI"], "ours"), microseconds(of["private/Open MPI"], "ours"),
                     microseconds(of["shared/Open MPI"], "peer"), microseconds(of["private/gloo"], "peer"),
                     *(ratio_of(of[name]) for name in of)])
    return table(["size", "shared, µs", "private, µs", "Open MPI, µs", "gloo, µs", "Open MPI / shared", "Open MPI / private", "gloo / shared",
                  "gloo / private"], rows)


def convolution_matrix(bars):
    rows = []
    for name in LAYERS:
        for one in PASSES:
            of = [bars.get(f"convolution/{name}/{one}/{split}") for split in ("h2", "w2", "c2", "f2")]
            limit = next((microseconds(bar, "peer") for bar in of if bar and "left_out" not in bar), "–")
            rows.append([f"{name}, {pass_text(one)}", limit, *map(ratio_of, of)])
    return table(["layer, pass", "oneDNN, µs", "height", "width", "channels", "filters"], rows)


def framework_matrix(bars):
    rows = []
    for name in LAYERS:
        pytorch, jax = (bars.get(f"frameworks/{name}/{peer}") for peer in ("PyTorch", "JAX"))
        ours = next((microseconds(bar, "ours") for bar in (pytorch, jax) if bar and "left_out" not in bar), "–")
        rows.append([name, ours, microseconds(pytorch, "peer"), ratio_of(pytorch), microseconds(jax, "peer"), ratio_of(jax)])
    return table(["layer", "ours, µs", "PyTorch, µs", "PyTorch / ours", "JAX, µs", "JAX / ours"], rows)


def matrix_part(matrix, in_matrix):
    """A wide table of the bars whose id matches, then the others one by one."""
    def render(bars):
        rest = [bar for bar in bars if not re.match(in_matrix, bar["id"]) and "left_out" not in bar]
        inside = [bar for bar in bars if re.match(in_matrix, bar["id"]) and bar.get("met") is not None]
        text = matrix({bar["id"]: bar for bar in bars})
        text += f"\nMet: {sum(bar['met'] for bar in inside)} of {len(inside)} requirements; the others are bold.\n"
        return text + ("\n" + bar_table(rest) if rest else "")
    return render


def left_out(bars):
    reasons = {}
    for bar in bars:
        if "left_out" in bar:
            reasons.setdefault(bar["left_out"], []).append(bar["id"])
    lines = [f"- Left out: {', '.join(f'`{name}`' for name in (ids if len(ids) < 4 else ids[:1]))}"
             + (f" and {len(ids) - 1} more" if len(ids) > 3 else "") + f": {reason}\n" for reason, ids in reasons.items()]
    return "\n" + "".join(lines) if lines else ""


def section_tables(data, name):
    about = data["sections"].get(name)
    if about is None:
        return "Not measured yet.\n"
    bars = [bar for bar in data["bars"] if bar["section"] == name]
    default = lambda all_bars: bar_table([bar for bar in all_bars if "left_out" not in bar])
    text = (SECTIONS[name].render or default)(bars)
    turns = f"{about['turns']} turn{'s' if about['turns'] > 1 else ''}"
    quick = " **A smoke run: these figures mean nothing.**" if about["quick"] else ""
    return f"{text}{left_out(bars)}\n{about['date']}, commit {about['commit']}, {turns}. {SECTIONS[name].statistic}{quick}\n"


def machine_table(data):
    machine = data["machine"]
    rows = [["processor", machine["processor"]], ["cores used", str(machine["cores"])], *map(list, sorted(machine["libraries"].items()))]
    return table(["machine", "value"], rows)


SUMMARY = ("training/n2-b64", "training/n2-b1024", "threads/step-b1024", "all_reduce/1048576/shared/Open MPI", "all_reduce/33554432/shared/Open MPI",
           "halo/image512-c64/h2/forward", "stencil/all", "convolution/c64_256/forward/h2")


def summary_table(data):
    """At most ten rows for the README."""
    bars = {bar["id"]: bar for bar in data["bars"] if "left_out" not in bar}
    titles = {"training": "Training of LeNet-5", "threads": "One rank with two threads", "all_reduce": "All-reduce", "halo": "Halo exchange",
              "stencil": "Stencil halo", "convolution": "Convolution"}
    rows = []
    for name in SUMMARY:
        if name in bars:
            bar = bars[name]
            what = f"{titles[bar['section']]}: {bar['what'].removeprefix('LeNet-5, ')}"
            sign = "× as fast" if bar["ratio_is"] == "times as fast" else "× the time"
            rows.append([what, figure(bar["ours"], bar["unit"]), f"{bar['peer_name']}: {figure(bar['peer'], bar['unit'])}", f"{number(bar['ratio'])} {sign}"])
    for peer in ("PyTorch", "JAX"):
        ratios = [bars[f"frameworks/{name}/{peer}"]["ratio"] for name in LAYERS if f"frameworks/{name}/{peer}" in bars]
        if ratios:
            rows.append([f"Convolution: {len(ratios)} layers, forward and backward", "–", f"{peer}, two {'threads' if peer == 'PyTorch' else 'devices'}",
                         f"{number(min(ratios))} to {number(max(ratios))} × as fast"])
    return table(["bar", "ours", "peer", "ratio"], rows)


class Section:
    def __init__(self, measure, turns, render=None):
        self.measure, self.turns, self.render = measure, turns, render
        self.statistic = measure.__doc__


SECTIONS = {
    "training": Section(training, 5),
    "threads": Section(threads, 3),
    "all_reduce": Section(all_reduce, 5, matrix_part(all_reduce_matrix, r"all_reduce/\d")),
    "halo": Section(halo, 5),
    "stencil": Section(stencil, 3),
    "placement": Section(placement, 3),
    "convolution": Section(convolution, 3, matrix_part(convolution_matrix, r"convolution/(?!chain)")),
    "frameworks": Section(frameworks, 2, matrix_part(framework_matrix, r"frameworks/")),
    "local_kernels": Section(local_kernels, 2),
    "sizes": Section(sizes, 1),
    "two_hosts": Section(two_hosts, 1),
}


def tables_of(data, name):
    """The text between the markers NAME. Throws KeyError if there is no such section."""
    return {"machine": machine_table, "summary": summary_table}.get(name, lambda d: section_tables(d, name if name in SECTIONS else SECTIONS[name]))(data)


def with_tables(text, data):
    """A document's text with the tables of `data` between its markers."""
    return MARKED.sub(lambda match: match[1] + tables_of(data, match[2]) + match[4], text)


def write_tables(data):
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        document.write_text(with_tables(text, data), encoding="utf-8")
        say(f"{document.relative_to(ROOT)}: {len(MARKED.findall(text))} parts written")


# The whole

def read(file):
    try:
        return json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        sys.exit(f"report.py: {file} is not JSON ({error}); remove it and measure again")


def enter(data, run, about):
    """Replaces the section's bars; keeps the order of SECTIONS."""
    bars = [bar for bar in data["bars"] if bar["section"] != run.section] + run.bars
    data["bars"] = [bar for name in SECTIONS for bar in bars if bar["section"] == name]
    data["sections"] = {name: about if name == run.section else data["sections"][name] for name in SECTIONS
                        if name == run.section or name in data["sections"]}
    data["machine"] = run.machine | {"libraries": data["machine"]["libraries"] | run.machine["libraries"] | library_versions()}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="SECTION", help=f"one of {', '.join(SECTIONS)}; may be repeated")
    parser.add_argument("--json", default=str(FIGURES), metavar="FILE", help="other figures than docs/performance.json; leaves the documents alone")
    parser.add_argument("--tables", action="store_true", help="write the tables from the existing figures")
    parser.add_argument("--turns", type=int, help="of all sections, instead of their own")
    parser.add_argument("--quick", action="store_true", help="a smoke run of minutes; its figures mean nothing")
    parser.add_argument("--python", action="append", metavar="PATH", help="a Python with PyTorch, JAX or both; may be repeated; default: $PYTHON")
    options = parser.parse_args()
    options.python = options.python or list(filter(None, (os.environ.get("PYTHON"), os.environ.get("JAX_PYTHON"))))
    if options.turns is not None and options.turns < 1:
        parser.error(f"--turns {options.turns}: at least 1")
    return options


def main():
    options = arguments()
    file = pathlib.Path(options.json).resolve()
    data = read(file)
    if options.tables:
        if data is None:
            sys.exit(f"report.py: no {file}; measure first")
        write_tables(data)
        return
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))
    run = Run(options)
    other = data is not None and any(data["machine"][key] != run.machine[key] for key in ("processor", "cores"))
    if other and options.only:
        sys.exit(f"report.py: the figures of {file} are of another machine ({data['machine']['processor']}); measure all sections, or use --json")
    if data is None or other:
        data = {"machine": run.machine, "sections": {}, "bars": []}
    if not options.only:
        data["machine"]["libraries"] = {}
    commit, begin = git_commit(), time.monotonic()
    for name in options.only or SECTIONS:
        start = time.monotonic()
        say(f"== {name}")
        run.start_section(name)
        about = {"date": datetime.date.today().isoformat(), "commit": commit, "turns": run.turns, "quick": options.quick}
        SECTIONS[name].measure(run)
        enter(data, run, about)
        file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        say(f"{name}: {time.monotonic() - start:.0f} s")
    say(f"all: {time.monotonic() - begin:.0f} s; {file}")
    if file == FIGURES:
        write_tables(data)


if __name__ == "__main__":
    main()
