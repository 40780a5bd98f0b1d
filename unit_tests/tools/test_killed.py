"""Kills or stops one rank of `aloni train` in each of its phases, at a random time or in a random call.

start      while MPI starts: at a random time, or in a system call
set_up     in a system call or a call of MPI that makes the communicator
exchange   in one of the first halo exchanges
training   at a random time of a long training
farewell   when the ranks tell each other their outcome, or shortly later
finalize   when MPI_Finalize begins, or shortly later

The command must end in time, and say in its own words which rank has failed, and no other rank. No process and no file
may stay behind. Each run draws 2 to 8 ranks, one node or three simulated nodes, and a launcher that ends the other
ranks or one that does not. Three runs at a time.

Two kinds of runs need no such line. Before any other rank has begun to run, the launcher alone can speak; these runs
are no trials. A rank that fails in MPI_Finalize, or shortly after the begin of its farewell, may have done all that the
others need; then they may end by themselves within two seconds.

PMIx 4.2 may lock a mutex of a freed object when ranks have ended while MPI starts. Then Open MPI's launcher hangs in
its own end: all ranks have ended, and all lines have been printed. These runs are counted, but are no failures.

ALONI_CALL_FAULTS is the library that acts in a call (support/call_faults.cpp). Without it, as under sanitizers, the
phases have random times: start, training, and farewell, which then includes MPI_Finalize.

ALONI_KILLS and ALONI_STOPS set the numbers of runs. The seed is printed; ALONI_SEED repeats the draws.
"""
import collections
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from command import COMMAND, DATA, MPIRUN, SLOWDOWN, with_strategy
from processes import descendants, lives, ranks_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from experiment import record
from left_behind import own_files

KILLS, STOPS = int(os.environ.get("ALONI_KILLS", "5")), int(os.environ.get("ALONI_STOPS", "2"))
AT_ONCE = 3
STUCK_AFTER = 3  # seconds
# Seconds in which ranks end that have finished: a communicator waits one second for the others.
BY_THEMSELVES = 1.8 * SLOWDOWN
MOST = {"KILL": 10 * SLOWDOWN, "STOP": STUCK_AFTER + 5 * SLOWDOWN}  # seconds from the signal to the end
CALL_FAULTS = os.environ.get("ALONI_CALL_FAULTS")
# Phases of random times: number of epochs, the text after which it has begun, seconds of the latest signal after that.
TIMES = {"start": (1, "", 0.6 * SLOWDOWN), "training": (1000, "test images of", 1.0)}
if not CALL_FAULTS:
    TIMES["farewell"] = (1, "accuracy", 0.1 * SLOWDOWN)
PHASES = ("start", "set_up", "exchange", "training", "farewell", "finalize") if CALL_FAULTS else tuple(TIMES)
SIZES = {1: (2, 3, 4, 5, 6, 7, 8), 3: (3, 5, 6, 7, 8)}  # nodes: numbers of ranks

# In a call: its name, its number from 1, and the microseconds from the call to the signal.
Fault = collections.namedtuple("Fault", "call number delay")
Outcome = collections.namedtuple("Outcome", "phase text good seconds named launcher_hangs")


def is_ready(process):
    """Whether the program has begun: it catches SIGTERM. Before, the launcher's SIGTERM ends it without a word."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    except (OSError, StopIteration):
        return False


def wait_for(condition, launcher, limit=60 * SLOWDOWN):
    """Whether the condition came true before the launcher ended."""
    begun = time.monotonic()
    while time.monotonic() - begun < limit and launcher.poll() is None:
        if condition():
            return True
        time.sleep(0.003)
    return False


def end_all(processes, launcher):
    """Whether the launcher has ended by itself. None: it hangs in its own end, after the end of all ranks."""
    for process in processes:  # a launcher that does not clean up waits for the stopped rank
        if lives(process):
            os.kill(process, signal.SIGKILL)
    try:
        launcher.wait(timeout=10 * SLOWDOWN)
        return True
    except subprocess.TimeoutExpired:
        ranks_have_ended = not any(lives(process) for process in descendants(launcher.pid))
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
        return None if ranks_have_ended else False


def drawn_fault(phase, size, nodes, victim, chance):
    """The call of a phase. All of these numbers occur in each run."""
    if phase == "start":
        return Fault("any", chance.randint(1, 100), 0)
    if phase == "set_up":
        calls = {"memfd_create": 3, "ftruncate": 2, "mmap": 10, "open": 5, "pidfd_open": size - 1, "MPI_Comm_idup": 3,
                 "MPI_Iallgather": 8}
        if nodes > 1 and victim % ranks_per_node(size, nodes) == 0:  # it has connections to other nodes
            calls |= {"socket": 4, "bind": 1, "listen": 1, "connect": 3}
        call = chance.choice(list(calls))
        return Fault(call, chance.randint(1, calls[call]), 0)
    later = chance.random() < 0.5
    if phase == "exchange":
        return Fault("region", chance.randint(1, 6), chance.randint(1, 500) if later else 0)
    call = {"farewell": "farewell", "finalize": "MPI_Finalize"}[phase]
    return Fault(call, 1, chance.randint(1, 5000) if later else 0)


def ranks_per_node(size, nodes):
    return -(-size // nodes) if nodes > 1 else 0


class Run:
    """One run of the command, and its processes."""

    def __init__(self, size, nodes, recovers, arguments, variables):
        self.output = tempfile.TemporaryFile("w+")
        training = ("train", "--data", DATA, "--batch", "256", "--progress", "none", "--stuck-after", str(STUCK_AFTER),
                    "--ranks-per-node", str(ranks_per_node(size, nodes)), *arguments)
        command = [MPIRUN, *(["--enable-recovery"] if recovers else []), "-n", str(size), COMMAND,
                   *with_strategy(training, size)]
        self.launcher = subprocess.Popen(command, stdout=self.output, stderr=self.output, start_new_session=True,
                                         env=os.environ | variables)
        self.known = {}  # rank: process

    def text(self):
        return os.pread(self.output.fileno(), 1 << 20, 0).decode(errors="replace")

    def look(self):
        self.known |= ranks_of(self.launcher.pid)

    def can_speak(self, victim):
        """Whether another rank can."""
        self.look()
        return any(is_ready(process) for rank, process in self.known.items() if rank != victim)

    def signal_at(self, victim, kind, begins_with, after):
        """Sends the signal and returns its time; None if it would be none of a rank at work, or of the only one."""
        if wait_for(lambda: self.look() or victim in self.known, self.launcher):
            wait_for(lambda: begins_with in self.text(), self.launcher)
            time.sleep(after)
        others_can_speak = self.can_speak(victim)
        if self.launcher.poll() is not None or victim not in self.known or not others_can_speak:
            return None
        if not lives(self.known[victim]):
            return None
        begun = time.monotonic()
        os.kill(self.known[victim], signal.SIGKILL if kind == "KILL" else signal.SIGSTOP)
        return begun

    def signal_in_call(self, victim, times):
        """Waits until the library has acted. Returns the time, which it wrote to a file; None as above."""
        def acted():
            self.look()
            return times.exists() and times.read_text().endswith("\n")
        if not wait_for(acted, self.launcher) or not self.can_speak(victim):
            return None
        return float(times.read_text())


def trial(seed, kind):
    """The outcome; None if the signal came before any other rank had begun, or too late."""
    with tempfile.TemporaryDirectory() as folder:
        return trial_in(pathlib.Path(folder), seed, kind)


def trial_in(folder, seed, kind):
    chance = random.Random(seed)
    nodes, phase = chance.choice(list(SIZES)), chance.choice(PHASES)
    size = chance.choice(SIZES[nodes])
    victim, recovers = chance.randrange(size), chance.random() < 0.5
    variables, arguments, fault = {}, ["--steps", "2"], None
    if phase not in TIMES or (phase == "start" and CALL_FAULTS and chance.random() < 0.5):
        fault = drawn_fault(phase, size, nodes, victim, chance)
        variables = {"LD_PRELOAD": CALL_FAULTS, "ALONI_CALL_FAULT_FILE": str(folder / "time"),
                     "ALONI_CALL_FAULT": f"{victim} {kind} {fault.call} {fault.number} {fault.delay}"}
        when = f"call {fault.number} of {fault.call} + {fault.delay} µs"
        if phase == "exchange":
            variables["KOKKOS_TOOLS_LIBS"] = CALL_FAULTS
            arguments += ["--strategy", f"h{size}"]
    else:
        epochs, begins_with, latest = TIMES[phase]
        after = chance.random() * latest
        arguments, when = ["--epochs", str(epochs)], f"{after:.2f} s"
    case = f"{kind} of rank {victim} of {size} on {nodes} nodes, {phase}, {when}, " + \
        ("a launcher that does not clean up" if recovers else "a launcher that cleans up")
    run = Run(size, nodes, recovers, arguments, variables)
    with run.output:
        launcher, known, text = run.launcher, run.known, run.text
        begun = run.signal_in_call(victim, folder / "time") if fault else \
            run.signal_at(victim, kind, begins_with, after)
        if begun is None:
            end_all(known.values(), launcher)
            return None
        others = {rank for rank in known if rank != victim}
        while time.monotonic() - begun < MOST[kind] + 10 and any(lives(known[r]) for r in others):
            run.look()
            others = {rank for rank in known if rank != victim}
            time.sleep(0.01)
        took = time.monotonic() - begun
        left = [rank for rank in others if lives(known[rank])]
        launcher_ended = end_all(known.values(), launcher)
        written = text()
    # Before its farewell begins, the others still need the rank.
    may_be_quiet = phase == "finalize" or (phase == "farewell" and not (fault and fault.delay == 0))
    lines = [line for line in written.splitlines() if line.startswith("aloni: ")]
    named = {int(rank) for line in lines for rank in re.findall(r"\brank (\d+) failed\b", line)}
    problem = ""
    if left or took > MOST[kind]:
        problem = f"ranks {left or 'all'} ended after {took:.1f} s"
    elif launcher_ended is False:
        problem = "the launcher does not end"
    elif named - {victim}:
        problem = f"ranks {sorted(named)} are named"
    elif not named and not (may_be_quiet and took <= BY_THEMSELVES):
        problem = f"no line names the rank, {took:.1f} s"
    told = f"{case}: {took:.1f} s, {'; '.join(lines[:1]) or 'no line'}"
    if problem:
        told = f"{case}: {problem} (seed {seed})\n{written}"
    elif launcher_ended is None:
        told += "; the launcher hangs"
    print(told, flush=True)
    return Outcome(phase, told, not problem, took, bool(named), launcher_ended is None)


def trials(kind, count, chance):
    """At least `count` outcomes, three runs at a time; those that were running when the last one ended count too."""
    outcomes, lock, seeds = [], threading.Lock(), [chance.randrange(1 << 30) for _ in range(10 * count + 10)]

    def work():
        while True:
            with lock:
                if len(outcomes) >= count or not seeds:
                    return
                seed = seeds.pop(0)
            outcome = trial(seed, kind)
            with lock:
                if outcome:
                    outcomes.append(outcome)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in [pool.submit(work) for _ in range(AT_ONCE)]:
            done.result()
    return outcomes


def main():
    seed = int(os.environ.get("ALONI_SEED", random.randrange(1 << 30)))
    print("seed", seed, flush=True)
    chance, failures, before = random.Random(seed), [], own_files()
    for kind, count in (("KILL", KILLS), ("STOP", STOPS)):
        outcomes = trials(kind, count, chance)
        if len(outcomes) < count:
            failures.append(f"{kind}: only {len(outcomes)} of {count} runs met a rank at work")
        failures += [o.text for o in outcomes if not o.good]
        hanging = sum(o.launcher_hangs for o in outcomes)
        print(f"{kind}: the launcher hung in {hanging} runs, after the end of all ranks")
        record(f"launcher/{kind.lower()}", len(outcomes), hanging, [])
        for phase in PHASES:
            here = [o for o in outcomes if o.phase == phase]
            record(f"{kind.lower()}/{phase}", len(here), sum(not o.good for o in here), [o.seconds for o in here])
            quiet = sum(not o.named for o in here)
            print(f"{kind}, {phase}: {len(here)} runs, {quiet} of them without a line of the command")
    if left := own_files() - before:
        failures.append(f"left behind: {sorted(left)}")
    if failures:
        sys.exit(f"{len(failures)} of {KILLS + STOPS} runs:\n" + "\n".join(failures))


main()
