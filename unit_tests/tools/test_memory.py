"""aloni train predicts its memory: the largest resident set of a rank is within 5 % of the prediction of the plans.

Large networks take seconds and gigabytes: only nightly."""
import json
import os
import shutil
import tempfile
import unittest

from command import DATA, aloni

NIGHTLY = os.environ.get("ALONI_NIGHTLY", "0") not in ("", "0")
MESH = ["--model", "mesh1k", "--batch", "1", "--input"]


class Memory(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="aloni-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def check(self, ranks, *arguments):
        path = os.path.join(self.folder, "out.json")
        result = aloni("train", "--data", "synthetic", "--steps", "2", "--json", path, *arguments, ranks=ranks,
                       limit=200)
        self.assertEqual(result.code, 0, result.out + result.err)
        with open(path) as file:
            report = json.load(file)
        ratio = report["peak_memory_bytes"] / report["predicted_memory_bytes"]
        print(f"{' '.join(arguments)} on {ranks}: {ratio:.3f} of the prediction")
        self.assertLess(abs(ratio - 1), 0.05, f"{arguments} on {ranks} ranks")
        return report

    def test_of_lenet5_is_as_predicted(self):
        self.check(1, "--batch", "1024")

    def test_of_lenet5_split_by_samples_and_by_height_is_as_predicted(self):
        self.check(2, "--batch", "1024", "--strategy", "n2")
        self.check(2, "--batch", "1024", "--strategy", "h2")

    def test_of_a_mesh_is_as_predicted(self):
        self.check(1, *MESH, "128x128x18")

    def test_of_a_mesh_split_by_height_is_as_predicted(self):
        self.check(2, *MESH, "128x128x18", "--strategy", "h2")

    def test_of_a_checkpoint_and_of_a_moving_average_is_as_predicted(self):
        self.check(1, "--model", "resnet18", "--input", "32x32x3", "--batch", "2", "--average", "0.9", "--checkpoint",
                   os.path.join(self.folder, "run"))

    def test_of_incomplete_mini_batches_is_as_predicted(self):
        self.check(1, "--data", DATA, "--batch", "1500", "--steps", "3")

    @unittest.skipUnless(NIGHTLY, "only nightly")
    def test_of_recomputed_blocks_is_as_predicted_and_smaller(self):
        network = ["--model", "resnet18", "--input", "32x32x3", "--batch", "16"]
        plain, again = self.check(1, *network), self.check(1, *network, "--recompute", "auto")
        self.assertEqual(plain["losses"], again["losses"])
        self.assertIn("stage1", again["recomputed"])
        self.assertLess(again["peak_memory_bytes"], 0.9 * plain["peak_memory_bytes"])

    @unittest.skipUnless(NIGHTLY, "only nightly")
    def test_of_large_networks_is_as_predicted(self):
        self.check(1, *MESH, "512x512x18")
        self.check(2, *MESH, "512x512x18", "--strategy", "h2")
        self.check(1, "--model", "resnet50", "--batch", "8")
        self.check(2, "--model", "resnet50", "--batch", "8", "--strategy", "h2")
        self.check(1, "--model", "unet2d", "--batch", "1")
        self.check(2, "--model", "unet2d", "--batch", "1", "--strategy", "h2")


if __name__ == "__main__":
    unittest.main()
