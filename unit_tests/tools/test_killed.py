"""Kills or stops one rank of `aloni train` at a random time: while MPI starts, in the training, or at the end.

The command must end in time, and say in its own words which rank has failed, and no other rank. No process and no file
may stay behind. Each run draws 2 to 8 ranks, one node or three simulated nodes, and a launcher that ends the other
ranks or one that does not. Three runs at a time.

Two kinds of runs need no such line. Before any other rank has begun to run, the launcher alone can speak; these runs
are no trials. After the results have been printed, the other ranks may end by themselves within two seconds.

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

from command import COMMAND, DATA, MPIRUN, SLOWDOWN

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from experiment import record
from left_behind import own_files

KILLS, STOPS = int(os.environ.get("ALONI_KILLS", "8")), int(os.environ.get("ALONI_STOPS", "3"))
AT_ONCE = 3
STUCK_AFTER = 3  # seconds
# Seconds in which ranks end that have finished: a communicator waits one second for the others.
BY_THEMSELVES = 1.8 * SLOWDOWN
MOST = {"KILL": 10 * SLOWDOWN, "STOP": STUCK_AFTER + 5 * SLOWDOWN}  # seconds from the signal to the end
# Phase: number of epochs, the text after which it has begun, and seconds of the latest signal after that.
PHASES = {"start": (1, "", 0.6 * SLOWDOWN), "training": (1000, "test images of", 1.0), "end": (1, "accuracy", 0.1 * SLOWDOWN)}
SIZES = {1: (2, 3, 4, 5, 6, 7, 8), 3: (3, 5, 6, 7, 8)}  # nodes: numbers of ranks

Outcome = collections.namedtuple("Outcome", "phase text good seconds named")


def environment_of(process):
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    except OSError:
        return {}


def descendants(process):
    try:
        with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
    except OSError:
        return []
    return children + [further for child in children for further in descendants(child)]


def ranks_of(launcher):
    """{rank: process}"""
    ranks = {}
    for process in descendants(launcher):
        rank = environment_of(process).get(b"PMIX_RANK")
        if rank is not None:
            ranks.setdefault(int(rank), process)
    return ranks


def lives(process):
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


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
    """Whether the launcher has ended by itself."""
    for process in processes:  # a launcher that does not clean up waits for the stopped rank
        if lives(process):
            os.kill(process, signal.SIGKILL)
    try:
        launcher.wait(timeout=20)
        return True
    except subprocess.TimeoutExpired:
        os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
        return False


def trial(seed, kind):
    """The outcome; None if the signal came before any other rank had begun, or too late."""
    chance = random.Random(seed)
    nodes, phase = chance.choice(list(SIZES)), chance.choice(list(PHASES))
    size = chance.choice(SIZES[nodes])
    victim, recovers = chance.randrange(size), chance.random() < 0.5
    epochs, begins_with, latest = PHASES[phase]
    after = chance.random() * latest
    case = f"{kind} of rank {victim} of {size} on {nodes} nodes, {phase} + {after:.2f} s, " + \
        ("a launcher that does not clean up" if recovers else "a launcher that cleans up")
    command = [MPIRUN, *(["--enable-recovery"] if recovers else []), "-n", str(size), COMMAND, "train", "--data", DATA,
               "--epochs", str(epochs), "--batch", "256", "--progress", "none", "--stuck-after", str(STUCK_AFTER),
               "--ranks-per-node", str(-(-size // nodes) if nodes > 1 else 0)]
    with tempfile.TemporaryFile("w+") as output:
        def text():
            return os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace")
        launcher = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        known = {}
        if wait_for(lambda: known.update(ranks_of(launcher.pid)) or victim in known, launcher):
            wait_for(lambda: begins_with in text(), launcher)
            time.sleep(after)
        known |= ranks_of(launcher.pid)
        others_can_speak = any(is_ready(process) for rank, process in known.items() if rank != victim)
        if launcher.poll() is not None or victim not in known or not lives(known[victim]) or not others_can_speak:
            end_all(known.values(), launcher)
            return None
        begun = time.monotonic()
        os.kill(known[victim], signal.SIGKILL if kind == "KILL" else signal.SIGSTOP)
        others = {rank for rank in known if rank != victim}
        while time.monotonic() - begun < MOST[kind] + 10 and any(lives(known[r]) for r in others):
            known |= ranks_of(launcher.pid)
            others = {rank for rank in known if rank != victim}
            time.sleep(0.01)
        took = time.monotonic() - begun
        left = [rank for rank in others if lives(known[rank])]
        launcher_ended = end_all(known.values(), launcher)
        written = text()
    lines = [line for line in written.splitlines() if line.startswith("aloni: ")]
    named = {int(rank) for line in lines for rank in re.findall(r"\brank (\d+) failed\b", line)}
    problem = ""
    if left or took > MOST[kind]:
        problem = f"ranks {left or 'all'} ended after {took:.1f} s"
    elif not launcher_ended:
        problem = "the launcher does not end"
    elif named - {victim}:
        problem = f"ranks {sorted(named)} are named"
    elif not named and (phase != "end" or took > BY_THEMSELVES):
        problem = f"no line names the rank, {took:.1f} s"
    told = f"{case}: {took:.1f} s, {'; '.join(lines[:1]) or 'no line'}"
    if problem:
        told = f"{case}: {problem} (seed {seed})\n{written}"
    print(told, flush=True)
    return Outcome(phase, told, not problem, took, bool(named))


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
