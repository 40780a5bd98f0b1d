"""Kills or stops one rank of a running program at a random time.

Every other rank must name the failed rank in time and leave no files behind.
20 kills by default; ALONI_KILLS sets the number. The seed is printed; ALONI_SEED repeats a run.
"""
import glob
import os
import random
import re
import signal
import subprocess
import sys
import time

RANKS = 4
OPERATIONS = ["small", "large", "barrier", "broadcast", "all_gather", "messages"]
program, mpirun = os.environ["ALONI_PROGRAM"], os.environ["ALONI_MPIRUN"]
slowdown = int(os.environ.get("ALONI_SLOWDOWN", "1"))


def own_files():
    """Files of aloni in places where shared memory may be left behind. Files of MPI do not count."""
    return {f for f in glob.glob("/dev/shm/*") + glob.glob("/tmp/*") if "aloni" in os.path.basename(f)}


def run(kind, victim, operation, after_ms, limit_ms, transport):
    # Without recovery the launcher would end the other ranks before they can print.
    command = [mpirun, "--enable-recovery", "-n", str(RANKS), program, kind, str(victim), operation, str(after_ms),
               str(limit_ms), transport]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               start_new_session=True)
    lines, victim_process = [], None
    started = time.monotonic()
    try:
        while len(lines) < RANKS - 1:
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


def check(kind, victim, operation, after_ms, limit_ms, transport):
    case = f"{kind} of rank {victim} after {after_ms} ms in {operation} over {transport}"
    lines, seconds = run(kind, victim, operation, after_ms, limit_ms, transport)
    allowed = 2.0 * slowdown if kind == "KILL" else limit_ms / 1000 + 2.0 * slowdown
    blamed = {}
    for line in lines:
        match = re.fullmatch(r"rank (\d): blames (-?\d+) after (-?[\d.]+) s: .*", line)
        if match:
            blamed[int(match.group(1))] = (int(match.group(2)), float(match.group(3)))
    expected = set(range(RANKS)) - {victim}
    wrong = set(blamed) != expected or any(b != victim or s > allowed for b, s in blamed.values())
    if wrong:
        sys.exit(f"{case}: expected ranks {sorted(expected)} to blame {victim} within {allowed} s, got\n  " +
                 "\n  ".join(lines or ["nothing"]))
    return max(s for _, s in blamed.values())


def main():
    seed = int(os.environ.get("ALONI_SEED", random.randrange(1 << 30)))
    print("seed", seed, flush=True)
    chance = random.Random(seed)
    before = own_files()
    slowest = 0.0
    for _ in range(int(os.environ.get("ALONI_KILLS", "20"))):
        slowest = max(slowest, check("KILL", chance.randrange(RANKS), chance.choice(OPERATIONS), chance.randrange(200),
                                     30000, chance.choice(["shared", "mpi", "nodes"])))
    print(f"slowest answer to a kill: {slowest:.2f} s")
    for transport in ["shared", "mpi", "nodes"]:
        check("STOP", chance.randrange(RANKS), chance.choice(OPERATIONS), chance.randrange(200), 2000, transport)
    left = own_files() - before
    if left:
        sys.exit(f"left behind: {sorted(left)}")


main()
