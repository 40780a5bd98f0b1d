"""aloni simulate predicts steps on machines that need not exist, and refuses what cannot run."""
import json
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

from command import FAILURE, USAGE, WITHOUT_MPI, aloni

SVG = "{http://www.w3.org/2000/svg}"
MACHINES = pathlib.Path(__file__).parents[2] / "machines"


class Simulate(unittest.TestCase):
    def simulate(self, *arguments, ranks=0, **options):
        """The output and the JSON."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "step.json")
            result = aloni("simulate", *arguments, "--json", str(path), ranks=ranks, **options)
            self.assertEqual(result.code, 0, result.err)
            self.assertEqual(result.own_lines(), [])
            return result.out, json.loads(path.read_text())

    def refused(self, code, words, *arguments):
        result = aloni("simulate", *arguments, ranks=0)
        self.assertEqual((result.code, result.out), (code, ""), result.err)
        self.assertEqual(len(result.own_lines()), 1, result.err)
        for word in words:
            self.assertIn(word, result.err)

    def test_predicts_a_step_where_mpi_cannot_start(self):
        text, step = self.simulate("--machine", "lassen", "--model", "resnet50", "--batch", "128", "--ranks", "8",
                                   "--strategy", "n4h2", env=WITHOUT_MPI)
        self.assertIn("8 ranks on 2 nodes of lassen", text)
        self.assertTrue(step["feasible"], step["reason"])
        self.assertGreater(step["step_seconds"], 0.01)
        self.assertLess(step["step_seconds"], 1)
        self.assertGreater(step["backward_seconds"], step["forward_seconds"])
        self.assertGreaterEqual(step["exposed_communication_seconds"], 0)
        self.assertGreater(step["memory_bytes_per_rank"], 1e8)
        self.assertIsNone(step["kernel_error"])  # a machine that ships has no measured kernels
        self.assertEqual({layer["kernel_source"] for layer in step["layers"]}, {"roofline", None})
        self.assertIn("\n           expected error not known", text)

    def test_is_the_same_for_any_number_of_processes(self):
        arguments = ["--machine", "x86_server", "--ranks", "6", "--strategy", "h3f2", "--ranks-per-node", "2"]
        self.assertEqual(self.simulate(*arguments, ranks=0), self.simulate(*arguments, ranks=2))

    def test_reads_a_machine_file_like_the_machine_of_that_name(self):
        arguments = ["--ranks", "4", "--strategy", "h2w2", "--machine"]
        self.assertEqual(self.simulate(*arguments, str(MACHINES / "lassen.json")), self.simulate(*arguments, "lassen"))

    def test_writes_the_time_line_of_a_step(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trace.json")
            _, step = self.simulate("--machine", "lassen", "--ranks", "2", "--strategy", "h2", "--trace", str(path))
            trace = json.loads(path.read_text())
        self.assertEqual(trace["otherData"]["machine"], "lassen")
        steps = {e["pid"]: e["dur"] for e in trace["traceEvents"] if e["name"] == "step"}
        self.assertEqual(set(steps), {0, 1})
        self.assertAlmostEqual(max(steps.values()) * 1e-6, step["step_seconds"], delta=0.1 * step["step_seconds"])
        self.refused(FAILURE, ["nowhere"], "--machine", "lassen", "--trace", "nowhere/trace.json")

    def test_draws_a_sweep_and_a_single_step(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "step.svg")
            arguments = ["--machine", "lassen", "--strategy", "h2", "--complete", "n", "--draw", str(path), "--ranks"]
            self.simulate(*arguments, "2,4,8,16")
            root = xml.etree.ElementTree.parse(path).getroot()
            self.assertEqual(root.tag, SVG + "svg")
            titles = [group.find(SVG + "title").text for group in root.iter(SVG + "g")]
            for line in ("step", "kernels", "exposed communication"):
                self.assertEqual(sum(title.startswith(line + ", ") for title in titles), 4)
            first = path.read_text()
            self.simulate(*arguments, "2,4,8,16", ranks=2)
            self.assertEqual(path.read_text(), first)
            _, step = self.simulate(*arguments, "2")
            root = xml.etree.ElementTree.parse(path).getroot()
            titles = [group.find(SVG + "title").text.split(":")[0] for group in root.iter(SVG + "g")]
            self.assertEqual(titles, ["training step", "forward", "loss", "backward", "update",
                                      *(layer["name"] for layer in step["layers"]), "no layer"])
            for bad in (folder, "/dev/null", str(pathlib.Path(folder, "nowhere", "step.svg"))):
                self.refused(FAILURE, [bad], "--machine", "lassen", "--draw", bad)

    def test_sweeps_over_all_lists(self):
        _, sweep = self.simulate("--machine", "a100_cluster", "--ranks", "1,2", "--batch", "8,16,32",
                                 "--strategy", "h1", "--complete", "n", "--flops-factor", "1,2",
                                 "--link-bandwidth-factor", "0.5")
        self.assertEqual(len(sweep["cases"]), 12)
        self.assertEqual({case["strategy"] for case in sweep["cases"]}, {"1", "n2"})
        self.assertEqual({case["link_bandwidth_factor"] for case in sweep["cases"]}, {0.5})
        self.assertNotIn("step_seconds", sweep)

    def test_adds_the_gradients_of_micro_batches(self):
        arguments = ["--machine", "x86_server", "--model", "lenet5", "--ranks", "64", "--strategy", "n64"]
        _, small = self.simulate(*arguments, "--batch", "64")
        text, step = self.simulate(*arguments, "--batch", "256", "--accumulate", "4")
        self.assertIn("batch 256 in 4 micro-batches", text)
        self.assertLess(step["step_seconds"], 4 * small["step_seconds"])  # one update, one sum of gradients
        self.assertGreater(step["samples_per_second"], small["samples_per_second"])
        self.assertGreater(step["memory_bytes_per_rank"], small["memory_bytes_per_rank"])
        for number in ("3", "0"):
            self.refused(USAGE, ["--accumulate", number], "--machine", "lassen", "--accumulate", number)

    def test_has_inference_objectives_for_strategies_of_the_search(self):
        arguments = ["--machine", "a100_cluster", "--model", "resnet18", "--input", "64x64x3", "--batch", "4",
                     "--ranks", "2", "--strategy", "auto", "--objective"]
        _, training = self.simulate(*arguments, "step")
        text, latency = self.simulate(*arguments, "latency")
        self.assertIn("one inference step", text)
        self.assertEqual(latency["batch"], 4)
        self.assertLess(latency["step_seconds"], training["step_seconds"])
        text, throughput = self.simulate(*arguments, "throughput")
        self.assertGreater(throughput["batch"], 4)
        self.assertEqual(throughput["requested_batch"], 4)
        self.assertIn("batch %d (%d x --batch 4)" % (throughput["batch"], throughput["batch"] // 4), text)
        self.assertGreater(throughput["samples_per_second"], latency["samples_per_second"])
        self.refused(USAGE, ["--objective = latency", "--strategy auto"], "--machine", "lassen", "--objective",
                     "latency")

    def test_stragglers_and_slow_links_make_steps_longer(self):
        arguments = ["--machine", "lassen", "--model", "mesh1k", "--batch", "64", "--strategy", "h2w2", "--complete",
                     "n", "--stragglers", "0.1", "--slow-links", "0.1:4", "--draws", "50"]
        text, step = self.simulate(*arguments, "--ranks", "256")
        self.assertIn("\nvariation ", text)
        self.assertIn("50 draws", text)
        self.assertGreater(step["step_seconds_median"], 1.1 * step["step_seconds"])
        self.assertGreater(step["step_seconds_p95"], step["step_seconds_median"])
        self.assertGreater(step["step_seconds_p95"], step["step_seconds_mean"])
        again = self.simulate(*arguments, "--ranks", "256", "--seed", "0")
        self.assertEqual(again, (text, step))
        text, sweep = self.simulate(*arguments, "--ranks", "16,256", "--seed", "7")
        self.assertIn(" mean ", text)
        few, many = (case["step_seconds_mean"] / case["step_seconds"] for case in sweep["cases"])
        self.assertGreater(many, few)
        self.assertNotEqual(sweep["cases"][1]["step_seconds_mean"], step["step_seconds_mean"])
        self.assertEqual(sweep["run"]["variation"]["seed"], 7)
        for words, bad in ((["--stragglers", "-1", "from 0 to"], ["--stragglers", "-1"]),
                           (["--slow-links", "SHARE:FACTOR"], ["--slow-links", "1.1:4"]),
                           (["--slow-links", "SHARE:FACTOR"], ["--slow-links", "0.1:0.5"]),
                           (["--draws", "--stragglers"], ["--draws", "5"]),
                           (["--draws", "0"], ["--stragglers", "0.1", "--draws", "0"])):
            self.refused(USAGE, words, "--machine", "lassen", *bad)

    def test_completes_a_grid_and_refuses_one_that_only_divides_the_ranks(self):
        _, step = self.simulate("--machine", "lassen", "--model", "mesh1k", "--batch", "128", "--ranks", "1024",
                                "--strategy", "h4w2", "--complete", "n")
        self.assertEqual({layer["grid"] for layer in step["layers"]}, {"n128h4w2"})
        self.refused(USAGE, ["h4w2", "1024", "--complete n", "n128h4w2"], "--machine", "lassen", "--model", "mesh1k",
                     "--batch", "128", "--ranks", "1024", "--strategy", "h4w2")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "strategy")
            path.write_text("conv*  h4\n*  n8\n")
            _, step = self.simulate("--machine", "lassen", "--ranks", "8", "--strategy", str(path))
        self.assertEqual(step["layers"][0]["grid"], "h4")

    def test_a_training_refuses_a_grid_that_only_divides_the_ranks_and_completes_it(self):
        arguments = ["train", "--data", "synthetic", "--steps", "1", "--batch", "4", "--strategy", "1"]
        refused = aloni(*arguments, ranks=2)
        self.assertEqual(refused.code, USAGE)
        self.assertIn("--complete n", refused.err)
        completed = aloni(*arguments, "--complete", "h", ranks=2)
        self.assertEqual(completed.code, 0, completed.err)
        self.assertIn("strategy h2", completed.out)

    def test_says_that_a_step_does_not_fit_into_the_memory(self):
        text, step = self.simulate("--machine", "lassen", "--model", "mesh2k", "--batch", "4", "--ranks", "1")
        self.assertFalse(step["feasible"])
        self.assertIn("infeasible", text)
        self.assertIn("GiB", step["reason"])
        _, step = self.simulate("--machine", "lassen", "--model", "mesh2k", "--batch", "1", "--ranks", "1")
        self.assertTrue(step["feasible"], step["reason"])

    def test_refuses_bad_arguments_and_bad_machine_files(self):
        self.refused(USAGE, ["--machine"])
        self.refused(USAGE, ["lasen", "did you mean lassen?"], "--machine", "lasen")
        self.refused(USAGE, ["3000", "2600", "lassen"], "--machine", "lassen", "--ranks", "3000", "--batch", "3000")
        self.refused(USAGE, ["h3", "8 ranks"], "--machine", "lassen", "--ranks", "8", "--strategy", "h3")
        self.refused(FAILURE, ["nothing.json", "missing"], "--machine", "nothing.json")
        machine = json.loads((MACHINES / "lassen.json").read_text())
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "machine.json")
            for change, words in ((lambda m: m["links"]["between_nodes"].pop("latency"),
                                   ["links.between_nodes.latency", "missing"]),
                                  (lambda m: m["links"]["self"].update(latency=-1), ["links.self.latency", "-1"]),
                                  (lambda m: m["processor"].update(core_bandwidth=1e30),
                                   ["processor.core_bandwidth", "1e+16"]),
                                  (lambda m: m.update(most_node=1), ["most_node", "did you mean"]),
                                  (lambda m: m.update(aloni_machine=1), ["aloni_machine", "1"])):
                changed = json.loads(json.dumps(machine))
                change(changed)
                path.write_text(json.dumps(changed))
                self.refused(USAGE, [str(path), *words], "--machine", str(path))


unittest.main()
