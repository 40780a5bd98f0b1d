"""Kills or stops one rank of 2 to 8 at a random time, while all of them communicate.

Every other rank must name the failed rank in time and leave no files behind. Each run draws shared memory, messages of
MPI, or three simulated nodes. The arguments are the numbers of kills and stops; ALONI_KILLS and ALONI_STOPS set others.
The seed is printed; ALONI_SEED repeats a run.
ALONI_PROGRAM is a program of support/failure_case.hpp, ALONI_OPERATIONS its operations, ALONI_EXPERIMENT the name of
the records (support/experiment.py).
"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from experiment import record
from left_behind import own_files

KILLS, STOPS = int(os.environ.get("ALONI_KILLS", sys.argv[1])), int(os.environ.get("ALONI_STOPS", sys.argv[2]))
STUCK_AFTER = {"KILL": 30, "STOP": 2}  # seconds
OPERATIONS = os.environ["ALONI_OPERATIONS"].split()
KILL_ONLY = ["first_access"]  # a stopped rank still has its memory
program, mpirun = os.environ["ALONI_PROGRAM"], os.environ["ALONI_MPIRUN"]
slowdown = int(os.environ.get("ALONI_SLOWDOWN", "1"))


def run(kind, ranks, victim, operation, after_ms, transport):
    # Without recovery the launcher would end the other ranks before they can print.
    command = [mpirun, "--enable-recovery", "-n", str(ranks), program, kind, str(victim), operation, str(after_ms),
               str(1000 * STUCK_AFTER[kind]), transport]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               start_new_session=True)
    lines, victim_process = [], None
    started = time.monotonic()
    try:
        while len(lines) < ranks - 1:
            line = process.stdout.readline()
            if not line:
                break
            if line.startswith("victim "):
                victim_process = int(line.split()[1])
            else:
                lines.append(line.rstrip())
        if kind == "STOP" and victim_process:  # otherwise the launcher waits for the stopped process
            os.kill(victim_process, signal.SIGKILL)
        process.wait(timeout=30 * slowdown)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return lines, time.monotonic() - started


def trial(kind, chance):
    """The seconds until the last rank has named the victim, and the error; the seconds are None if some never did."""
    ranks, nodes = chance.choice([(2, 1), (3, 1), (4, 1), (8, 1), (3, 3), (5, 3), (6, 3), (8, 3)])
    operations = [o for o in OPERATIONS if kind == "KILL" or o not in KILL_ONLY]
    victim, operation, after_ms = chance.randrange(ranks), chance.choice(operations), chance.randrange(200)
    transport = str(-(-ranks // nodes)) if nodes > 1 else chance.choice(["shared", "mpi"])
    lines, _ = run(kind, ranks, victim, operation, after_ms, transport)
    allowed = (STUCK_AFTER[kind] if kind == "STOP" else 0) + 4.0 * slowdown
    # The launcher forwards long lines in pieces, so the line of a rank may begin within that of another.
    answers = re.findall(r"rank (\d+): blames (-?\d+) after (-?[\d.]+) s: ", "\n".join(lines))
    blamed = {int(rank): (int(culprit), float(seconds)) for rank, culprit, seconds in answers}
    expected = set(range(ranks)) - {victim}
    took = max(s for _, s in blamed.values()) if set(blamed) == expected else None
    if took is not None and took <= allowed and all(b == victim for b, _ in blamed.values()):
        return took, ""
    return took, (f"{kind} of rank {victim} of {ranks} on {nodes} nodes after {after_ms} ms in {operation} over "
                  f"{transport}: expected ranks {sorted(expected)} to blame {victim} within {allowed} s, got\n  " +
                  "\n  ".join(lines or ["nothing"]))


def main():
    if not os.path.exists(program):  # with --enable-recovery the launcher would wait for ever
        sys.exit(f"{program} does not exist: build it first")
    seed = int(os.environ.get("ALONI_SEED", random.randrange(1 << 30)))
    print("seed", seed, flush=True)
    chance = random.Random(seed)
    before, errors = own_files(), []
    for kind, count in (("KILL", KILLS), ("STOP", STOPS)):
        results = [trial(kind, chance) for _ in range(count)]
        failures, times = [error for _, error in results if error], [took for took, _ in results if took is not None]
        record(f"{os.environ['ALONI_EXPERIMENT']}/{kind.lower()}", count, len(failures), times)
        print(f"{kind}: {count} runs, {len(failures)} failures, slowest answer {max(times, default=0):.2f} s",
              flush=True)
        errors += failures
    if left := own_files() - before:
        errors.append(f"left behind: {sorted(left)}")
    if errors:
        sys.exit("\n".join(errors))


main()
