"""aloni plan prints the plan of any number of ranks, and its file holds the same numbers."""
import json
import os
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

from command import FAILURE, SHELL, USAGE, WITHOUT_MPI, aloni


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

    def test_a_network_that_was_exported_is_the_same_network(self):
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder, "network.json"))
            _, named = self.plan("--model", "resnet18", "--input", "32x32x3", "--ranks", "2", "--export", path)
            _, from_file = self.plan("--model", path, "--ranks", "2")
            self.assertEqual(named["layers"], from_file["layers"])
            self.assertEqual(named["parameters"], from_file["parameters"])
            losses = []
            for arguments in (["resnet18", "--input", "32x32x3"], [path]):
                results = pathlib.Path(folder, "results.json")
                run = aloni("train", "--data", "synthetic", "--steps", "2", "--batch", "2", "--json", str(results),
                            "--model", *arguments, ranks=2)
                self.assertEqual(run.code, 0, run.err)
                losses.append(json.loads(results.read_text())["losses"])
            self.assertEqual(*losses)
            pathlib.Path(path).write_text(pathlib.Path(path).read_text().replace("batch_norm", "bach_norm", 1))
            broken = aloni("plan", "--model", path, ranks=0)
            self.assertEqual(broken.code, FAILURE)
            self.assertIn("did you mean batch_norm?", broken.err)

    def test_a_strategy_that_was_exported_is_the_chosen_one(self):
        arguments = ["--model", "unet2d", "--input", "64x64x1", "--batch", "2", "--ranks", "4"]
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder, "strategy"))
            _, chosen = self.plan(*arguments, "--machine", "x86_server", "--strategy", "auto", "--export-strategy",
                                  path)
            _, from_file = self.plan(*arguments, "--strategy", path)
        self.assertEqual([layer["split"] for layer in chosen["layers"]],
                         [layer["grid"] for layer in from_file["layers"]])
        self.assertGreater(len({layer["split"] for layer in chosen["layers"]}), 1)

    def test_predicts_the_step_of_a_machine_as_simulate_does(self):
        arguments = ["--machine", "lassen", "--model", "lenet5", "--ranks", "8"]
        for strategy in ("n2h2w2", "auto"):
            text, plan = self.plan(*arguments, "--strategy", strategy)
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "step.json")
                self.assertEqual(aloni("simulate", *arguments, "--strategy", strategy, "--json", str(path)).code, 0)
                step = json.loads(path.read_text())
            self.assertEqual(plan["step_seconds"], step["step_seconds"])
            self.assertEqual([layer["split"] for layer in plan["layers"]], [layer["grid"] for layer in step["layers"]])
            for mine, theirs in zip(plan["layers"], step["layers"]):
                self.assertAlmostEqual(mine["seconds"], theirs["kernels"] + theirs["copies"] + theirs["waits"])
                self.assertTrue(mine["reason"])
                if strategy == "auto":
                    self.assertIn(mine["reason"], text)

    def test_has_the_sources_of_times_as_simulate_does(self):
        arguments = ["--machine", "lassen", "--model", "resnet18", "--ranks", "8", "--strategy", "n4h2"]
        text, plan = self.plan(*arguments)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "step.json")
            simulated = aloni("simulate", *arguments, "--json", str(path))
            step = json.loads(path.read_text())
        lines = text[text.index("\nkernels  "):text.index("\nlimits  ")]
        self.assertIn("100 % roofline\n           expected error not known", lines)
        self.assertIn(lines, simulated.out)
        for field in ("kernel_sources", "kernel_error", "sum_sources", "transfer_sources"):
            self.assertEqual(plan[field], step[field], field)
        for mine, theirs in zip(plan["layers"], step["layers"]):
            for field in ("kernel_source", "kernel_source_share", "kernel_error"):
                self.assertEqual(mine[field], theirs[field], (mine["name"], field))
        self.assertNotIn("rejected", plan)

    def test_lists_rejected_splits_with_their_reasons(self):
        _, plan = self.plan("--machine", "lassen", "--ranks", "8", "--batch", "4", "--strategy", "auto")
        by_name = {layer["name"]: layer for layer in plan["layers"]}
        reasons = {r["split"]: r["reason"] for r in plan["rejected"][by_name["conv1"]["rejected"]]}
        self.assertEqual(reasons["n8"], "8 blocks of samples are more than 4 samples")
        self.assertIsNone(by_name["relu1"]["rejected"])
        for layer in plan["layers"]:
            self.assertIn(layer["split"], plan["candidates"][layer["candidates"]])

    def test_is_the_same_for_any_number_of_processes(self):
        arguments = ["--ranks", "6", "--strategy", "h3f2", "--precision", "double"]
        self.assertEqual(self.plan(*arguments, ranks=0), self.plan(*arguments, ranks=2))

    def test_runs_where_mpi_cannot_start(self):
        """As on a login node. The second run proves that the environment does what its name says."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "plan.json")
            alone = aloni("plan", "--ranks", "4", "--json", str(path), ranks=0, env=WITHOUT_MPI)
            self.assertEqual(alone.code, 0, alone.err)
            self.assertEqual(alone.err, "")
            self.assertEqual(json.loads(path.read_text())["run"]["ranks"], 4)
        self.assertNotEqual(aloni("info", ranks=0, env=WITHOUT_MPI).code, 0)
        self.assertEqual(alone.out, aloni("plan", "--ranks", "4", ranks=2).out)

    def test_helps_and_refuses_where_mpi_cannot_start(self):
        words = ((["--version"], "aloni "), (["--help"], "Subcommands"), (["plan", "--help"], "--ranks"))
        for arguments, word in words:
            result = aloni(*arguments, ranks=0, env=WITHOUT_MPI)
            self.assertEqual((result.code, result.err), (0, ""), arguments)
            self.assertIn(word, result.out)
        for arguments, word in (([], "--help"), (["plan", "--frobnicate"], "--frobnicate"), (["nonsense"], "nonsense"),
                                (["plan", "--ranks", "0"], "--ranks = 0"), (["plan", "--strategy", "q2"], "q2"),
                                (["--kokkos-num-threads=many", "plan"], "--kokkos-num-threads=many")):
            result = aloni(*arguments, ranks=0, env=WITHOUT_MPI)
            self.assertEqual((result.code, result.out), (USAGE, ""), result.err)
            self.assertRegex(result.err, r"^aloni: [^\n]*\n$")
            self.assertIn(word, result.err)

    def test_starts_mpi_for_flags_of_kokkos(self):
        self.assertNotEqual(aloni("--kokkos-num-threads=1", "plan", ranks=0, env=WITHOUT_MPI).code, 0)
        self.assertEqual(aloni("--kokkos-num-threads=1", "plan", ranks=0, env=SHELL).code, 0)

    def test_takes_less_time_than_the_start_of_mpi(self):
        def fastest(*arguments):
            return min(aloni(*arguments, ranks=0, env=SHELL).seconds for _ in range(5))

        plan, info = fastest("plan"), fastest("info")
        print(f"aloni plan took {plan:.3f} s; aloni info, which starts MPI, {info:.3f} s")
        self.assertLess(plan, info)

    def test_draws_the_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "plan.svg")
            arguments = ["plan", "--model", "unet2d", "--ranks", "4", "--strategy", "h2w2", "--draw", str(path)]
            result = aloni(*arguments, ranks=0)
            self.assertEqual((result.code, result.err), (0, ""))
            root = xml.etree.ElementTree.parse(path).getroot()
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            text = "".join(root.itertext())
            for word in ("unet2d on 4 ranks", "down1.conv1", "prediction", "Memory over the step"):
                self.assertIn(word, text)
            first = path.read_text()
            self.assertEqual(aloni(*arguments, ranks=2).code, 0)
            self.assertEqual(path.read_text(), first)

    def test_draws_only_to_files_that_can_be_written(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "pipe")
            os.mkfifo(pipe)
            for path in (pipe, folder, "/dev/null", os.path.join("nowhere", "plan.svg")):
                result = aloni("plan", "--draw", path, ranks=0)
                self.assertEqual((result.code, result.out), (FAILURE, ""), result.err)
                self.assertEqual(len(result.own_lines()), 1)
                self.assertIn(path, result.err)

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
