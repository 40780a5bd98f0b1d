"""aloni train --run writes a folder from which the same run starts again, and a page that a browser shows."""
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import struct
import tempfile
import unittest
import zlib
from base64 import b64decode

from command import FAILURE, USAGE, aloni
from npy import floats, npy

DATA = os.environ["ALONI_DATA"]
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


class Data(html.parser.HTMLParser):
    """The JSON of the element with the numbers, and all addresses of the page."""

    def __init__(self, text):
        super().__init__()
        self.inside, self.json, self.addresses, self.curves = False, "", [], 0
        self.feed(text)
        self.numbers = json.loads(self.json)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.inside = attributes.get("id") == "aloni-data"
        self.addresses += [attributes[name] for name in ("src", "href") if name in attributes]
        self.curves += attributes.get("class") == "curve"

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.json += data


def pixels_of(address):
    """Width, height and the rows of a picture in a page."""
    kind, text = address.split(",")
    data = b64decode(text)
    assert kind == "data:image/png;base64" and data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        length = struct.unpack(">I", data[at:at + 4])[0]
        name, body = data[at + 4:at + 8], data[at + 8:at + 8 + length]
        assert zlib.crc32(name + body) == struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0]
        chunks[name], at = body, at + 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = zlib.decompress(chunks[b"IDAT"])
    assert len(rows) == height * (1 + 3 * width)
    return width, height, [rows[r * (1 + 3 * width) + 1:(r + 1) * (1 + 3 * width)] for r in range(height)]


def metrics_of(folder):
    lines = [json.loads(line) for line in pathlib.Path(folder, "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "epoch" not in line], [line for line in lines if "epoch" in line]


class Run(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def train(self, *arguments, ranks=2, code=0):
        result = aloni("train", "--progress", "none", *arguments, ranks=ranks, limit=100)
        self.assertEqual(result.code, code, result.err)
        return result

    def test_a_run_is_repeated_and_continued(self):
        first, second = str(self.folder / "first"), str(self.folder / "second")
        strategy = self.folder / "strategy"
        strategy.write_text("conv*  h2\n*  n2\n")
        # Small numbers of steps: what counts is the position, not the accuracy.
        result = self.train("--data", DATA, "--strategy", str(strategy), "--batch", "2000", "--epochs", "2",
                            "--optimiser", "adam", "--run", first)
        self.assertIn(f"report      {first}/report.html", result.out)
        strategy.unlink()
        self.train("--config", first + "/config.json", "--run", second)
        steps, epochs = metrics_of(first)
        self.assertEqual([line["step"] for line in steps], list(range(1, 9)))
        self.assertEqual([line["step"] for line in epochs], [4, 8])
        again, _ = metrics_of(second)
        self.assertEqual([line["loss"] for line in steps], [line["loss"] for line in again])

        refused = self.train("--config", first + "/config.json", "--run", first, code=FAILURE)
        self.assertIn("--resume", refused.err)
        self.train("--config", first + "/config.json", "--run", first, "--resume", "--epochs", "3", ranks=2)
        longer, epochs = metrics_of(first)
        self.assertEqual([line["step"] for line in longer], list(range(1, 13)))
        self.assertEqual([line["loss"] for line in longer[:8]], [line["loss"] for line in steps])
        self.assertEqual([line["epoch"] for line in epochs], [1, 2, 3])
        self.check_page(first, longer, epochs)

    def test_a_run_keeps_the_strategy_that_the_command_chose(self):
        first, second, third = (str(self.folder / name) for name in ("first", "second", "third"))
        given = self.folder / "given.json"  # without --config command.py would add a strategy
        given.write_text(json.dumps({"aloni_run": 1, "options": {
            "--data": "synthetic", "--model": "lenet5", "--input": "16x16x1", "--batch": 8, "--steps": 3}}))
        self.train("--config", str(given), "--run", first)
        configuration = json.loads(pathlib.Path(first, "config.json").read_text())
        self.assertEqual(configuration["chosen"], {"--strategy": "./strategy"})
        self.assertEqual(configuration["defaults"]["--seed"], 1)
        self.assertNotIn("--batch", configuration["defaults"])
        again = self.train("--config", first + "/config.json", "--run", second)
        self.assertIn(f"strategy {first}/strategy", again.out)
        self.assertEqual([line["loss"] for line in metrics_of(first)[0]],
                         [line["loss"] for line in metrics_of(second)[0]])
        self.train("--config", first + "/config.json", "--run", third, ranks=1)  # the choice was for two ranks

    def check_page(self, folder, steps, epochs):
        path = pathlib.Path(folder, "report.html")
        self.assertLess(path.stat().st_size, 1_000_000)
        page = Data(path.read_text())
        self.assertTrue(all(address.startswith("data:") for address in page.addresses), page.addresses)
        self.assertEqual(page.curves, 5)  # losses, test losses, accuracies, top-5 accuracies, learning rates
        self.assertEqual([loss for _, loss in page.numbers["losses"]], [line["loss"] for line in steps])
        self.assertEqual([epoch["metrics"]["test accuracy"] for epoch in page.numbers["epochs"]],
                         [line["test_accuracy"] for line in epochs])
        self.assertEqual(page.numbers["configuration"]["--optimiser"], "adam")
        digits = [pixels_of(address) for address in page.addresses if address.startswith("data:image/png")]
        self.assertEqual([(width, height) for width, height, _ in digits], [(28, 28)] * 8)
        for _, _, rows in digits:
            self.assertEqual((min(map(min, rows)), max(map(max, rows))), (0, 255))
        self.assertEqual(len(re.findall(r"predicted \d: (right|wrong, is \d)<", path.read_text())), 8)
        if BROWSER:
            shown = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                                    path.as_uri()], capture_output=True, text=True, timeout=60, check=True).stdout
            self.assertEqual(Data(shown).numbers, page.numbers)

    def test_refuses_what_is_no_configuration(self):
        path = self.folder / "config.json"
        path.write_text('{"aloni_run": 1, "options": {"--data": "synthetic", "--learning-rat": 1}}')
        result = self.train("--config", str(path), ranks=1, code=USAGE)
        self.assertIn("--learning-rat", result.err)
        self.assertIn("missing.json", self.train("--config", "missing.json", ranks=1, code=FAILURE).err)
        file = self.folder / "file"
        file.write_text("")
        result = self.train("--data", DATA, "--run", str(file), ranks=2, code=FAILURE)
        self.assertIn(str(file), result.err)

    def test_a_run_with_masks_shows_input_truth_and_prediction_of_every_split(self):
        data, network = self.folder / "data", self.folder / "network.json"
        data.mkdir()
        # The mask is the left half of the image, which is bright there; samples have more pixels than pictures.
        bright = [1.0 if x < 100 else 0.0 for _ in range(40) for x in range(200)]
        for prefix in "", "test-":
            (data / (prefix + "images.npy")).write_bytes(npy((4, 40, 200, 1), "<f4", floats(bright * 4)))
            (data / (prefix + "masks.npy")).write_bytes(npy((4, 40, 200), "|u1", bytes(map(int, bright * 4))))
        layers = [{"name": "last", "kind": "convolution", "filters": 2}]
        network.write_text(json.dumps({"aloni_network": 1, "input": [40, 200, 1], "loss": "pixel_cross_entropy",
                                       "layers": layers}))
        shown = []
        for strategy, ranks in ("n1", 1), ("h2", 2), ("n3", 3):
            folder = str(self.folder / strategy)
            self.train("--data", str(data), "--model", str(network), "--batch", "3", "--epochs", "1", "--strategy",
                       strategy, "--precision", "double", "--run", folder, ranks=ranks)
            text = pathlib.Path(folder, "report.html").read_text()
            pictures = [pixels_of(a) for a in Data(text).addresses if a.startswith("data:image/png")]
            self.assertEqual([picture[:2] for picture in pictures], [(100, 20)] * 9)  # three of a mini-batch
            shown.append([rows for _, _, rows in pictures])
            self.assertEqual(shown[-1], shown[0])
            self.assertEqual(len(re.findall(r"sample \d: \d+\.\d % right<", text)), 3)
        source, truth, _ = shown[0][:3]
        self.assertEqual(source[0], bytes([255] * 150 + [0] * 150))
        self.assertEqual(set(truth[0][150:]), {0})
        self.assertGreater(max(truth[0][:150]), 200)

    def test_a_run_on_synthetic_data_has_a_page_without_a_test_set(self):
        folder = str(self.folder / "run")
        self.train("--data", "synthetic", "--model", "cosmoflow", "--input", "16x16x16x1", "--steps", "3", "--batch",
                   "2", "--run", folder)
        page = Data(pathlib.Path(folder, "report.html").read_text())
        self.assertEqual(len(page.numbers["losses"]), 3)
        self.assertEqual(page.numbers["epochs"][0]["metrics"], {})


unittest.main()
