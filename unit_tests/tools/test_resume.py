"""Checkpoints of trainings in which one rank is killed: in each call on files of a checkpoint, and at random moments.

each_call     A training continues from an old checkpoint and writes a new one. One rank is killed in one call: open,
              write, fsync, close, rename, unlink, mkdir or rmdir in the folder of the checkpoints. Afterwards there is
              exactly the old or the new state, and the training goes on from it.
random_moment One of 2 to 4 ranks is killed at a random moment. All ranks end within 10 s, and a line names the rank.
              The training goes on from the newest interval, or from the one before it, if that one was being written.

Resumed trainings give the losses of an uninterrupted one, with the same bits.
ALONI_NIGHTLY: each call, and 50 random moments; otherwise every ninth call, and 2. The seed is printed; ALONI_SEED
repeats the draws. ALONI_CALL_FAULTS is the library that acts in a call (support/call_faults.cpp).
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from command import COMMAND, DATA, MPIRUN, SLOWDOWN, aloni, finish, run_side_by_side, start
from processes import lives, ranks_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from experiment import record

NIGHTLY = "ALONI_NIGHTLY" in os.environ
CALL_FAULTS = os.environ.get("ALONI_CALL_FAULTS")
STRIDE, MOMENTS = (1, 50) if NIGHTLY else (9, 2 if SLOWDOWN == 1 else 1)
AT_ONCE = 3
OLD, NEW, LAST = 3, 6, 8  # steps
MOST_SECONDS = 10 * SLOWDOWN
INTERVAL, STEPS = 3, 150 if SLOWDOWN == 1 else 60
TRAINING = ["train", "--data", DATA, "--batch", "32", "--precision", "double", "--progress", "none", "--optimiser",
            "adam", "--schedule", "constant"]


def losses_in(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["losses"]


def steps_in(folder):
    """Steps of the checkpoints that have a manifest, the newest first."""
    return sorted((int(path.parent.name[5:]) for path in pathlib.Path(folder).glob("step-*/manifest.json")),
                  reverse=True)


class Resume(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="aloni-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        seed = int(os.environ.get("ALONI_SEED", random.randrange(1 << 30)))
        print("seed", seed, flush=True)
        self.chance = random.Random(seed)

    def train(self, steps, *arguments, ranks=2, **options):
        """The losses of a training that ends well."""
        path = self.folder / f"{threading.get_ident()}.json"
        result = aloni(*TRAINING, "--strategy", f"h{ranks}", "--steps", str(steps), "--json", str(path), *arguments,
                       ranks=ranks, limit=100, **options)
        self.assertEqual(result.code, 0, result.out + result.err)
        return losses_in(path), result.err

    def killed_in_call(self, victim, number):
        """The step from which the training goes on after a kill in this call; None if there is no such call."""
        here = self.folder / f"{victim}-{number}"
        shutil.copytree(self.folder / "old", here)
        variables = {"LD_PRELOAD": CALL_FAULTS, "ALONI_CALL_FAULT_FOLDER": str(here),
                     "ALONI_CALL_FAULT": f"{victim} KILL file {number} 0"}
        options = ["--checkpoint", str(here), "--checkpoint-every", str(NEW - OLD), "--keep", "1", "--resume"]
        killed = aloni(*TRAINING, "--strategy", "h2", "--steps", str(NEW), *options, ranks=2, limit=60,
                       env=os.environ | variables)
        self.assertFalse(killed.timed_out, killed.err)
        if killed.code == 0:
            return None
        case = f"rank {victim}, call {number}"
        whole = steps_in(here)
        self.assertIn(whole, ([OLD], [NEW], [NEW, OLD]), case)  # the old one is removed last
        losses, text = self.train(LAST, *options)
        self.assertRegex(text, rf"resumes from .*step-{whole[0]:012d}", case)
        self.assertNotIn("CRC", text, case)
        self.assertEqual(losses, self.uninterrupted, case)
        self.assertEqual(steps_in(here), [LAST], case)
        self.assertEqual(sorted(path.name for path in here.iterdir()), [f"step-{LAST:012d}"], case)  # nothing is left
        shutil.rmtree(here)
        return whole[0]

    @unittest.skipUnless(CALL_FAULTS, "sanitizers wrap these calls")
    def test_has_the_old_or_the_new_state_after_a_kill_in_each_call(self):
        self.train(OLD, "--checkpoint", str(self.folder / "old"))
        self.uninterrupted = self.train(LAST)[0]
        seen = []
        for victim in (0, 1):
            first, found = 1 + self.chance.randrange(STRIDE), []
            with ThreadPoolExecutor(AT_ONCE) as pool:
                while not found or found[-1] is not None:
                    numbers = range(first, first + AT_ONCE * STRIDE, STRIDE)
                    found += pool.map(lambda number, rank=victim: self.killed_in_call(rank, number), numbers)
                    first += AT_ONCE * STRIDE
            states = [step for step in found if step is not None]
            self.assertEqual(states, sorted(states), "the new state stays")
            print(f"rank {victim}: {len(states)} calls, {states.count(NEW)} of them after the new checkpoint")
            seen += states
        self.assertIn(OLD, seen)
        if NIGHTLY:
            self.assertIn(NEW, seen)
            self.assertGreater(len(seen), 25)
        record("resume/call", len(seen), 0)

    def killed_at_random(self, ranks):
        """The seconds until all ranks have ended, after one kill. None: the training ended before."""
        folder = self.folder / "run"
        before = (steps_in(folder) or [0])[0]
        process = start([MPIRUN, "--enable-recovery", "-n", str(ranks), COMMAND, *TRAINING, "--strategy", f"h{ranks}",
                         "--steps", str(STEPS), "--checkpoint", str(folder), "--checkpoint-every", str(INTERVAL),
                         "--resume", "--json", str(self.folder / "run.json")])
        limit = time.monotonic() + 60 * SLOWDOWN
        while process.poll() is None and (steps_in(folder) or [0])[0] == before and time.monotonic() < limit:
            time.sleep(0.003)
        time.sleep(self.chance.random() * 0.2 * SLOWDOWN)
        processes, victim = ranks_of(process.pid), self.chance.randrange(ranks)
        if victim not in processes or not lives(processes[victim]) or len(processes) < ranks:
            result = finish(process, 60)
            self.assertEqual(result.code, 0, result.err)
            return None
        begun = time.monotonic()
        os.kill(processes[victim], signal.SIGKILL)
        while any(map(lives, processes.values())) and time.monotonic() - begun < 2 * MOST_SECONDS:
            time.sleep(0.01)
        seconds = time.monotonic() - begun
        text = finish(process, 60).err
        if (self.folder / "run.json").exists():  # it had done all of its work
            return None
        case = f"rank {victim} of {ranks}: {text}"
        self.assertLess(seconds, MOST_SECONDS, case)
        named = set(re.findall(r"^aloni: .*\brank (\d+) failed\b", text, re.MULTILINE))
        self.assertEqual(named, {str(victim)}, case)
        begun_steps = [int(path.name[5:]) for path in folder.glob("step-*")]
        self.assertGreaterEqual(steps_in(folder)[0], max(begun_steps) - INTERVAL, case)
        return seconds

    def test_goes_on_after_kills_at_random_moments(self):
        times = {2: [], 3: [], 4: []}
        while sum(map(len, times.values())) < MOMENTS:
            ranks = self.chance.choice(list(times))
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            (self.folder / "run.json").unlink(missing_ok=True)
            expected = self.train(STEPS, ranks=ranks)[0]
            while not (self.folder / "run.json").exists():  # one training, killed until it reaches its end
                seconds = self.killed_at_random(ranks)
                times[ranks] += [seconds] if seconds is not None else []
                if sum(map(len, times.values())) >= MOMENTS:
                    break
            options = ["--checkpoint", str(self.folder / "run"), "--checkpoint-every", str(INTERVAL), "--resume"]
            self.assertEqual(self.train(STEPS, *options, ranks=ranks)[0], expected)
        all_times = [seconds for list_of in times.values() for seconds in list_of]
        print(f"{len(all_times)} kills, longest {max(all_times):.1f} s")
        record("resume/moment", len(all_times), 0, all_times)


run_side_by_side(Resume, 2)
