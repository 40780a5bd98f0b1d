"""aloni plan prints the plan of any number of ranks, and its file holds the same numbers."""
import json
import os
import pathlib
import tempfile
import unittest

from command import FAILURE, USAGE, aloni


class Plan(unittest.TestCase):
    def plan(self, *arguments, ranks=0):
        """The output and the JSON."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "plan.json")
            result = aloni("plan", *arguments, "--json", str(path), ranks=ranks)
            self.assertEqual(result.code, 0, result.err)
            self.assertEqual(result.own_lines(), [])
            return result.out, json.loads(path.read_text())

    def test_plans_more_ranks_than_there_are(self):
        text, plan = self.plan("--model", "lenet5", "--ranks", "64", "--ranks-per-node", "8", "--strategy", "n8h4w2")
        self.assertIn("64 ranks on 8 nodes", text)
        self.assertEqual(plan["parameters"], 61706)
        self.assertEqual([layer["name"] for layer in plan["layers"]][:4], ["conv1", "relu1", "pool1", "conv2"])
        self.assertEqual(plan["layers"][0]["grid"], "n8h4w2")
        self.assertGreater(plan["layers"][0]["halo_bytes"], 0)
        self.assertGreater(plan["bytes_sent"], max(layer["halo_bytes"] for layer in plan["layers"]))
        self.assertGreater(plan["memory_bytes_per_rank"], 3 * 4 * plan["parameters"])
        for layer in plan["layers"]:
            self.assertTrue(any(line.startswith(layer["name"] + " ") for line in text.splitlines()), layer)

    def test_splits_samples_by_default_and_reads_strategy_files(self):
        _, plan = self.plan("--ranks", "4", "--batch", "8")
        self.assertEqual({layer["grid"] for layer in plan["layers"]}, {"n4"})
        self.assertEqual({layer["halo_bytes"] for layer in plan["layers"]}, {0})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "strategy")
            path.write_text("conv*  h2w2\n*  n4\n")
            _, plan = self.plan("--ranks", "4", "--strategy", str(path))
        self.assertEqual([layer["grid"] for layer in plan["layers"]][:2], ["h2w2", "n4"])

    def test_is_the_same_for_any_number_of_processes(self):
        arguments = ["--ranks", "6", "--strategy", "h3f2", "--precision", "double"]
        self.assertEqual(self.plan(*arguments, ranks=0), self.plan(*arguments, ranks=2))

    def test_refuses_bad_arguments(self):
        for arguments, words in ((["--model", "nonet"], ["--model", "nonet", "lenet5"]),
                                 (["--ranks", "0"], ["--ranks = 0"]),
                                 (["--ranks", "3", "--strategy", "h2"], ["h2", "3 ranks"]),
                                 (["--ranks", "2", "--strategy", "d2"], ["d2"]),
                                 (["--strategy", "q2"], ["--strategy = q2"]),
                                 (["--input", "28x28"], ["--input = 28x28"]),
                                 (["--input", "3x3x1"], ["conv2"]),
                                 (["--input", "4x28x28x1"], ["input"])):
            with self.subTest(arguments=arguments):
                result = aloni("plan", *arguments, ranks=0)
                self.assertEqual(result.code, USAGE, result.err)
                self.assertEqual(len(result.own_lines()), 1, result.err)
                self.assertEqual(result.out, "")
                for word in words:
                    self.assertIn(word, result.err)
        result = aloni("plan", "--json", os.path.join("nowhere", "plan.json"), ranks=0)
        self.assertEqual(result.code, FAILURE)
        self.assertIn("nowhere", result.err)


unittest.main()
