"""Wrong requests and damaged files. The command prints one line that names the error and its place. It returns the
documented exit code, and no rank hangs."""
import gzip
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from command import (COMMAND, DATA, FAILURE, MPIRUN, USAGE, aloni, aloni_each, finish, run_side_by_side, start,
                     with_strategy)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from experiment import record

LIMIT = 20  # seconds, the start of the launcher on a busy machine included; ranks that wait would do so for 30
ALONE = (0,)  # without the launcher, for errors that concern no other rank: it sleeps for seconds after a failure
RANKS = (1, 2, 4)
LABELS = "train-labels-idx1-ubyte"
IMAGES = "train-images-idx3-ubyte"
CHECKED = []  # [whether the error was right, seconds] of each run


def bytes_of_header(*extents):
    return b"\0\0\x08" + bytes([len(extents)]) + b"".join(e.to_bytes(4, "big") for e in extents)


class BadInput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="aloni-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def damaged_data(self, name, change):
        """A folder like the subset. `change` maps the compressed bytes of one file to new ones; None: no such file."""
        folder = self.path("data")
        os.mkdir(folder)
        for file in os.listdir(DATA):
            if file == name + ".gz":
                with open(os.path.join(DATA, file), "rb") as source:
                    changed = change(source.read())
                if changed is not None:
                    with open(os.path.join(folder, file), "wb") as target:
                        target.write(changed)
            else:
                os.symlink(os.path.join(DATA, file), os.path.join(folder, file))
        return folder

    def check(self, result, code, *words, what=""):
        told = f"{what}\nstdout: {result.out}\nstderr: {result.err}"
        checked = [False, result.seconds]
        CHECKED.append(checked)
        self.assertFalse(result.timed_out, told)
        self.assertEqual(result.code, code, told)
        lines = result.own_lines()
        self.assertEqual(len(lines), 1, told)
        self.assertTrue(lines[0].startswith("aloni: "), told)
        for word in words:
            self.assertIn(word, lines[0], told)
        checked[0] = True
        return result

    def refused(self, code, words, *arguments, ranks=ALONE):
        # All runs at the same time: after a failure the launcher mostly sleeps.
        with ThreadPoolExecutor(len(ranks)) as pool:
            results = list(pool.map(lambda count: aloni(*arguments, ranks=count, limit=LIMIT), ranks))
        for count, result in zip(ranks, results):
            with self.subTest(arguments=arguments, ranks=count):
                self.check(result, code, *words, what=f"{count} ranks: {' '.join(arguments)}")
                self.assertEqual(result.out, "", "the command printed results before the error")

    def train_refused(self, code, words, *arguments, ranks=ALONE, data=DATA):
        self.refused(code, words, "train", "--data", data, *arguments, ranks=ranks)

    def test_refuses_an_unknown_flag(self):
        self.train_refused(USAGE, ["--frobnicate"], "--frobnicate", ranks=RANKS)
        self.refused(USAGE, ["--frobnicate"], "--frobnicate", "info", ranks=(0, 2))

    def test_refuses_a_missing_or_unknown_subcommand(self):
        self.refused(USAGE, ["subcommand"], ranks=(0, 2))
        self.refused(USAGE, ["dance"], "dance", ranks=(0, 2))

    def test_suggests_the_nearest_name(self):
        self.train_refused(USAGE, ["--bacth", "did you mean --batch?"], "--bacth", "3", ranks=(0, 2))
        self.train_refused(USAGE, ["--epoch=3", "did you mean --epochs?"], "--epoch=3")
        self.train_refused(USAGE, ["lenet", "did you mean lenet5?"], "--model", "lenet")
        self.refused(USAGE, ["trian", "did you mean train?"], "trian", ranks=ALONE)
        strategy = self.write("rows.strategy", "*  1\nconv11  1\n")
        self.train_refused(USAGE, ["rows.strategy:2", "did you mean conv1?"], "--strategy", strategy)
        self.train_refused(USAGE, ["did you mean", "rows.strategy?"], "--strategy", strategy.replace("rows.", "row."))
        os.mkdir(self.path("images"))
        self.train_refused(FAILURE, ["missing", "did you mean", "images?"], data=self.path("imgaes"))

    def test_refuses_values_out_of_range(self):
        self.train_refused(USAGE, ["--batch", "0"], "--batch", "0")
        self.train_refused(USAGE, ["--accumulate", "5", "64"], "--accumulate", "5")
        self.train_refused(USAGE, ["--epochs", "-1"], "--epochs", "-1")
        self.train_refused(USAGE, ["--learning-rate", "nan"], "--learning-rate", "nan")
        self.train_refused(USAGE, ["--optimiser", "sgd, adam,", "did you mean adam?"], "--optimiser", "adm")
        self.train_refused(USAGE, ["--stuck-after", "-1"], "--stuck-after", "-1")
        self.train_refused(USAGE, ["resnet9000", "lenet5"], "--model", "resnet9000")

    def test_refuses_bad_kokkos_flags(self):
        self.train_refused(USAGE, ["--kokkos-num-threads"], "--kokkos-num-threads=many", ranks=(0, 2))
        self.train_refused(USAGE, ["--kokkos-dance"], "--kokkos-dance")

    def test_names_an_absent_folder(self):
        self.train_refused(FAILURE, ["no-such-folder", "missing"], data=self.path("no-such-folder"), ranks=RANKS)

    def test_names_a_missing_file(self):
        data = self.damaged_data("t10k-labels-idx1-ubyte", lambda bytes: None)
        self.train_refused(FAILURE, ["t10k-labels-idx1-ubyte", "missing"], data=data)

    def test_names_the_rank_that_misses_a_file(self):
        good = ["train", "--data", DATA, "--steps", "1"]
        bad = ["train", "--data", self.path("nowhere"), "--steps", "1"]
        for lists in ([good, bad], [bad, good], [good, good, bad, good]):
            with self.subTest(bad_rank=lists.index(bad)):
                result = aloni_each(*lists, limit=LIMIT)
                self.check(result, FAILURE, "nowhere", "missing")
                if lists[0] is good:
                    self.assertIn(f"rank {lists.index(bad)}: ", result.err)

    def test_names_the_rank_with_an_unknown_flag(self):
        good = ["train", "--data", DATA, "--steps", "1"]
        self.check(aloni_each(good, good + ["--what"], limit=LIMIT), USAGE, "rank 1: ", "--what")

    def test_names_the_option_that_differs_between_ranks(self):
        def each(*options):
            return aloni_each(*(["train", "--data", DATA, "--steps", "2", *o] for o in options), limit=LIMIT)
        self.check(each([], ["--seed", "7"]), USAGE, "--seed", "1 on rank 0", "7 on rank 1")
        self.check(each(["--learning-rate", "0.06"], [], []), USAGE, "--learning-rate", "0.06 on rank 0", "ranks 1, 2")
        self.check(each([], ["--json", self.path("out.json")]), USAGE, "--json", "given on rank 1")
        self.check(each([], ["--steps", "3"]), USAGE, "--steps", "3 on rank 1")
        self.check(each(["--trace", self.path("trace.json")], []), USAGE, "--trace", "not given on rank 1")
        self.check(each(["--precision", "double"], []), USAGE, "--precision", "float on rank 1")
        self.check(each([], ["--strategy", "h2"]), USAGE, "--strategy", "h2 on rank 1")
        different = aloni_each(["train", "--data", DATA, "--steps", "2"], ["info"], limit=LIMIT)
        self.check(different, USAGE, "subcommand", "train on rank 0", "info on rank 1")

    def test_names_the_data_that_differ_between_ranks(self):
        def reordered(bytes):
            plain = gzip.decompress(bytes)
            return gzip.compress(plain[:8] + plain[8:][::-1])
        self.check_different_data(LABELS, reordered, "training set's labels")

    def test_names_the_number_of_images_that_differs_between_ranks(self):
        def fewer(bytes, count=7990, element=1, header=8):
            plain = gzip.decompress(bytes)
            return gzip.compress(plain[:4] + count.to_bytes(4, "big") + plain[8:header + count * element])
        def fewer_images(bytes):
            return fewer(bytes, element=28 * 28, header=16)
        other = self.damaged_data(LABELS, fewer)
        images = os.path.join(other, IMAGES + ".gz")
        with open(images, "rb") as file:
            changed = fewer_images(file.read())
        os.remove(images)
        with open(images, "wb") as file:
            file.write(changed)
        good, bad = (["train", "--steps", "1", "--data", data] for data in (DATA, other))
        self.check(aloni_each(good, bad, limit=LIMIT), USAGE, "training set's samples", "8000 on rank 0",
                   "7990 on rank 1")

    def check_different_data(self, name, change, *words):
        good, bad = (["train", "--steps", "1", "--data", data] for data in (DATA, self.damaged_data(name, change)))
        self.check(aloni_each(good, bad, limit=LIMIT), USAGE, "on rank 1", *words)

    def test_accepts_equal_replicas_at_every_check(self):
        for ranks, strategy in (1, "1"), (2, "h2"), (4, "c2f2"), (4, "n2h2"):
            result = aloni("train", "--data", DATA, "--steps", "4", "--strategy", strategy, "--check-replicas", "1",
                           "--progress", "none", ranks=ranks)
            self.assertEqual(result.code, 0, result.err)

    def test_stops_at_the_first_loss_that_is_not_finite(self):
        arguments = ["train", "--data", DATA, "--steps", "20", "--learning-rate", "1e30", "--progress", "none"]
        for ranks in (1, 2):
            result = aloni(*arguments, ranks=ranks, limit=LIMIT)
            self.check(result, FAILURE, "loss of step 2", "1e+30", "last finite loss 2.", "step 1", "nonfinite")
            self.assertEqual(len(result.out.splitlines()), 2, result.out)
        self.assertEqual(aloni(*arguments, "--allow-nonfinite", limit=LIMIT).code, 0)

    def test_refuses_a_truncated_file(self):
        data = self.damaged_data(IMAGES, lambda bytes: bytes[:len(bytes) // 2])
        self.train_refused(FAILURE, [IMAGES, "truncated"], data=data, ranks=RANKS)

    def test_refuses_a_truncated_header(self):
        data = self.damaged_data(LABELS, lambda bytes: gzip.compress(gzip.decompress(bytes)[:6]))
        self.train_refused(FAILURE, [LABELS, "truncated"], data=data)

    def test_refuses_a_header_with_absurd_extents(self):
        def promise(bytes):
            return gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12 + gzip.decompress(bytes)[16:])
        self.train_refused(FAILURE, [IMAGES, "absurd"], data=self.damaged_data(IMAGES, promise))

    def test_refuses_a_header_with_more_than_a_compressed_file_can_hold(self):
        def promise(bytes):  # 8000 images of 60000x60000 pixels
            return gzip.compress(bytes_of_header(8000, 60000, 60000) + b"\0" * 1000)
        self.train_refused(FAILURE, [IMAGES, "absurd", "8000x60000x60000"], data=self.damaged_data(IMAGES, promise))

    def test_compares_the_number_of_images_before_it_reads_them(self):
        def promise(bytes):  # the file ends early, which is noticed only by reading
            return gzip.compress(bytes_of_header(8001, 28, 28) + os.urandom(1 << 20))[:-1000]
        self.train_refused(FAILURE, [LABELS, "8000 labels", "8001"], data=self.damaged_data(IMAGES, promise))

    def test_refuses_damaged_compression(self):
        data = self.damaged_data(IMAGES, lambda bytes: bytes[:1000] + b"damage" + bytes[1006:])
        self.train_refused(FAILURE, [IMAGES], data=data)

    def test_names_the_image_whose_label_is_out_of_range(self):
        def change(bytes):
            plain = bytearray(gzip.decompress(bytes))
            plain[8 + 1234] = 10
            return gzip.compress(plain)
        self.train_refused(FAILURE, [LABELS, "label 10 of sample 1234"], data=self.damaged_data(LABELS, change))

    def test_refuses_different_counts_of_images_and_labels(self):
        def change(bytes):
            plain = gzip.decompress(bytes)
            return gzip.compress(plain[:4] + (7999).to_bytes(4, "big") + plain[8:-1])
        self.train_refused(FAILURE, [LABELS, "7999"], data=self.damaged_data(LABELS, change))

    def test_refuses_to_offload_from_a_host(self):
        self.refused(USAGE, ["--offload = conv1", "--recompute", "host memory already"], "train", "--data", DATA,
                     "--offload", "conv1", ranks=(1, 2))
        self.refused(USAGE, ["offloading", "conv1", "host memory already"], "plan", "--offload", "conv1")

    def test_refuses_to_record_on_a_host(self):
        self.refused(USAGE, ["--record = given", "expected a device"], "train", "--data", DATA, "--record")

    def test_refuses_a_step_that_needs_more_memory_than_the_machine_has(self):
        self.refused(USAGE, ["memory of rank ", "GiB: expected at most ", "--recompute auto", "--memory-limit",
                             "The step needs ", " more, most of it at ", " ranks would do (with ",
                             " times the blocks of samples)"],
                     "train", "--data", "synthetic", "--steps", "1", "--model", "mesh2k", "--batch", "512",
                     "--strategy", "h2", ranks=(2,))

    def test_refuses_factors_that_need_more_memory_than_the_machine_has(self):
        self.refused(USAGE, ["--optimiser kfac: memory of a rank", "GiB: expected at most ", "Factors of layers"],
                     "train", "--data", "synthetic", "--steps", "1", "--model", "lenet5", "--classes", "200000",
                     "--optimiser", "kfac", "--batch", "2", ranks=(1,))

    def test_refuses_a_strategy_with_an_unknown_layer(self):
        strategy = self.write("my.strategy", "# a comment\n*  1\nconv9  1\n")
        self.train_refused(USAGE, ["my.strategy:3", "conv9", "conv1"], "--strategy", strategy, ranks=RANKS)

    def test_names_the_bad_line_of_a_strategy(self):
        strategy = self.write("my.strategy", "conv* h2\npool* q7\n* n2\n")
        self.train_refused(USAGE, ["my.strategy:2", "q7"], "--strategy", strategy)

    def test_names_the_layer_that_a_strategy_leaves_out(self):
        strategy = self.write("my.strategy", "conv* h2\n")
        self.train_refused(USAGE, ["my.strategy", "relu1"], "--strategy", strategy, ranks=(2,))

    def test_refuses_more_blocks_than_ranks(self):
        self.train_refused(USAGE, ["h8", "rank"], "--strategy", "h8", ranks=(0, 4))
        strategy = self.write("my.strategy", "conv1 h8\n* n1\n")
        self.train_refused(USAGE, ["my.strategy:1", "h8"], "--strategy", strategy, ranks=(2,))

    def test_refuses_a_grid_that_does_not_divide_the_ranks(self):
        self.train_refused(USAGE, ["h3", "divides the 4 ranks", "h2 or h4, or 3 or 6 ranks"], "--strategy", "h3",
                           ranks=(4,))
        self.train_refused(USAGE, ["n2", "divides the 3 ranks"], "--strategy", "n2", ranks=(3,))

    def test_refuses_an_unknown_kind_of_gradients(self):
        self.train_refused(USAGE, ["--gradients", "few", "majority"], "--gradients", "few")

    def test_refuses_missing_damaged_and_unknown_machines(self):
        missing = self.path("nowhere.json")
        self.train_refused(FAILURE, ["nowhere.json", "missing"], "--machine", missing, ranks=(1, 2))
        damaged = self.write("my.json", '{"aloni_machine": 3, "name": ')
        self.train_refused(USAGE, ["my.json"], "--machine", damaged, ranks=(2,))
        self.train_refused(USAGE, ["--machine", "lassen"], "--machine", "lasen")

    def test_refuses_a_strategy_that_is_neither_file_nor_grid(self):
        self.train_refused(USAGE, ["--strategy", "rows"], "--strategy", "rows")
        self.train_refused(USAGE, ["d2"], "--strategy", "d2", ranks=(2,))
        self.train_refused(USAGE, ["f3"], "--strategy", "f3", ranks=(2,))
        self.train_refused(USAGE, ["--strategy", "h2f"], "--strategy", "h2f")

    def test_refuses_json_in_a_missing_folder(self):
        self.train_refused(FAILURE, ["nowhere/out.json"], "--json", self.path("nowhere/out.json"))
        self.refused(FAILURE, ["nowhere/out.json"], "info", "--json", self.path("nowhere/out.json"))

    def test_refuses_a_folder_for_json(self):
        self.train_refused(FAILURE, [self.folder, "folder"], "--json", self.folder)

    def test_refuses_bad_places_for_a_picture(self):
        self.train_refused(FAILURE, ["nowhere/times.svg"], "--compare", "--draw", self.path("nowhere/times.svg"))
        self.train_refused(FAILURE, [self.folder, "folder"], "--compare", "--draw", self.folder)

    def test_refuses_bad_places_for_a_trace(self):
        self.train_refused(FAILURE, ["nowhere/trace.json"], "--trace", self.path("nowhere/trace.json"))
        self.train_refused(FAILURE, [self.folder, "folder"], "--trace", self.folder)
        self.train_refused(FAILURE, ["/dev/zero", "not a regular file"], "--trace", "/dev/zero")
        self.train_refused(USAGE, ["--trace-steps", "0"], "--trace", self.path("trace.json"), "--trace-steps", "0")

    def test_refuses_pipes_and_devices_at_once(self):
        pipe, machine = self.path("pipe"), self.path("machine.json")
        os.mkfifo(pipe)
        os.mkfifo(machine)
        self.train_refused(FAILURE, [machine, "not a regular file"], "--machine", machine, ranks=(0, 2))
        for place in (pipe, "/dev/zero"):
            self.train_refused(FAILURE, [place, "not a regular file"], "--strategy", place, ranks=(0, 2))
            self.train_refused(FAILURE, [place, "not a regular file"], "--json", place, ranks=(0, 2))
            self.train_refused(FAILURE, [place, "not a folder"], data=place)
            self.refused(FAILURE, [place, "not a regular file"], "info", "--json", place)
            self.refused(FAILURE, [place, "not a regular file"], "calibrate", "--json", place)
        data = self.damaged_data(LABELS, lambda bytes: None)
        os.mkfifo(os.path.join(data, LABELS))
        self.train_refused(FAILURE, [LABELS, "not a regular file"], data=data)

    def test_prints_results_even_if_their_file_cannot_be_written(self):
        for ranks, lost, kept in ((1, "--json", "--trace"), (2, "--trace", "--json")):
            folder = self.path(f"folder{ranks}")
            os.mkdir(folder)
            good = self.path(f"kept{ranks}.json")
            launcher = [MPIRUN, "-n", str(ranks)]
            # Long enough that the folder is gone before the end, also on a busy machine.
            arguments = ("train", "--data", DATA, "--epochs", "4", "--progress", "none", lost,
                         os.path.join(folder, "out.json"), kept, good)
            process = start(launcher + [COMMAND, *with_strategy(arguments, ranks)])
            first = process.stdout.readline()  # the file could have been written until here
            os.rmdir(folder)
            result = finish(process, 60)
            result.out = first + result.out
            self.check(result, FAILURE, f"folder{ranks}/out.json")
            self.assertIn("test accuracy", result.out)
            self.assertIn("samples/s", result.out)
            with open(good) as file:
                json.load(file)


if __name__ == "__main__":
    run_side_by_side(BadInput, done=lambda: record(
        "bad_input", len(CHECKED), sum(not good for good, _ in CHECKED), [seconds for _, seconds in CHECKED]))
