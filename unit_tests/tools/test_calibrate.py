"""aloni calibrate chooses one algorithm for each size, and its files hold the printed measurements."""
import json
import pathlib
import tempfile
import unittest

from command import FAILURE, USAGE, aloni

QUICK = ["--largest-bytes", "4096", "--seconds", "0.001"]


class Calibrate(unittest.TestCase):
    def test_writes_its_measurements(self):
        with tempfile.TemporaryDirectory() as folder:
            table, numbers = pathlib.Path(folder, "tuning"), pathlib.Path(folder, "numbers.json")
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
            lines = table.read_text().splitlines()
            self.assertEqual(lines[:3], ["aloni tuning 2", "ranks 3", "nodes 1"])
            self.assertEqual(sum(line.startswith("all_reduce ") for line in lines), 5 * len(sizes))

    def test_refuses_bad_arguments(self):
        for arguments in (["--largest-bytes", "63"], ["--seconds", "0"], ["--output", ""], ["surplus"]):
            result = aloni("calibrate", *arguments, ranks=0)
            self.assertEqual(result.code, USAGE, arguments)
            self.assertEqual(len(result.own_lines()), 1, result.err)
        result = aloni("calibrate", *QUICK, "--output", "/no/such/folder/tuning", ranks=2)
        self.assertEqual(result.code, FAILURE)
        self.assertIn("/no/such/folder", result.err)


unittest.main()
