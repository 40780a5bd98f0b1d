"""aloni calibrate chooses one algorithm for each size, and its files hold the printed measurements."""
import json
import pathlib
import tempfile
import unittest

from command import FAILURE, USAGE, aloni

QUICK = ["--quick", "--largest-bytes", "4096", "--seconds", "0.001"]


class Calibrate(unittest.TestCase):
    def test_writes_its_measurements(self):
        with tempfile.TemporaryDirectory() as folder:
            table, numbers = pathlib.Path(folder, "machine.json"), pathlib.Path(folder, "numbers.json")
            result = aloni("calibrate", *QUICK, "--output", str(table), "--json", str(numbers), ranks=3)
            self.assertEqual(result.code, 0, result.err)
            measured = json.loads(numbers.read_text())
            self.assertEqual((measured["ranks"], measured["nodes"]), (3, 1))
            sizes = [64, 256, 1024, 4096]
            for size in sizes:
                of_size = [m for m in measured["all_reduce"] if m["bytes"] == size]
                self.assertEqual(len(of_size), 5)
                chosen = [m for m in of_size if m["chosen"]]
                self.assertEqual(len(chosen), 1)
                self.assertEqual(chosen[0]["measured_seconds"], min(m["measured_seconds"] for m in of_size))
                self.assertTrue(all(m["measured_seconds"] > 0 and m["predicted_seconds"] > 0 for m in of_size))
            self.assertEqual(result.out.count("*"), len(sizes) + 1)  # and one in the legend
            machine = json.loads(table.read_text())
            self.assertEqual(machine["ranks_per_node"], 3)
            self.assertGreater(machine["processor"]["float32_flops"], 1e8)
            self.assertEqual(len(machine["all_reduces"][0]["measurements"]), 5 * len(sizes))

    def test_measures_kernels_and_goes_on_with_them(self):
        with tempfile.TemporaryDirectory() as folder:
            table, numbers = pathlib.Path(folder, "machine.json"), pathlib.Path(folder, "numbers.json")
            options = ["--largest-bytes", "256", "--seconds", "0.001", "--output", str(table), "--json", str(numbers)]
            kernels = []
            for resume in ([], ["--resume"]):
                result = aloni("calibrate", *options, "--kernels", "1.5", *resume, ranks=2)
                self.assertEqual(result.code, 0, result.err)
                times = json.loads(table.read_text())["kernels"][0]["times"]
                kernels.append({time["kernel"]: time for time in times})
            self.assertGreater(len(kernels[0]), 0)
            self.assertGreater(len(kernels[1]), len(kernels[0]))
            kept = {key: time for key, time in kernels[1].items() if key in kernels[0]}
            self.assertEqual(kept, kernels[0])
            kinds = {kind["kind"]: kind for kind in json.loads(numbers.read_text())["kernels"]}
            self.assertGreater(kinds["convolution_forward"]["roofline_error"], 0)

    def test_refuses_bad_arguments(self):
        for arguments in (["--largest-bytes", "63"], ["--seconds", "0"], ["--output", ""], ["--output", "x.txt"],
                          ["--resume"], ["--quick", "--kernels", "5"], ["--kernels", "-1"], ["surplus"],
                          ["--batch", "8"], ["--model", "lenet6"], ["--model", "lenet5", "--workspace", "-1"],
                          ["--model", "lenet5", "--precision", "half"]):
            result = aloni("calibrate", *arguments, ranks=0)
            self.assertEqual(result.code, USAGE, arguments)
            self.assertEqual(len(result.own_lines()), 1, result.err)
        result = aloni("calibrate", *QUICK, "--output", "/no/such/folder/machine.json", ranks=2)
        self.assertEqual(result.code, FAILURE)
        self.assertIn("/no/such/folder", result.err)


unittest.main()
