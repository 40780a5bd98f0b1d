"""aloni train --run writes a folder from which the same run starts again, and a page that a browser shows."""
import html.parser
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from command import FAILURE, USAGE, aloni

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

    def test_a_run_on_synthetic_data_has_a_page_without_a_test_set(self):
        folder = str(self.folder / "run")
        self.train("--data", "synthetic", "--model", "cosmoflow", "--input", "16x16x16x1", "--steps", "3", "--batch",
                   "2", "--run", folder)
        page = Data(pathlib.Path(folder, "report.html").read_text())
        self.assertEqual(len(page.numbers["losses"]), 3)
        self.assertEqual(page.numbers["epochs"][0]["metrics"], {})


unittest.main()
