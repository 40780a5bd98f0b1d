"""aloni evaluate gives the last results of a training; aloni predict gives the same outputs on any ranks."""
import json
import os
import pathlib
import random
import tempfile
import unittest

from command import FAILURE, USAGE, aloni, run_side_by_side
from npy import floats, npy, read_floats

DATA = os.environ["ALONI_DATA"]
SAMPLES = 11

folder = tempfile.TemporaryDirectory()
path = pathlib.Path(folder.name)
weights, checkpoints, inputs = str(path / "weights.safetensors"), str(path / "checkpoints"), str(path / "x.npy")


def write(file, shape, values):
    pathlib.Path(file).write_bytes(npy(shape, "<f4", floats(values)))


def train():
    result = aloni("train", "--data", DATA, "--batch", "2000", "--epochs", "1", "--average", "0.9", "--progress",
                   "none", "--json", str(path / "train.json"), "--export", weights, "--checkpoint", checkpoints,
                   ranks=2)
    assert result.code == 0, result.err
    generator = random.Random(1)
    write(inputs, (SAMPLES, 28, 28, 1), [generator.random() for _ in range(SAMPLES * 28 * 28)])


class Inference(unittest.TestCase):
    def command(self, *arguments, ranks=1, code=0):
        result = aloni(*arguments, ranks=ranks)
        self.assertEqual(result.code, code, result.err)
        return result

    def refused(self, code, *arguments, ranks=2):
        """The error, printed once."""
        lines = self.command(*arguments, ranks=ranks, code=code).own_lines()
        self.assertEqual(len(lines), 1, lines)
        return lines[0]

    def predict(self, output, *arguments, ranks=1):
        self.command("predict", "lenet5", "--input", inputs, "--output", str(path / output), *arguments, ranks=ranks)
        return read_floats(path / output)

    def test_evaluate_gives_the_last_results_of_the_training(self):
        trained = json.loads((path / "train.json").read_text())["epochs"][-1]
        for name, arguments, ranks in (("a", ("--weights", weights), 2),
                                       ("b", ("--checkpoint", checkpoints, "--strategy", "h3"), 3)):
            out = path / f"{name}.json"
            text = self.command("evaluate", "--data", DATA, *arguments, "--batch", "2000", "--json", str(out),
                                ranks=ranks).out
            result = json.loads(out.read_text())
            self.assertEqual(result["samples"], 2000)
            self.assertAlmostEqual(result["test_loss"], trained["test_loss"], delta=1e-6)
            self.assertAlmostEqual(result["test_accuracy"], trained["test_accuracy"], delta=1e-3)
            self.assertAlmostEqual(result["test_top5_accuracy"], trained["test_top5_accuracy"], delta=1e-3)
            self.assertIn("top-5 accuracy", text)

    def test_predict_gives_the_same_outputs_on_any_ranks(self):
        shape, expected = self.predict("y1.npy", "--weights", weights)
        self.assertEqual(shape, (SAMPLES, 1, 1, 10))
        self.assertGreater(max(expected) - min(expected), 0.01)
        for ranks, grid, batch in ((2, "h2", 4), (3, "n3", 4), (4, "h2w2", 10), (4, "n4", 10)):
            found = self.predict(f"y{grid}.npy", "--weights", weights, "--strategy", grid, "--batch", str(batch),
                                 ranks=ranks)
            self.assertEqual(found[0], shape)
            for a, b in zip(found[1], expected):
                self.assertAlmostEqual(a, b, delta=1e-5)
        # The checkpoint has the average, and so has the file of weights.
        self.assertEqual(self.predict("yc.npy", "--checkpoint", checkpoints), (shape, expected))

    def test_helps_with_exit_codes(self):
        for command in "evaluate", "predict":
            text = self.command(command, "--help", ranks=0).out
            self.assertIn("--checkpoint", text)
            self.assertIn("Exit codes", text)

    def test_bytes_are_normalised_as_asked(self):
        x = path / "bytes.json"
        (path / "bytes.raw").write_bytes(bytes(range(256)) * 4)
        x.write_text('{"file": "bytes.raw", "type": "uint8", "samples": 1, "extents": [32, 32, 1]}')
        self.command("predict", "lenet5", "--weights", weights, "--input", str(x), "--output", str(path / "u.npy"),
                     code=USAGE)  # weights of another input
        raw = [v / 255 for v in bytes(range(256)) * 3 + bytes(range(16))]
        write(path / "s.npy", (1, 28, 28, 1), [(v - 0.1307) / 0.3081 for v in raw])
        (path / "bytes.raw").write_bytes(bytes(range(256)) * 3 + bytes(range(16)))
        x.write_text('{"file": "bytes.raw", "type": "uint8", "samples": 1, "extents": [28, 28, 1]}')
        found = []
        for source, options in ((x, ("--mean", "0.1307", "--deviation", "0.3081")), (path / "s.npy", ())):
            self.command("predict", "lenet5", "--weights", weights, "--input", str(source), "--output",
                         str(path / "n.npy"), *options)
            found.append(read_floats(path / "n.npy")[1])
        for a, b in zip(*found):
            self.assertAlmostEqual(a, b, delta=1e-5)

    def test_errors_name_the_file_and_leave_the_old_output(self):
        output = path / "old.npy"
        output.write_text("old")
        predict = ("predict", "lenet5", "--input", inputs, "--output", str(output))
        self.assertIn("none.safetensors", self.refused(FAILURE, *predict, "--weights", str(path / "none.safetensors")))
        self.assertIn("has no checkpoint", self.refused(FAILURE, *predict, "--checkpoint", str(path / "none")))
        self.assertIn("--checkpoint DIR", self.refused(USAGE, *predict))
        self.assertIn("beside it", self.refused(USAGE, *predict, "--weights", weights, "--checkpoint", checkpoints))
        missing = self.refused(FAILURE, "predict", "lenet5", "--input", str(path / "none.npy"), "--output", str(output),
                               "--weights", weights)
        self.assertIn("none.npy", missing)
        other = self.refused(USAGE, *predict, "--weights", weights, "--classes", "7")
        self.assertIn("shape of ", other)
        self.assertIn(weights, other)
        folder_of_none = self.refused(FAILURE, "predict", "lenet5", "--input", inputs, "--weights", weights, "--output",
                                      str(path / "none" / "y.npy"))
        self.assertIn("none/y.npy", folder_of_none)
        self.assertEqual(output.read_text(), "old")
        self.assertEqual([p.name for p in path.iterdir() if p.name.startswith("old.npy")], ["old.npy"])

    def test_a_full_disk_is_an_error_of_all_ranks(self):
        output = path / "large.npy"
        output.write_text("old")
        large = path / "large_x.npy"
        write(large, (400, 28, 28, 1), [0.5] * (400 * 28 * 28))

        def limit():
            import resource
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        result = aloni("predict", "lenet5", "--input", str(large), "--output", str(output), "--weights", weights,
                       "--batch", "40", ranks=1, preexec_fn=limit)
        self.assertEqual(result.code, FAILURE, result.err)
        self.assertIn("large.npy", result.err)
        self.assertEqual(output.read_text(), "old")
        self.assertEqual([p.name for p in path.iterdir() if p.name.startswith("large.npy")], ["large.npy"])

    def test_evaluate_refuses_data_without_a_test_set_or_of_another_kind(self):
        own = path / "own"
        own.mkdir()
        write(own / "images.npy", (2, 28, 28, 1), [0.5] * (2 * 28 * 28))
        write(own / "targets.npy", (2, 28, 28, 1), [0.5] * (2 * 28 * 28))
        evaluate = ("evaluate", "--data", str(own), "--weights", weights)
        self.assertIn("a test set", self.refused(USAGE, *evaluate))
        write(own / "test-images.npy", (2, 28, 28, 1), [0.5] * (2 * 28 * 28))
        write(own / "test-targets.npy", (2, 28, 28, 1), [0.5] * (2 * 28 * 28))
        self.assertIn("target_kind", self.refused(USAGE, *evaluate))


train()
run_side_by_side(Inference, workers=2, done=folder.cleanup)
