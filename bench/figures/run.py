"""Runs the suites and peers for bench/report.py: commands, times, versions, and the bars of a section."""
import glob
import json
import os
import pathlib
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = "build/host/bin/"
MICRO = 1e-6
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}


class Failed(Exception):
    """A program failed or a peer is missing; the text is the reason."""


def aloni(build, launcher, arguments, environment=None):
    """What the command writes with --json. Throws Failed with its error."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "out.json"
        done = subprocess.run([*launcher, str(build / "bin/aloni"), *arguments, "--json", str(path)], cwd=ROOT,
                              env=clean_environment() | ONE_THREAD | (environment or {}), capture_output=True,
                              text=True, check=False)
        if done.returncode == 0:
            return json.loads(path.read_text(encoding="utf-8"))
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith("aloni: ")]
        raise Failed(lines[0] if lines else f"exit status {done.returncode}")


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

    def start_section(self, name, turns):
        self.section, self.bars, self.problems = name, [], []
        self.turns = 1 if self.options.quick else self.options.turns or turns

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
            end(process)
            raise Failed(f"{program_of(command)}: no result after {limit} s") from None
        except BaseException:  # this program is interrupted
            end(process)
            raise
        if process.returncode:
            lines = [line for line in (errors + output).splitlines() if line.strip(" -")]
            first = lines[0].strip() if lines else "no message"
            raise Failed(f"{program_of(command)}: exit status {process.returncode}: {first[:160]}")
        return output

    def suite(self, name, cases, *, ranks=2, min_time=0.3, fastest=False, threads="1", pinned=False, extra=(),
              hosts=None, limit=600):
        """{case: seconds, "case:counter": value} of a Google Benchmark suite. Seconds are the mean, or with `fastest`
        those of the fastest batch. `threads`: OMP_NUM_THREADS, None to leave it unset. `hosts`: a placement of two
        shaped hosts, `ranks` on each."""
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/out.json"
            program = [BIN + name, f"--benchmark_filter={cases}", f"--benchmark_min_time={self.seconds(min_time)}",
                       *extra, f"--benchmark_out={file}", "--benchmark_out_format=json"]
            environment = clean_environment()
            if threads is not None:
                environment |= ONE_THREAD | {"OMP_NUM_THREADS": threads}
            if hosts:
                command = ["bench/two_hosts.sh", "run", str(ranks), *program]
                environment |= {"PLACE": hosts}
            else:
                command = launched(ranks, program, pinned)
            self.program(command, environment, limit)
            with open(file, encoding="utf-8") as stream:
                content = json.load(stream)
        context = content["context"]
        compiler = context["compiler"]
        compiler = f"GCC {compiler}" if compiler[0].isdigit() else compiler
        self.machine["libraries"] |= {"Kokkos": context["kokkos"], "MPI": context["mpi"], "compiler": compiler}
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

    def train(self, *words, model="lenet5", data="examples/data/mnist_subset", pinned=False):
        """The JSON of `aloni train` on two ranks of one thread."""
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/out.json"
            program = [BIN + "aloni", "train", "--model", model, "--data", data, *map(str, words), "--progress", "none",
                       "--json", file]
            self.program(launched(2, program, pinned), clean_environment() | ONE_THREAD)
            with open(file, encoding="utf-8") as stream:
                return json.load(stream)

    def quick_machine(self, folder):
        """The path of the machine file that `aloni calibrate --quick` writes into the folder, at the first call."""
        path = pathlib.Path(folder) / "machine.json"
        if not path.exists():
            program = [BIN + "aloni", "calibrate", "--quick", "--output", str(path)]
            self.program(launched(2, program), clean_environment() | ONE_THREAD | {"XDG_CACHE_HOME": str(folder)})
        return str(path)

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
        bar = {"id": f"{self.section}/{name}", "section": self.section, "what": what}
        self.bars.append(bar)
        if ours is None or (peer_name and peer is None):
            bar["left_out"] = "ours" if ours is None else peer_name
            return
        speed = speed or (peer is not None and at_least is not None)
        ratio = None
        if peer is not None:
            larger_is_better = unit == "GFLOP/s"
            ratio = ours / peer if speed == larger_is_better else peer / ours
        measured = ours if ratio is None else ratio
        met = None if at_most is None and at_least is None else (
            (at_most is None or measured <= at_most) and (at_least is None or measured >= at_least))
        if unit == "s":
            largest = max(ours, peer or 0)
            unit, scale = ("s", 1) if largest >= 1 else ("ms", 1e3) if largest >= 1e-3 else ("µs", 1e6)
            ours, peer = ours * scale, None if peer is None else peer * scale
        bar |= {"ours": digits(ours), "unit": unit, "peer_name": peer_name or None, "peer": digits(peer),
                "ratio": digits(ratio), "ratio_is": "times as fast" if speed else "times the time",
                "at_most": at_most, "at_least": at_least, "met": met, "command": command}


def end(process):
    process.terminate()  # a launcher then ends its ranks
    try:
        process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def launched(ranks, program, pinned=False):
    """The command that runs a program on ranks; `pinned`: each rank on a core of its own."""
    if not pinned:
        return ["scripts/mpirun", "-n", str(ranks), *program]
    command = ["scripts/mpirun"]
    for rank, core in zip(range(ranks), sorted(os.sched_getaffinity(0))):
        command += [":"] * (rank > 0) + ["-n", "1", "taskset", "-c", str(core), *program]
    return command


def digits(value):
    """Four digits; counts stay whole."""
    return value if value is None or value == int(value) else float(f"{value:.4g}")


def say(text):
    print(f"report.py: {text}", file=sys.stderr, flush=True)


def shown(command, environment):
    """A command as a person would type it."""
    names = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "PLACE")
    words = [word for word in map(str, command) if not word.startswith("--benchmark_out")]
    return shlex.join([f"{name}={environment[name]}" for name in names if name in environment] + words)


def program_of(command):
    """The program and its filter, without launcher and output files."""
    words = [word for word in command if word.startswith(("build/", "bench/compare/", "--benchmark_filter"))]
    return " ".join(words[:2]) or command[0]


def clean_environment():
    """Without settings of the caller that change times."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "OPENBLAS_", "KOKKOS_"))}


def environment_of(python):
    """With the libraries of a PyTorch that was installed in part (bench/compare/README.md)."""
    packages = output_of(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])")
    folders = sorted(glob.glob(f"{packages}/nvidia/*/lib")) + glob.glob("/usr/local/cuda/lib64")
    return clean_environment() | {"LD_LIBRARY_PATH": ":".join(folders + [os.environ.get("LD_LIBRARY_PATH", "")])}


def processor():
    fields = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", "").split()
    vectors = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "no AVX2"
    family, model = fields.get("cpu family", "?"), fields.get("model", "?")
    return f"{fields.get('model name', 'unknown')}, family {family} model {model}, {vectors}"


def library_versions():
    """Packages of oneDNN and BLAS, by the files that the loader finds."""
    loaded = output_of("ldd", str(ROOT / BIN / "bench_local_conv"))
    versions = {}
    for name, library in (("oneDNN", "libdnnl"), ("BLAS", r"lib\w*blas")):
        if match := re.search(rf"{library}\S* => (\S+)", loaded):
            path = pathlib.Path(match[1]).resolve()
            package = output_of("dpkg-query", "-S", str(path)).partition(": ")[0].split(",")[0]
            version = output_of("dpkg-query", "-W", "-f=${Version}", package) if package else ""
            versions[name] = f"{package.partition(':')[0]} {version}" if version else path.name
    return versions


def output_of(*command):
    """Standard output; empty if there is no such program."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def run_text(suite, cases, ranks=2):
    """The command of Run.suite() as a person would type it."""
    return f"OMP_NUM_THREADS=1 scripts/mpirun -n {ranks} {BIN}{suite} --benchmark_filter='{cases}'"


def pass_text(name):
    """The pass of a convolution, for people."""
    return name.replace("_", "-")


def median(values, name):
    return statistics.median(values[name]) if values.get(name) else None


def fastest(values, name):
    return min(values[name]) if values.get(name) else None


def times(a, b):
    return None if a is None or b is None else a * b


def over(a, b):
    return None if a is None or b is None else a / b
