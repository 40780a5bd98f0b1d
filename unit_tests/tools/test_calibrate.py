"""aloni calibrate chooses one algorithm for each size, and its files hold the printed measurements."""
import json
import os
import pathlib
import signal
import tempfile
import time
import unittest
import xml.etree.ElementTree

from command import COMMAND, FAILURE, MPIRUN, SLOWDOWN, USAGE, aloni, finish, start
from processes import ranks_of

SVG = "{http://www.w3.org/2000/svg}"
QUICK = ["--quick", "--largest-bytes", "4096", "--seconds", "0.001"]


class Calibrate(unittest.TestCase):
    def test_refuses_to_resume_an_empty_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "machine.json")
            path.touch()
            result = aloni("calibrate", *QUICK, "--resume", "--output", str(path), ranks=2)
            self.assertEqual(result.code, USAGE, result.out + result.err)
            self.assertEqual(len(result.own_lines()), 1, result.err)
            self.assertIn(str(path), result.err)
            self.assertEqual(path.stat().st_size, 0)

    def test_writes_its_measurements(self):
        with tempfile.TemporaryDirectory() as folder:
            table, numbers = pathlib.Path(folder, "machine.json"), pathlib.Path(folder, "numbers.json")
            picture = pathlib.Path(folder, "times.svg")
            result = aloni("calibrate", *QUICK, "--output", str(table), "--json", str(numbers), "--draw", str(picture),
                           ranks=3)
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
            rows = measured["communication"]
            operations = {row["operation"] for row in rows}
            self.assertEqual(operations,
                             {"message", "halo", "all_reduce", "reduce_scatter", "all_gather", "all_to_all"})
            self.assertEqual({row["memory"] for row in rows}, {"private", "shared"})
            for row in rows:
                self.assertTrue(all(time["measured_seconds"] > 0 for time in row["times"]), row)
                self.assertEqual([time["bytes"] for time in row["times"]],
                                 [256, 1024, 4096] if row["operation"] in ("message", "halo") else [252, 1020, 4092])
            dots = [group.find(SVG + "title").text for group in xml.etree.ElementTree.parse(picture).iter(SVG + "g")]
            self.assertEqual(len(dots), sum(len(row["times"]) for row in rows) + len(measured["all_reduce"]))
            for row in rows:
                name = f"{row['method']}, {row['memory']}, ".replace("_", " ")
                same = [other for other in rows if (other["method"], other["memory"]) == (row["method"], row["memory"])]
                self.assertEqual(sum(dot.startswith(name) for dot in dots), sum(len(other["times"]) for other in same))
            fits = machine["collectives"]
            self.assertEqual(len(fits), sum(row["operation"] not in ("message", "halo") for row in rows))
            self.assertTrue(all((fit["ranks"], fit["nodes"], len(fit["rates"])) == (3, 1, 3) for fit in fits), fits)
            transfers = machine["transfers"]
            self.assertEqual([(fit["method"], fit["link"], fit["shared_data"], len(fit["rates"])) for fit in transfers],
                             [("send", "within_node", False, 3), ("send", "within_node", True, 3),
                              ("messages", "shared_memory", False, 3), ("copies", "shared_memory", False, 3)])
            self.assertLessEqual({"collectives", "transfers"}, {entry["part"] for entry in machine["provenance"]})

            again = aloni("calibrate", *QUICK, "--resume", "--output", str(table), "--json", str(numbers), ranks=3)
            self.assertEqual(again.code, 0, again.err)
            self.assertEqual(json.loads(numbers.read_text())["communication"], [])  # nothing is measured twice
            self.assertEqual(json.loads(table.read_text())["collectives"], fits)
            self.assertEqual(json.loads(table.read_text())["transfers"], transfers)

            machine.update(aloni_machine=3)  # as before transfers had constants
            del machine["transfers"]
            table.write_text(json.dumps(machine))
            more = aloni("calibrate", *QUICK, "--resume", "--output", str(table), "--json", str(numbers), ranks=3)
            self.assertEqual(more.code, 0, more.err)
            self.assertEqual({row["operation"] for row in json.loads(numbers.read_text())["communication"]},
                             {"message", "halo"})
            self.assertEqual(len(json.loads(table.read_text())["transfers"]), 4)

    def kill_when(self, saved, *arguments):
        """Runs calibrate on two ranks and kills them as soon as `saved` holds for the file, while they measure on."""
        process = start([MPIRUN, "-n", "2", COMMAND, "calibrate", *arguments])
        end = time.monotonic() + 60 * SLOWDOWN
        while process.poll() is None and not saved() and time.monotonic() < end:
            time.sleep(0.01)
        for rank in ranks_of(process.pid).values():
            os.kill(rank, signal.SIGKILL)
        result = finish(process, 60)
        self.assertTrue(saved(), result.out + result.err)
        self.assertNotEqual(result.code, 0, result.out)

    def test_goes_on_after_an_interruption(self):
        with tempfile.TemporaryDirectory() as folder:
            table, numbers = pathlib.Path(folder, "machine.json"), pathlib.Path(folder, "numbers.json")
            slow = ["--kernels", "0", "--largest-bytes", "4194304", "--seconds", "0.2", "--output", str(table)]
            self.kill_when(table.exists, *slow)
            first = json.loads(table.read_text())
            self.assertEqual(first["collectives"], [])
            self.assertGreater(first["processor"]["float32_flops"], 1e8)

            def has_transfers():
                return len(json.loads(table.read_text())["transfers"]) == 4

            self.kill_when(has_transfers, *slow, "--resume")
            second = json.loads(table.read_text())
            self.assertEqual(second["collectives"], [])

            result = aloni("calibrate", *QUICK, "--resume", "--output", str(table), "--json", str(numbers), ranks=2)
            self.assertEqual(result.code, 0, result.err)
            self.assertEqual({row["operation"] for row in json.loads(numbers.read_text())["communication"]},
                             {"all_reduce", "reduce_scatter", "all_gather", "all_to_all"})
            third = json.loads(table.read_text())
            self.assertGreater(len(third["collectives"]), 0)
            self.assertEqual(third["transfers"], second["transfers"])
            for part in ("processor", "links", "all_reduces", "planning"):  # nothing is measured twice
                self.assertEqual(third[part], first[part], part)
            parts = [entry["part"] for entry in third["provenance"]]
            self.assertEqual(sorted(parts), ["all_reduces", "collectives", "links", "processor", "transfers"])

    def test_errors_are_of_sizes_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            numbers = pathlib.Path(folder, "numbers.json")
            result = aloni("calibrate", "--quick", "--largest-bytes", "1048576", "--seconds", "0.001", "--json",
                           str(numbers), ranks=2)
            self.assertEqual(result.code, 0, result.err)
            table = [line for line in result.out.splitlines() if line.startswith(("all_gather ", "operation "))]
            for headings in table[:2]:  # of messages and halo exchanges, of collectives
                self.assertIn("96.0 KiB", headings)
                self.assertIn("768.0 KiB", headings)
            self.assertEqual(len(table), 6)  # two methods, two memories
            self.assertLessEqual(max(map(len, table)), 100)
            for row in json.loads(numbers.read_text())["communication"]:
                left_out = [time for time in row["times"] if time["left_out"]]
                transfer = row["operation"] in ("message", "halo")
                self.assertEqual([time["bytes"] for time in left_out], [98304, 196608, 393216, 786432])
                errors = [abs(time["predicted_seconds"] / time["measured_seconds"] - 1) for time in left_out]
                self.assertAlmostEqual(row["error"], sum(errors) / len(errors))
                for time in row["times"]:  # a busy machine may measure a longer operation as faster
                    if not time["left_out"] and time["predicted_seconds"] <= time["measured_seconds"]:
                        # With several parts the time of a collective jumps where the order of two steps changes.
                        self.assertAlmostEqual(time["predicted_seconds"] / time["measured_seconds"], 1,
                                               delta=1e-6 if transfer else 0.05)

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
                          ["--model", "lenet5", "--precision", "half"], ["--draw", ""],
                          ["--draw", "a.json", "--output", "a.json"]):
            result = aloni("calibrate", *arguments, ranks=0)
            self.assertEqual(result.code, USAGE, arguments)
            self.assertEqual(len(result.own_lines()), 1, result.err)
        result = aloni("calibrate", *QUICK, "--output", "/no/such/folder/machine.json", ranks=2)
        self.assertEqual(result.code, FAILURE)
        self.assertIn("/no/such/folder", result.err)
        result = aloni("calibrate", *QUICK, "--draw", "/no/such/folder/times.svg", ranks=2)
        self.assertEqual((result.code, result.out), (FAILURE, ""))
        self.assertIn("/no/such/folder/times.svg", result.err)


unittest.main()
