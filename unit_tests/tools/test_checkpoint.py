"""Checkpoints of aloni train: a training that was killed or stopped gives the losses of an uninterrupted one.

ALONI_NIGHTLY: 50 kills instead of 5. The seed is printed; ALONI_SEED repeats the draws."""
import functools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from command import (COMMAND, DATA, FAILURE, MPIRUN, SLOWDOWN, USAGE, aloni, finish, run_side_by_side, start,
                     with_strategy)
from processes import ranks_of

STOPPED = 3
KILLS = 50 if "ALONI_NIGHTLY" in os.environ else 5
STEPS = 200
TRAINING = ["train", "--data", DATA, "--batch", "32", "--precision", "double", "--progress", "none", "--optimiser",
            "adam", "--steps", str(STEPS)]


def losses_of(*arguments, ranks):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        result = aloni(*TRAINING, "--json", path, *arguments, ranks=ranks, limit=100)
        if result.code != 0:
            raise AssertionError(result.out + result.err)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["losses"]


@functools.cache
def uninterrupted():
    """The losses of two ranks."""
    return losses_of("--strategy", "h2", ranks=2)


class Checkpoint(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="aloni-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.run_folder = os.path.join(self.folder, "run")

    def options(self, every="20"):
        return ["--checkpoint", self.run_folder, "--checkpoint-every", every, "--resume"]

    def steps(self):
        """Steps of the checkpoints that have a manifest, the newest first."""
        folders = sorted(pathlib.Path(self.run_folder).glob("step-*/manifest.json"), reverse=True)
        return [int(path.parent.name[5:]) for path in folders]

    def launch(self, *arguments, ranks):
        launcher = [MPIRUN, "-n", str(ranks)] if ranks else []
        return start(launcher + [COMMAND, *with_strategy((*TRAINING, *arguments), ranks)])

    def wait_for_checkpoint(self, process, than):
        """Until there is a newer checkpoint than `than`, or the process has ended."""
        end = time.monotonic() + 60 * SLOWDOWN
        while process.poll() is None and not (self.steps() and self.steps()[0] > than) and time.monotonic() < end:
            time.sleep(0.01)

    def stop(self, number, ranks):
        process = self.launch("--strategy", "h2" if ranks else "1", *self.options(), ranks=ranks)
        self.wait_for_checkpoint(process, 0)
        # The launcher passes the signal on.
        process.send_signal(number)
        result = finish(process, 60)
        self.assertEqual(result.code, STOPPED, result.out + result.err)
        self.assertIn("stopped after step", result.err)
        self.assertLess(self.steps()[0], STEPS)

    def test_continues_after_a_signal_to_all_ranks(self):
        self.stop(signal.SIGUSR1, ranks=2)
        self.assertEqual(losses_of("--strategy", "h2", *self.options(), ranks=2), uninterrupted())

    def test_continues_on_other_ranks_and_splits(self):
        self.stop(signal.SIGTERM, ranks=0)
        for strategy, ranks in (("c2", 2), ("n3", 3)):
            here = os.path.join(self.folder, strategy)
            shutil.copytree(self.run_folder, here)
            options = ["--checkpoint", here, "--resume", "--strategy", strategy]
            losses = losses_of(*options, ranks=ranks)
            self.assertEqual(len(losses), STEPS)
            self.assertLess(max(abs(a - b) for a, b in zip(losses, uninterrupted())), 1e-10)

    def test_loses_nothing_when_it_is_killed(self):
        seed = int(os.environ.get("ALONI_SEED", random.randrange(1 << 30)))
        print("seed", seed, flush=True)
        chance, kills, trainings = random.Random(seed), 0, 0
        while kills < KILLS:
            newest = self.steps()[0] if self.steps() else 0
            process = self.launch("--strategy", "h2", *self.options("3"), ranks=2)
            self.wait_for_checkpoint(process, newest)
            time.sleep(chance.random() * 0.2 * SLOWDOWN)
            for victim in ranks_of(process.pid).values():
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            result = finish(process, 60)
            self.assertFalse(result.timed_out, result.err)
            self.assertGreaterEqual(self.steps()[0], newest)
            if result.code != 0:
                kills += 1
                continue
            trainings += 1
            self.assertEqual(losses_of("--strategy", "h2", *self.options(), ranks=2), uninterrupted())
            shutil.rmtree(self.run_folder)
        self.assertEqual(losses_of("--strategy", "h2", *self.options(), ranks=2), uninterrupted())
        print(f"{kills} kills, {trainings + 1} trainings")

    def test_says_aloud_which_checkpoint_it_refuses(self):
        losses_of("--steps", "40", "--checkpoint", self.run_folder, "--checkpoint-every", "20", ranks=1)
        self.assertEqual(self.steps(), [40, 20])
        data = pathlib.Path(self.run_folder, "step-000000000040", "rank-0.bin")
        changed = bytearray(data.read_bytes())
        changed[1000] ^= 8
        data.write_bytes(changed)
        result = aloni(*TRAINING, "--steps", "40", *self.options(), ranks=1)
        self.assertEqual(result.code, 0, result.err)
        self.assertRegex(result.err, r"step 40 refused: .*step-000000000040/rank-0\.bin = block 0 of \S+ has the CRC")
        self.assertRegex(result.err, r"resumes from .*step-000000000020")
        for path in pathlib.Path(self.run_folder).glob("*/rank-0.bin"):
            os.truncate(path, 100)
        result = aloni(*TRAINING, *self.options(), ranks=1)
        self.assertEqual(result.code, FAILURE)
        self.assertIn("all 2 finished checkpoints refused", result.err)

    def test_refuses_wrong_requests(self):
        result = aloni(*TRAINING, "--resume", ranks=0)
        self.assertEqual((result.code, "--checkpoint DIR" in result.err), (USAGE, True))
        losses_of("--steps", "2", "--checkpoint", self.run_folder, ranks=1)
        result = aloni(*TRAINING, "--checkpoint", self.run_folder, ranks=0)
        self.assertEqual((result.code, "a folder without checkpoints" in result.err), (USAGE, True))
        result = aloni(*TRAINING, *self.options(), "--seed", "9", ranks=0)
        self.assertEqual((result.code, "as in the checkpoint" in result.err), (USAGE, True))

    def test_exports_weights_and_starts_from_them(self):
        path = os.path.join(self.folder, "weights.safetensors")
        first = losses_of("--steps", "100", "--export", path, ranks=1)
        second = losses_of("--steps", "1", "--weights", path, "--strategy", "c2", "--seed", "2", ranks=2)
        self.assertLess(second[0], first[0] / 2)
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual(header["conv2.weight"]["shape"], [16, 1, 5, 5, 6])
        self.assertEqual(header["conv2.weight"]["dtype"], "F64")
        result = aloni(*TRAINING, "--weights", path, "--model", "resnet18", ranks=0)
        self.assertEqual((result.code, "expected a tensor of this name" in result.err), (USAGE, True), result.err)
        result = aloni(*TRAINING, "--export", os.path.join(self.folder, "none", "x"), ranks=0)
        self.assertEqual((result.code, "none/x" in result.err), (FAILURE, True), result.err)

    def test_is_read_by_ten_lines_of_numpy(self):
        # Debian's NumPy belongs to Debian's Python, which may not be the first one.
        python = next((p for p in (sys.executable, "/usr/bin/python3") if subprocess.run(
            [p, "-c", "import numpy"], capture_output=True).returncode == 0), None)
        if not python:
            self.skipTest("no Python has NumPy; scripts/setup.sh installs it")
        losses = losses_of("--steps", "5", "--strategy", "c2", "--checkpoint", self.run_folder, ranks=2)
        script = """
import json, sys
from read_checkpoint import read_checkpoint
state, tensors = read_checkpoint(sys.argv[1])
weights = {n: t for n, t in tensors.items() if n.startswith("conv2.weight")}
print(json.dumps({"step": state["integers"]["step"], "optimiser": state["texts"]["optimiser"],
                  "losses": tensors["losses"].ravel().tolist(), "shape": tensors["conv2.weight"].shape,
                  "all": [bool((t != 0).all()) for t in weights.values()],
                  "largest": max(float(abs(t).max()) for t in weights.values())}))
"""
        examples = pathlib.Path(__file__).resolve().parents[2] / "examples"
        read = subprocess.run([python, "-B", "-c", script, os.path.join(self.run_folder, "step-000000000005")],
                              capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(examples)})
        self.assertEqual(read.returncode, 0, read.stderr)
        found = json.loads(read.stdout)
        self.assertEqual((found["step"], found["optimiser"]), (5, "adam"))
        self.assertEqual(found["losses"], losses)
        self.assertEqual(found["shape"], [16, 1, 5, 5, 6])
        self.assertEqual(found["all"], [True] * 3)
        self.assertLess(found["largest"], 1)


run_side_by_side(Checkpoint, 2)
