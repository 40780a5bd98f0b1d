"""aloni train as a user runs it: it learns, every split gives the same losses, the JSON has its documented form."""
import errno
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import time
import unittest
import xml.etree.ElementTree

from command import COMMAND, DATA, MPIRUN, aloni, finish, start


class Train(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="aloni-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def train(self, *arguments, ranks, **options):
        path = os.path.join(self.folder, "out.json")
        result = aloni("train", "--data", DATA, "--json", path, *arguments, ranks=ranks, limit=100, **options)
        self.assertEqual(result.code, 0, result.out + result.err)
        with open(path) as file:
            return json.load(file), result

    def test_learns_most_digits_in_one_epoch_split_by_height(self):
        report, result = self.train("--strategy", "h2", "--epochs", "1", "--batch", "64", ranks=2)
        self.assertEqual(len(report["losses"]), 125)
        self.assertEqual(len(report["epochs"]), 1)
        self.assertGreaterEqual(report["epochs"][0]["test_accuracy"], 0.9)
        self.assertLess(report["losses"][-1], report["losses"][0] / 2)
        accuracy = 100 * report["epochs"][0]["test_accuracy"]
        self.assertIn(f"epoch 1/1: loss {report['epochs'][0]['loss']:.4f}, test accuracy {accuracy:.2f} %", result.out)

    def test_writes_json_in_its_documented_form(self):
        report, result = self.train("--steps", "3", "--seed", "5", "--precision", "double", ranks=2)
        self.assertEqual(len(report["losses"]), 3)
        self.assertEqual(set(report["epochs"][0]), {"loss", "test_accuracy", "test_loss", "test_top5_accuracy"})
        self.assertAlmostEqual(report["epochs"][0]["loss"], sum(report["losses"]) / 3, places=12)
        self.assertEqual(set(report["time"]), {"compute", "halo", "collective", "input"})
        for number in [report["step_seconds"], report["samples_per_second"], report["peak_memory_bytes"],
                       report["time"]["compute"]]:
            self.assertGreater(number, 0)
        self.assertGreater(report["memory_of_all_ranks_bytes"], report["peak_memory_bytes"] / 2)
        self.assertLess(report["memory_of_all_ranks_bytes"], 2 * report["peak_memory_bytes"])
        self.assertEqual(report["run"]["seed"], 5)
        self.assertGreater(report["bytes_sent"], 4 * 61706)  # at least the gradients
        self.assertGreater(report["messages"], 0)
        self.assertGreater(report["predicted_memory_bytes"], report["peak_memory_bytes"] / 2)
        for word in ("compute", "halo", "collective", "input", "samples/s", "memory"):
            self.assertIn(word, result.out)

    def test_learns_faster_by_k_fac_with_inversions_beside_the_steps(self):
        sgd, _ = self.train("--steps", "60", ranks=1)
        kfac = ["--steps", "60", "--optimiser", "kfac", "--learning-rate", "0.02"]
        one, _ = self.train(*kfac, ranks=1)
        two, result = self.train(*kfac, ranks=2)
        self.assertIn("conv1, conv2, fc1, fc2, fc3 by K-FAC", result.out)
        self.assertIn("strategy n2", result.out)  # and not one that splits channels
        self.assertLess(one["epochs"][0]["test_loss"], 0.7 * sgd["epochs"][0]["test_loss"])
        self.assertAlmostEqual(one["losses"][-1], two["losses"][-1], delta=0.02)
        result = aloni("train", "--data", DATA, "--steps", "2", "--optimiser", "kfac", "--strategy", "f2", ranks=2)
        self.assertEqual(result.code, 2, result.out + result.err)
        self.assertIn("conv1", result.err)

    def test_trains_any_model_on_synthetic_data_as_its_plan_says(self):
        path, plan_path = (os.path.join(self.folder, name) for name in ("out.json", "plan.json"))
        model = ["--model", "unet2d", "--input", "32x32x2", "--batch", "2", "--strategy", "h2"]
        result = aloni("train", "--data", "synthetic", *model, "--steps", "3", "--json", path, ranks=2, limit=100)
        self.assertEqual(result.code, 0, result.out + result.err)
        self.assertIn("3 steps on synthetic samples of 32x32x2", result.out)
        with open(path) as file:
            report = json.load(file)
        self.assertEqual((len(report["losses"]), set(report["epochs"][0])), (3, {"loss"}))
        result = aloni("plan", *model, "--ranks", "2", "--json", plan_path, ranks=1, limit=100)
        self.assertEqual(result.code, 0, result.out + result.err)
        with open(plan_path) as file:
            plan = json.load(file)
        self.assertEqual([report[key] for key in ("bytes_sent", "messages")],
                         [plan[key] for key in ("bytes_sent", "messages")])

    def test_traces_the_steps_of_both_ranks(self):
        path = os.path.join(self.folder, "trace.json")
        _, result = self.train("--steps", "20", "--strategy", "h2", "--trace", path, "--trace-steps", "4", ranks=2)
        self.assertIn(path, result.out)
        with open(path) as file:
            trace = json.load(file)
        self.assertEqual((trace["otherData"]["ranks"], trace["otherData"]["strategy"]), (2, "h2"))
        names = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
        ranks = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
        self.assertEqual(ranks, {0: "rank 0", 1: "rank 1"})
        starts, best = {}, 0
        for rank in ranks:
            slices = {}
            for event in trace["traceEvents"]:
                if event["ph"] == "X" and event["pid"] == rank:
                    slices.setdefault(names[rank, event["tid"]], []).append(event)
            self.assertEqual([s["name"] for s in slices["step"]], ["step 6", "step 7", "step 8", "step 9"])
            starts[rank] = [s["ts"] for s in slices["step"]]
            for step in slices["step"]:
                inside = [s for row in ("input", "compute", "communication") for s in slices[row]
                          if step["ts"] <= s["ts"] and s["ts"] + s["dur"] <= step["ts"] + step["dur"] + 1e-3]
                self.assertEqual([s["name"] for s in inside].count("mini-batch"), 1)
                self.assertEqual([s["name"] for s in inside].count("forward conv1"), 1)
                total = sum(s["dur"] for s in inside)
                self.assertLessEqual(total, step["dur"] * 1.0001)
                best = max(best, total / step["dur"])
            kernel = next(s for s in slices["compute"] if s["name"] == "forward conv1")
            self.assertEqual(kernel["args"]["layer"], "conv1")
            self.assertGreater(kernel["args"]["flops"], 0)
            halo = next(s for s in slices["in flight"] if s["name"] == "backward conv2: ghosts of dy")
            self.assertGreater(halo["args"]["bytes_sent"], 0)
            during = [s["name"] for s in slices["compute"] if halo["ts"] <= s["ts"] < halo["ts"] + halo["dur"]]
            self.assertIn("backward conv2: filters", during)
        self.assertGreater(best, 0.5)  # other tests run beside this one
        # All ranks take part in each step, so their steps overlap in time: one clock.
        for step in range(3):
            self.assertLess(starts[0][step], starts[1][step + 1])
            self.assertLess(starts[1][step], starts[0][step + 1])

    def test_traces_a_shorter_training_completely(self):
        path = os.path.join(self.folder, "trace.json")
        self.train("--steps", "2", "--trace", path, ranks=1)
        with open(path) as file:
            names = [event["name"] for event in json.load(file)["traceEvents"]]
        self.assertEqual([name for name in names if name.startswith("step ")], ["step 1", "step 2"])

    def test_compares_the_step_with_the_prediction(self):
        # 8,000 images in mini-batches of 96: the last one of each epoch has fewer.
        arguments = ["--steps", "100", "--batch", "96", "--strategy", "h2", "--machine", "x86_server", "--compare"]
        picture = os.path.join(self.folder, "times.svg")
        report, result = self.train(*arguments, "--recompute", "conv1", "--draw", picture, ranks=2)
        found = report["comparison"]
        self.assertEqual((found["machine"], found["steps"]), ("x86_server", 20))
        self.assertIn(f"error       {100 * found['mean_error']:.1f} % of the time of layers", result.out)
        for row in [found["step"], *found["phases"], found["layers"][0]]:
            self.assertGreater(row["predicted_seconds"], 0)
            self.assertGreater(row["measured_seconds"], 0)
        self.assertEqual([layer["name"] for layer in found["layers"]][::12], ["conv1", "no layer"])
        kinds = {kind["name"]: kind["measured_seconds"] for kind in found["kinds"]}
        self.assertTrue(all(kinds[kind] > 0 for kind in ("convolution_forward", "dense", "halo", "collective")))
        for list_name in ("phases", "layers"):  # both are sums over all nodes
            self.assertAlmostEqual(sum(row["measured_seconds"] for row in found[list_name]), sum(kinds.values()))
        self.assertIn(f"picture     {picture}\n", result.out)
        svg = "{http://www.w3.org/2000/svg}"
        rows = [group.find(svg + "title").text for group in xml.etree.ElementTree.parse(picture).iter(svg + "g")]
        timed = [row for name in ("phases", "kinds", "layers") for row in found[name]
                 if row["predicted_seconds"] > 0 or row["measured_seconds"] > 0]
        self.assertEqual([row.split(":")[0] for row in rows],
                         ["step"] + [row["name"].replace("_", " ") for row in timed])
        # The only step whose nodes are not timed gives the time of a step.
        run = os.path.join(self.folder, "run")
        report, _ = self.train("--steps", "10", "--compare", "--trace-steps", "9", "--run", run, ranks=1)
        with open(os.path.join(run, "metrics.jsonl")) as file:
            self.assertAlmostEqual(report["step_seconds"], json.loads(file.readline())["seconds"], places=7)

    def test_losses_depend_only_on_the_seed(self):
        def losses(seed):
            return self.train("--steps", "3", "--seed", seed, ranks=1)[0]["losses"]
        self.assertEqual(losses("7"), losses("7"))
        self.assertNotEqual(losses("7"), losses("8"))

    def test_every_split_gives_the_same_losses(self):
        steps = os.environ.get("ALONI_STEPS", "15")
        arguments = ["--precision", "double", "--steps", steps, "--batch", "64"]
        alone = self.train(*arguments, "--strategy", "1", ranks=1)[0]["losses"]
        file = os.path.join(self.folder, "mixed.strategy")
        with open(file, "w") as text:
            text.write("conv1 h2\n*1 w2  # and pool1, relu1\nconv2 n2\n* h2\n")
        for ranks, strategy in [(2, "n2"), (2, "h2"), (4, "h2w2"), (3, "h3"), (2, file)]:
            with self.subTest(strategy=strategy):
                split = self.train(*arguments, "--strategy", strategy, ranks=ranks)[0]["losses"]
                self.assertEqual(len(split), len(alone))
                worst = max(abs(a - b) / abs(a) for a, b in zip(alone, split))
                self.assertLessEqual(worst, 1e-10)

    def test_float16_learns_with_a_loss_scale_that_adapts(self):
        arguments = ["--steps", "60", "--batch", "64", "--strategy", "h2"]
        narrow, result = self.train("--precision", "float16", "--loss-scale", "1e12", *arguments, ranks=2)
        self.assertIn("loss scale", result.out)
        self.assertGreater(narrow["skipped_updates"], 5)  # until the gradients are in the range of float16
        self.assertEqual(narrow["loss_scale"], 1e12 / 2 ** narrow["skipped_updates"])
        wide = self.train("--precision", "float", *arguments, ranks=2)[0]["losses"]
        self.assertNotIn("loss_scale", self.train("--steps", "1", ranks=1)[0])
        self.assertAlmostEqual(sum(narrow["losses"][-10:]) / 10, sum(wide[-10:]) / 10, delta=0.2 * wide[0])

    def test_a_loss_scale_does_not_change_float_and_survives_a_restart(self):
        arguments = ["--batch", "64", "--strategy", "h2", "--momentum", "0.5"]
        plain = self.train("--steps", "8", *arguments, ranks=2)[0]
        scaled = self.train("--steps", "8", "--loss-scale", "1024", *arguments, ranks=2)[0]
        self.assertEqual(scaled["losses"], plain["losses"])
        # Gradients of float16 overflow with this scale at first.
        large = ["--precision", "float16", "--loss-scale", "1e8", *arguments]
        whole = self.train("--steps", "8", *large, ranks=2)[0]
        self.assertIn(whole["skipped_updates"], range(1, 8))
        folder = os.path.join(self.folder, "checkpoints")
        self.train("--steps", "4", "--checkpoint", folder, *large, ranks=2)
        resumed = self.train("--steps", "8", "--checkpoint", folder, "--resume", *large, ranks=2)[0]
        for key in "losses", "loss_scale", "skipped_updates":
            self.assertEqual(resumed[key], whole[key], key)

    def test_bfloat16_learns_or_the_error_names_the_alternative(self):
        arguments = ["--steps", "60", "--batch", "64", "--strategy", "h2"]
        path = os.path.join(self.folder, "narrow.json")
        flags = ["--json", path, "--precision", "bfloat16", *arguments]
        result = aloni("train", "--data", DATA, *flags, ranks=2, limit=100)
        if result.code != 0:
            self.assertIn("use float", result.err)
            return
        with open(path) as file:
            narrow = json.load(file)["losses"]
        wide = self.train("--precision", "float", *arguments, ranks=2)[0]["losses"]
        self.assertLess(sum(narrow[-10:]) / 10, 0.8 * narrow[0])
        self.assertAlmostEqual(sum(narrow[-10:]) / 10, sum(wide[-10:]) / 10, delta=0.2 * wide[0])

    @unittest.skipUnless("ALONI_CALL_FAULTS" in os.environ, "sanitizers wrap system calls themselves")
    def test_trains_through_mpi_where_the_system_refuses_shared_memory(self):
        expected, _ = self.train("--steps", "3", "--strategy", "h2", ranks=2)
        for rank, error in (-1, errno.EPERM), (-1, errno.ENOSYS), (-1, errno.EMFILE), (1, errno.EPERM):
            refused = os.environ | {"LD_PRELOAD": os.environ["ALONI_CALL_FAULTS"],
                                    "ALONI_CALL_FAULT": f"{rank} {error} memfd_create 0 0"}
            report, result = self.train("--steps", "3", "--strategy", "h2", "--progress", "none", ranks=2, env=refused)
            # The losses differ by the order of sums in an all-reduce over messages.
            for mine, theirs in zip(report["losses"], expected["losses"], strict=True):
                self.assertAlmostEqual(mine, theirs, places=4)
            lines = [line for line in result.own_lines() if line.startswith("aloni: ")]
            self.assertEqual(len(lines), 1, result.err)
            self.assertIn("shared memory is refused", lines[0])
            self.assertIn(os.strerror(error) if rank < 0 else f"on rank {rank}", lines[0])

    def test_trains_with_the_gradients_of_a_majority(self):
        report, _ = self.train("--steps", "20", "--gradients", "majority", ranks=3)
        self.assertEqual(len(report["losses"]), 20)
        self.assertLess(report["losses"][-1], 10)

    def test_takes_the_convolutions_that_calibrate_has_measured(self):
        path = pathlib.Path(self.folder, "machine.json")
        calibrate = ["calibrate", "--quick", "--largest-bytes", "256", "--seconds", "0.001", "--output", str(path),
                     "--model", "lenet5", "--batch", "32", "--strategy", "h2"]
        result = aloni(*calibrate, ranks=2)
        self.assertEqual(result.code, 0, result.err)
        self.assertIn("the chosen implementation first", result.out)
        machine = json.loads(path.read_text())
        problems = machine["convolutions"][0]["problems"]
        self.assertGreaterEqual(len(problems), 5)  # two layers, three passes, the first without gradient of its input
        times = {p["problem"]: p["times"] for p in problems}
        self.assertTrue(all(len(of_problem) >= 2 for of_problem in times.values()))
        # The limits of a step come from this machine too, with any strategy.
        report, result = self.train("--steps", "3", "--machine", str(path), ranks=2)
        self.assertEqual(len(report["losses"]), 3)
        self.assertRegex(result.out, r"(?m)^limits +by ")

        # The times decide: another implementation is made the fastest one of all.
        other = problems[0]["times"][-1]["implementation"]
        for of_problem in times.values():
            for time in of_problem:
                time["seconds"] = 1e-9 if time["implementation"] == other else 1.0
        path.write_text(json.dumps(machine))
        run = pathlib.Path(self.folder, "run")
        train = ["--steps", "3", "--batch", "32", "--strategy", "h2", "--progress", "none"]
        report, result = self.train(*train, "--machine", str(path), "--run", str(run), ranks=2)
        summary = re.search(r"^convolutions (\d+) by measured times, machine", result.out, re.MULTILINE)
        self.assertTrue(summary, result.out)
        lines = (run / "convolutions.txt").read_text().splitlines()
        self.assertEqual(len(lines), 2 * int(summary.group(1)))  # also if the machine wants interiors first
        for reason, problem in zip(lines[::2], lines[1::2]):
            self.assertRegex(reason, rf"^conv[12]: {other}, measured: {other} 0\.001 us, ")
            self.assertIn(problem.strip(), times)
        by_rule, _ = self.train(*train, ranks=2)
        for mine, theirs in zip(report["losses"], by_rule["losses"]):
            self.assertAlmostEqual(mine, theirs, delta=1e-3)  # the same network, summed in another order

        # With --resume nothing is measured again.
        result = aloni(*calibrate, "--resume", ranks=2)
        self.assertEqual(result.code, 0, result.err)
        self.assertEqual(json.loads(path.read_text())["convolutions"], machine["convolutions"])

        machine["convolutions"][0]["problems"][0]["problem"] = "forward float32 what"
        path.write_text(json.dumps(machine))
        result = aloni("train", "--data", "synthetic", *train, "--machine", str(path), ranks=2)
        self.assertNotEqual(result.code, 0)
        self.assertIn("convolutions[0].problems = forward float32 what", result.err)

    def test_chooses_a_strategy_and_keeps_it(self):
        def train(*arguments):
            command = ["train", "--data", "synthetic", "--steps", "2", "--batch", "8", "--progress", "none"]
            return finish(start([MPIRUN, "-n", "2", COMMAND, *command, *arguments],
                                env=os.environ | {"XDG_CACHE_HOME": self.folder}), 100)

        first = train()
        self.assertEqual(first.code, 0, first.err)
        rows = [line.split() for line in first.out.splitlines() if line.startswith("     ") or line.startswith("  *")]
        self.assertEqual(rows[0], ["strategy", "predicted", "measured", "memory"])
        self.assertEqual(sum(row[0] == "*" for row in rows), 1)
        self.assertGreaterEqual(len(rows), 3)  # at least two were compared
        self.assertLessEqual(max(map(len, first.out.splitlines())), 100)
        kept = list(pathlib.Path(self.folder, "aloni", "strategies").iterdir())
        self.assertEqual(len(kept), 1)
        self.assertIn("chosen before", train().out)
        self.assertNotIn("chosen before", train("--batch", "16").out)  # another training
        on_machine = train("--machine", "x86_server")
        self.assertEqual(on_machine.code, 0, on_machine.err)
        self.assertNotIn("chosen before", on_machine.out)
        self.assertIn("chosen before", train("--machine", "x86_server").out)
        self.assertEqual(len(list(pathlib.Path(self.folder, "aloni", "strategies").iterdir())), 4)  # and its limits
        self.assertIn("the best by the roofline of x86_server, without calibration", first.out)
        self.assertIn("the best by the cost model on machine x86_server", on_machine.out)
        choice = json.loads(kept[0].read_text())
        kept[0].write_text("{")
        self.assertIn("is damaged; chosen anew", train().out)
        self.assertIn("chosen before", train().out)
        # A home folder that machines share: the choice of the other one stays, and the output says why it is not taken.
        kept[0].unlink()
        processor = choice["conditions"]["processor"]
        choice["conditions"]["processor"] = "another one"
        other = kept[0].with_name(kept[0].name.split("-")[0] + "-00000000.json")
        other.write_text(json.dumps(choice))
        self.assertIn(f"{other.name} is of processor another one, not {processor}; chosen anew", train().out)
        self.assertIn("chosen before", train().out)
        self.assertTrue(other.exists())

    def test_times_no_strategy_whose_steps_take_too_long(self):
        began = time.monotonic()
        command = ["train", "--data", "synthetic", "--model", "vgg16", "--input", "224x224x3", "--batch", "12",
                   "--steps", "1", "--progress", "none"]
        process = start([MPIRUN, "-n", "2", COMMAND, *command], env=os.environ | {"XDG_CACHE_HOME": self.folder})
        lines = []
        for line in process.stdout:  # the training itself would take minutes
            lines.append(line)
            if "the cost model decides" in line:
                break
        seconds = time.monotonic() - began
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.assertIn("not timed", lines[-1], "".join(lines))
        self.assertLess(seconds, 20)

    def test_one_rank_saves_memory_by_itself(self):
        network = ["--model", "resnet18", "--data", "synthetic", "--input", "16x16x3", "--batch", "4", "--steps", "1"]
        plain, _ = self.train(*network, ranks=1)
        self.assertNotIn("recomputed", plain)
        path = os.path.join(self.folder, "plan.json")
        planned = aloni("plan", "--model", "resnet18", "--input", "16x16x3", "--batch", "4", "--json", path, ranks=0)
        self.assertEqual(planned.code, 0, planned.err)
        with open(path) as file:
            limit = str(json.load(file)["memory_bytes_per_rank"] - 1)
        saving, result = self.train(*network, "--memory-limit", limit, ranks=1)
        self.assertIn("savings ", result.out)
        self.assertNotEqual(saving["recomputed"], "")
        self.assertEqual(saving["losses"], plain["losses"])
        self.assertLessEqual(max(map(len, result.out.splitlines())), 100)
        # A strategy that is given keeps all activations, and is refused.
        refused = aloni("train", *network, "--memory-limit", limit, "--strategy", "n1", ranks=1)
        self.assertNotEqual(refused.code, 0)
        self.assertIn("memory limit", refused.err)
        for text in ("1 bytes more than the limit", "at layer", "2 ranks would do", "Recomputation"):
            self.assertIn(text, refused.err)

    def test_keeps_the_limits_of_a_step(self):
        def train(*arguments):
            command = ["train", "--data", "synthetic", "--steps", "2", "--batch", "8", "--strategy", "h2",
                       "--machine", "x86_server", "--progress", "none"]
            result = finish(start([MPIRUN, "-n", "2", COMMAND, *command, *arguments],
                                  env=os.environ | {"XDG_CACHE_HOME": self.folder}), 100)
            self.assertEqual(result.code, 0, result.err)
            return result.out

        first = train()
        self.assertIn("limits     by x86_server: ", first)
        self.assertIn("copies     ranks of a node copy ghosts of 16.0 KiB or more", first)
        self.assertNotIn("chosen before", first)
        kept, = pathlib.Path(self.folder, "aloni", "strategies").iterdir()
        limits = json.loads(kept.read_text())
        self.assertIn(limits["reason"], first)
        # The second start prints the reason of the file: it simulates nothing.
        limits["reason"] = "from a file"
        kept.write_text(json.dumps(limits))
        self.assertIn("limits     by x86_server: from a file; chosen before", train())
        self.assertNotIn("chosen before", train("--batch", "16"))  # another training
        self.assertNotIn("chosen before", train("--strategy", "w2"))
        kept.write_text("{")
        self.assertIn("is damaged; chosen anew", train())
        self.assertIn("chosen before", train())

    def test_ranks_in_another_order_train_the_same_samples(self):
        def train(steps, *arguments):
            path = os.path.join(self.folder, "out.json")
            result = finish(start([MPIRUN, "-n", "4", COMMAND, "--ranks-per-node", "2", "train", "--data", DATA,
                                   "--batch", "8", "--schedule", "constant", "--progress", "none", "--json", path,
                                   "--steps", steps, *arguments],
                                  env=os.environ | {"XDG_CACHE_HOME": self.folder}), 100)
            self.assertEqual(result.code, 0, result.out + result.err)
            with open(path) as file:
                return json.load(file)["losses"], result.out

        def keep(order):
            kept = json.loads(file.read_text()) | {"strategy": "* h2w2\n", "source": "h2w2", "rank_of": order}
            file.write_text(json.dumps(kept))

        train("1")
        file, = pathlib.Path(self.folder, "aloni", "strategies").iterdir()
        keep([])
        expected, out = train("6")
        self.assertIn("chosen before", out)
        keep([0, 2, 1, 3])
        placed = ["--checkpoint", os.path.join(self.folder, "checkpoint")]
        before, out = train("3", *placed)
        self.assertIn("chosen before", out)
        keep([])
        after, _ = train("6", *placed, "--resume")
        for losses in (before, after):
            for loss, other in zip(losses, expected):
                self.assertAlmostEqual(loss, other, delta=1e-4 * other)
        self.assertEqual((len(before), len(after)), (3, 6))
        keep([0, 1, 1, 3])
        self.assertIn("is damaged; chosen anew", train("1")[1])

    def test_prefers_a_file_to_a_grid_with_its_name(self):
        with open(os.path.join(self.folder, "h2"), "w") as text:
            text.write("* n2\n")
        result = aloni("train", "--data", DATA, "--steps", "1", "--strategy", "h2", ranks=2, cwd=self.folder)
        self.assertEqual(result.code, 0, result.err)
        result = aloni("train", "--data", DATA, "--steps", "1", "--strategy", "h2", ranks=2, cwd="/")
        self.assertEqual(result.code, 0, result.err)


class Command(unittest.TestCase):
    def test_help_and_version_go_to_stdout_once(self):
        for ranks in (0, 1, 2):
            for arguments in (["--help"], ["train", "--help"], ["info", "-h"], ["--version"], ["--kokkos-help"]):
                with self.subTest(arguments=arguments, ranks=ranks):
                    result = aloni(*arguments, ranks=ranks)
                    self.assertEqual((result.code, result.err), (0, ""))
                    mark = "--kokkos-num-threads" if "--kokkos-help" in arguments else result.out.splitlines()[0]
                    self.assertEqual(result.out.count(mark), 1)

    def test_info_writes_its_text_and_json_alike(self):
        with tempfile.TemporaryDirectory(prefix="aloni-test-") as folder:
            path = os.path.join(folder, "info.json")
            result = aloni("info", "--json", path, ranks=2)
            self.assertEqual(result.code, 0, result.err)
            with open(path) as file:
                info = json.load(file)
        self.assertEqual(info["ranks"], 2)
        self.assertEqual(info["nodes"], 1)
        self.assertIn("lenet5", info["models"])
        machine = info["machine"]
        self.assertEqual(machine["node_of_rank"], [0, 0])
        self.assertEqual(machine["direct_bytes"], 16384)
        self.assertTrue(machine["shared_memory"])
        self.assertFalse(machine["progress_thread"])
        self.assertGreater(machine["fragment_bytes"], 0)
        for line in ("values copied from another rank's memory, at least +16384 bytes",
                     "cost of a kernel call +60 pixels",
                     f"fragment of a message between nodes, at most +{machine['fragment_bytes']} bytes"):
            self.assertRegex(result.out, line)
        for key in ("version", "commit", "compiler", "kokkos", "mpi"):
            self.assertIn(info[key], result.out)
        if "blas" in info:
            self.assertIn(info["blas"]["library"], result.out)
            self.assertIn(info["blas"]["threads_of"], ("unknown", "sequential", "OpenMP", "its own"))
        self.assertTrue(aloni("--version", ranks=0).out.startswith("aloni " + info["version"]))

    def test_info_warns_if_the_threads_of_blas_compete(self):
        result = aloni("info", ranks=0, env={**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"})
        self.assertEqual(result.code, 0, result.err)
        self.assertEqual("compete" in result.out, bool(re.search("threads of +its own", result.out)), result.out)

    def test_info_names_kernels_of_blas_for_this_processor(self):
        def kernels(**variables):
            inherited = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
            result = aloni("info", ranks=0, env=inherited | variables)
            self.assertEqual(result.code, 0, result.err)
            return dict(re.findall(r"^  (kernels for|instead of kernels for) +(\w+)$", result.out, re.MULTILINE))

        forced = kernels(OPENBLAS_CORETYPE="Prescott").get("kernels for")
        if forced != "Prescott":
            self.skipTest(f"kernels for {forced}: no OpenBLAS with kernels for several processors")
        found = kernels()
        avx2 = re.search(r"^flags.*\bavx2\b", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if avx2:  # OpenBLAS knows the processor, or its choice is exchanged
            self.assertNotIn(found["kernels for"], ("Prescott", "Barcelona"))
        self.assertNotEqual(found["kernels for"], found.get("instead of kernels for"))

    def test_kokkos_flags_may_stand_anywhere(self):
        for arguments in (["--kokkos-num-threads=1", "info"], ["info", "--kokkos-num-threads=1"],
                          ["info", "--kokkos-print-configuration"]):
            result = aloni(*arguments, ranks=0, env={**os.environ, "OMP_NUM_THREADS": "2"})
            self.assertEqual(result.code, 0, result.err)
        self.assertIn("Kokkos Version", result.out)


if __name__ == "__main__":
    unittest.main()
