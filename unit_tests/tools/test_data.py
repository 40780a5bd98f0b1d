"""aloni train on data sets of each kind, written here byte by byte: equal losses on every split, errors with names."""
import json
import math
import os
import random
import shutil
import tempfile
import unittest

from command import FAILURE, USAGE, aloni
from npy import floats, npy

SAMPLES = 24


class Data(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="aloni-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.random = random.Random(5)
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data)

    def write(self, name, content):
        with open(os.path.join(self.data, name), "wb") as file:
            file.write(content)

    def bytes(self, count, below=256):
        return bytes(self.random.randrange(below) for _ in range(count))

    def run_train(self, *arguments, ranks=1):
        path = os.path.join(self.folder, "out.json")
        result = aloni("train", "--data", self.data, "--batch", "8", "--epochs", "2", "--precision", "double",
                       "--progress", "none", "--json", path, *arguments, ranks=ranks)
        self.assertEqual(result.code, 0, result.out + result.err)
        with open(path) as file:
            return json.load(file), result.out

    def check_splits(self, *arguments, strategies=("h2",)):
        """Returns the report of one rank."""
        one, output = self.run_train(*arguments)
        self.assertEqual(len(one["losses"]), 2 * math.ceil(SAMPLES / 8))
        for strategy in strategies:
            split, _ = self.run_train(*arguments, "--strategy", strategy, ranks=2)
            for a, b in zip(one["losses"], split["losses"]):
                self.assertAlmostEqual(a, b, places=9)
        return one, output

    def network(self, loss, filters):
        path = os.path.join(self.folder, "network.json")
        with open(path, "w") as file:
            json.dump({"aloni_network": 1, "input": [16, 12, 3], "loss": loss, "layers": [
                {"name": "conv", "kind": "convolution", "filters": 4, "kernel": 3, "padding": 1},
                {"name": "relu", "kind": "relu"},
                {"name": "last", "kind": "convolution", "filters": filters}]}, file)
        return path

    def write_images(self, name="images.npy"):
        self.write(name, npy((SAMPLES, 16, 12, 3), "<f4",
                             floats([self.random.random() for _ in range(SAMPLES * 16 * 12 * 3)])))

    def test_cifar10_with_all_changes(self):
        self.write("data_batch_1.bin", b"".join(bytes([i % 10]) + self.bytes(3072) for i in range(SAMPLES - 7)))
        self.write("data_batch_2.bin", b"".join(bytes([i % 10]) + self.bytes(3072) for i in range(7)))
        self.write("test_batch.bin", bytes([3]) + self.bytes(3072))
        report, output = self.check_splits("--flip", "--shift", "2", "--brightness", "0.2", "--contrast", "0.2",
                                           strategies=("h2", "n2"))
        self.assertIn(f"{SAMPLES} training and 1 test images of 32x32x3", output)
        self.assertIn("test_accuracy", report["epochs"][1])

    def test_raw_images_with_labels_of_numpy(self):
        self.write("pixels", b"start" + self.bytes(SAMPLES * 28 * 28))
        self.write("images.json", json.dumps({"file": "pixels", "type": "uint8", "samples": SAMPLES, "offset": 5,
                                              "extents": [28, 28]}).encode())
        self.write("labels.npy", npy((SAMPLES,), "|u1", self.bytes(SAMPLES, 4)))
        report, output = self.check_splits()
        self.assertIn("no test images of 28x28x1", output)
        self.assertEqual(set(report["epochs"][0]), {"loss"})

    def test_masks_and_targets(self):
        self.write_images()
        self.write_images("test-images.npy")
        for prefix in "", "test-":
            self.write(prefix + "masks.npy", npy((SAMPLES, 16, 12), "|u1", self.bytes(SAMPLES * 16 * 12, 2)))
        for loss, filters in ("pixel_cross_entropy", 2), ("binary_cross_entropy", 1), ("dice", 1):
            with self.subTest(loss=loss):
                self.check_splits("--model", self.network(loss, filters), "--flip")
        for prefix in "", "test-":
            os.remove(os.path.join(self.data, prefix + "masks.npy"))
            self.write(prefix + "targets.npy", npy((SAMPLES, 16, 12), "<f4", floats([0.5] * (SAMPLES * 16 * 12))))
        report, output = self.check_splits("--model", self.network("mean_squared_error", 1))
        self.assertIn("test loss", output)
        self.assertEqual(set(report["epochs"][0]), {"loss", "test_loss", "test_mean_absolute_error"})

    def check_refused(self, code, words, *arguments, ranks=1):
        result = aloni("train", "--data", self.data, "--batch", "8", *arguments, ranks=ranks)
        self.assertEqual(result.code, code, result.out + result.err)
        for word in words:
            self.assertIn(word, result.err)

    def test_refuses_targets_that_do_not_suit_the_loss(self):
        self.write_images()
        self.check_refused(FAILURE, ["no targets", "masks"])
        self.write("labels.npy", npy((SAMPLES,), "|u1", self.bytes(SAMPLES, 4)))
        self.check_refused(USAGE, ["sample_labels", "pixel_labels", "dice"], "--model", self.network("dice", 1),
                           ranks=2)
        self.write("labels.npy", npy((SAMPLES - 1,), "|u1", self.bytes(SAMPLES - 1, 4)))
        self.check_refused(FAILURE, ["23 in", "24, as there are samples"])

    def test_an_error_during_the_training_ends_all_ranks(self):
        self.write_images()
        self.write("masks.npy", npy((SAMPLES, 16, 12), "|u1", b"\x01" * (SAMPLES * 16 * 12 - 1) + b"\x07"))
        self.check_refused(FAILURE, ["masks.npy", "label 7 of sample 23", "0 to 1"], "--epochs", "1", "--model",
                           self.network("pixel_cross_entropy", 2), ranks=2)


if __name__ == "__main__":
    unittest.main()
