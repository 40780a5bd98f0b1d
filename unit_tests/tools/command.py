"""Runs the aloni command as a user does: under the launcher, with a time limit. The tests in this folder share it.

Environment: ALONI_COMMAND is the program, ALONI_MPIRUN the launcher script, ALONI_DATA the folder of the MNIST subset.
ALONI_SLOWDOWN multiplies time limits (sanitizers)."""
import os
import re
import signal
import subprocess
import sys
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

COMMAND = os.environ["ALONI_COMMAND"]
MPIRUN = os.environ["ALONI_MPIRUN"]
DATA = os.environ["ALONI_DATA"]
SLOWDOWN = float(os.environ.get("ALONI_SLOWDOWN", "1"))

USAGE, FAILURE = 2, 1

# Open MPI cannot start with WITHOUT_MPI: it has no transport of that name.
LAUNCHERS = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "MV2_", "FLUX_", "ALPS_", "PALS_", "JSM_")
SHELL = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
WITHOUT_MPI = SHELL | {"OMPI_MCA_pml": "nonsense", "OMPI_MCA_btl": "nonsense"}


class Result:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds
        self.timed_out = code is None

    def own_lines(self):
        """Lines of stderr without the launcher's own output: its reports of exit codes between lines of dashes, and
        warnings of its libevent about the closed pipe of a rank."""
        text = re.sub(r"(?ms)^-{60,}\n.*?^-{60,}\n", "", self.err)
        return [line for line in text.splitlines() if line.strip() and not line.startswith("[warn] Epoll ")]


def start(arguments, **options):
    # A new session, so that a signal reaches the whole tree of processes.
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                            start_new_session=True, **options)


def finish(process, limit):
    began = time.monotonic()
    try:
        out, err = process.communicate(timeout=limit * SLOWDOWN)
        return Result(process.returncode, out, err, time.monotonic() - began)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            out, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        return Result(None, out, err, time.monotonic() - began)


def with_strategy(arguments, ranks):
    """A training without --strategy times several ones, which may differ in the last bits and take seconds. Tests of
    other things split the samples."""
    if arguments[:1] != ("train",) or ranks < 2 or {"--strategy", "--config", "--help"} & set(arguments):
        return arguments
    return (*arguments, "--strategy", f"n{ranks}")


def aloni(*arguments, ranks=1, limit=60, **options):
    """Runs `aloni <arguments>` on `ranks` ranks; 0: without the launcher. `limit`: seconds. Samples are split where a
    training names no strategy."""
    launcher = [MPIRUN, "-n", str(ranks)] if ranks else []
    return finish(start(launcher + [COMMAND, *with_strategy(arguments, ranks)], **options), limit)


def aloni_each(*argument_lists, limit=60):
    """Runs one rank per list, each with its own arguments. `limit`: seconds."""
    line = [MPIRUN]
    for arguments in argument_lists:
        arguments = with_strategy(tuple(arguments), len(argument_lists))
        line += ([":"] if len(line) > 1 else []) + ["-n", "1", COMMAND, *arguments]
    return finish(start(line), limit)


def run_side_by_side(case, workers=4, done=lambda: None):
    """unittest.main() for test methods that mostly wait for processes: several at a time. Arguments: names of methods.
    Calls `done` after the last one."""
    names = sys.argv[1:] or unittest.defaultTestLoader.getTestCaseNames(case)

    def run(name):
        result = unittest.TestResult()
        case(name).run(result)
        return name, result

    with ThreadPoolExecutor(workers) as pool:
        results = list(pool.map(run, names))
    done()
    for name, result in results:
        for _, text in result.failures + result.errors:
            print(f"{name} failed:\n{text}", file=sys.stderr)
        for _, reason in result.skipped:
            print(f"{name} is left out: {reason}")
    good = sum(result.wasSuccessful() for _, result in results)
    print(f"{good} of {len(results)} tests passed")
    sys.exit(good != len(results) or not results)
