#!/usr/bin/env python3
"""Makes one table and one JSON file of the results of scripts/gpu_acceptance.sh: table.py OUT

Reads OUT/expected (the steps of a whole run, "stage/step" per line), OUT/STAGE/STEP.status ("exit status, seconds"),
the last line of OUT/STAGE/STEP.log, and the JSON files that benchmarks and trainings wrote beside them.
Prints the table, and writes OUT/table.txt and OUT/acceptance.json.

Verdicts: passed, failed (malformed results too), missing (a step has not run), not available (a step cannot run here;
the table tells why), information (figures without a bar).
Exit status: 0 all bars passed; 1 at least one failed; 3 none failed, but at least one is missing or not available.
"""
import argparse
import json
import pathlib
import re
import statistics
import sys

NOT_AVAILABLE = 77
PASSED, FAILED, MISSING, UNAVAILABLE, INFORMATION = "passed", "failed", "missing", "not available", "information"


class Malformed(Exception):
    """A result file without the expected figures."""


class Absent(Exception):
    """A result that does not exist: (verdict, reason)."""

    def __init__(self, verdict, reason):
        super().__init__(reason)
        self.verdict = verdict


class Results:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def status(self, step):
        """Exit status and seconds of a step; None if it has not run."""
        file = self.folder / f"{step}.status"
        if not file.exists():
            return None
        words = file.read_text().split()
        if len(words) != 2 or not all(word.isdigit() for word in words):
            raise Malformed(f"{step}.status: expected an exit status and seconds")
        return int(words[0]), int(words[1])

    def last_line(self, step):
        file = self.folder / f"{step}.log"
        lines = file.read_text(errors="replace").split("\n") if file.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")

    def require(self, step):
        """Returns if the step succeeded; otherwise throws Absent."""
        status = self.status(step)
        if status is None:
            raise Absent(MISSING, f"{step} has not run")
        if status[0] == NOT_AVAILABLE:
            raise Absent(UNAVAILABLE, self.last_line(step))
        if status[0] != 0:
            raise Absent(FAILED, f"{step} ended with status {status[0]}: {self.last_line(step)}")

    def json(self, step):
        self.require(step)
        file = self.folder / f"{step}.json"
        try:
            return json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise Malformed(f"{step}.json: {error}") from error

    def seconds(self, step, key="step_seconds"):
        return positive(self.json(step).get(key), f"{step}.json: {key}")

    def microseconds(self, step):
        """Times of a benchmark's cases: name → µs of its fastest batch."""
        times = {}
        for case in self.json(step).get("benchmarks", []):
            name = case.get("name", "").removesuffix("/iterations:1/manual_time")
            if case.get("error_occurred"):
                raise Malformed(f"{step}.json: {name} failed: {case.get('error_message')}")
            times[name] = positive(case.get("best_us"), f"{step}.json: best_us of {name}")
        if not times:
            raise Malformed(f"{step}.json has no cases")
        return times


def positive(value, what):
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise Malformed(f"{what} is {value!r}, expected a positive number")
    return float(value)


# --- rows: each function returns (result as text, value, explanation) ---

def local_convolution(results):
    """cuDNN's fastest plan called directly, divided by the library's time; the worst layer and pass counts."""
    times = results.microseconds("convolution/float")
    ratios = {}
    for name, direct in times.items():
        if name.startswith("limit/") and name.endswith("/cudnn"):
            case = name.removeprefix("limit/").removesuffix("/cudnn")
            own = times.get(f"local_conv/{case}/automatic")
            if own is None:
                raise Malformed(f"convolution/float.json: limit of {case}, but no time of the library")
            ratios[case] = direct / own
    if not ratios:
        raise Malformed("convolution/float.json has no case limit/…/cudnn")
    worst = min(ratios, key=ratios.get)
    middle = statistics.median(ratios.values())
    return ratios[worst], f"worst: {worst}; median {middle:.3f} of {len(ratios)}"


def interior(results):
    times = results.microseconds("interior/mesh_conv1_1_2048")
    prefix = "interior/mesh_conv1_1_2048/h2w2/"
    try:
        return times[prefix + "interior_and_border"] / times[prefix + "unsplit"], "forward pass, rank 0 of four"
    except KeyError as error:
        raise Malformed(f"interior/mesh_conv1_1_2048.json has no case {error.args[0]}") from error


def halo(results):
    times = results.microseconds("halo/faces")
    ratios = {}
    for name, exchange in times.items():
        if name.startswith("halo/") and name.endswith("/shared"):
            face = name.removeprefix("halo/").removesuffix("/shared")
            if f"copy/{face}" in times:  # equal bytes: bandwidths are inverse times
                ratios[face] = times[f"copy/{face}"] / exchange
    if len(ratios) != 3:
        raise Malformed(f"halo/faces.json: expected three faces with a copy of as many bytes, found {sorted(ratios)}")
    worst = min(ratios, key=ratios.get)
    return ratios[worst], "; ".join(f"{face} {ratio:.2f}" for face, ratio in sorted(ratios.items()))


def against_pytorch(step):
    def row(results):
        own = results.seconds(f"steps/{step}")
        theirs = results.seconds(f"steps/{step}-pytorch")
        return theirs / own, f"{own * 1e3:.1f} ms, PyTorch {theirs * 1e3:.1f} ms"
    return row


def recorded(step):
    """Kernels that are repeated as graphs of the device."""
    def row(results):
        graphs, plain = results.seconds(f"steps/{step}-recorded"), results.seconds(f"steps/{step}")
        return graphs / plain, f"{graphs * 1e3:.1f} ms, submitted one by one {plain * 1e3:.1f} ms"
    return row


def idle(results):
    share = results.json("idle/mesh1k").get("idle_share")
    if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 <= share <= 1:
        raise Malformed(f"idle/mesh1k.json: idle_share is {share!r}, expected a number from 0 to 1")
    return float(share), "mesh 1K, float; the second half of the run"


def memory(results):
    """The faster way: activations are computed again, or lie in host memory."""
    again, offloaded = results.seconds("memory/mesh2k-6G"), results.seconds("memory/mesh2k-6G-offloaded")
    free = results.seconds("memory/mesh2k")
    return min(again, offloaded) / free, (f"{again * 1e3:.1f} ms recomputed, {offloaded * 1e3:.1f} ms offloaded, "
                                          f"without a limit {free * 1e3:.1f} ms")


# (check, function, bar: ">=" or "<=" and a number, or None)
BARS = (
    ("local convolution / cuDNN called directly", local_convolution, (">=", 0.97)),
    ("interior + border / unsplit", interior, ("<=", 1.08)),
    ("halo of two ranks / copy bandwidth", halo, (">=", 0.7)),
    ("mesh 1K step, bfloat16 / PyTorch compiled", against_pytorch("mesh1k-bfloat16"), (">=", 1.1)),
    ("ResNet-50 step, bfloat16 / PyTorch compiled", against_pytorch("resnet50-bfloat16"), (">=", 1.1)),
    ("mesh 1K step, float / PyTorch compiled", against_pytorch("mesh1k-float"), None),
    ("ResNet-50 step, float / PyTorch compiled", against_pytorch("resnet50-float"), None),
    ("mesh 1K step, bfloat16, recorded / submitted", recorded("mesh1k-bfloat16"), None),
    ("ResNet-50 step, bfloat16, recorded / submitted", recorded("resnet50-bfloat16"), None),
    ("device idle, share of the step", idle, ("<=", 0.03)),
    ("mesh 2K in 6 GB / without a limit", memory, ("<=", 1.35)),
)
# Stages whose bar is that every step passes.
STAGES = (("device", "device and build"), ("tests-np1", "unit tests, 1 rank"), ("tests-np2", "unit tests, 2 ranks"),
          ("tests-np4", "unit tests, 4 ranks"), ("memcheck", "compute-sanitizer memcheck"),
          ("racecheck", "compute-sanitizer racecheck"), ("synccheck", "compute-sanitizer synccheck"))


def row_of_bar(results, check, function, bar):
    row = {"check": check, "result": "", "bar": f"{bar[0]} {bar[1]:g}" if bar else "none", "reason": ""}
    try:
        value, row["reason"] = function(results)
        row["result"], row["value"] = f"{value:.3f}", value
        if not bar:
            row["verdict"] = INFORMATION
        else:
            row["verdict"] = PASSED if (value >= bar[1] if bar[0] == ">=" else value <= bar[1]) else FAILED
    except Absent as absent:
        row["verdict"], row["reason"] = absent.verdict, str(absent)
    except Malformed as error:
        row["verdict"], row["reason"] = FAILED, f"malformed: {error}"
    return row


def row_of_stage(results, stage, check, expected):
    steps = [step for step in expected if step.startswith(stage + "/")]
    passed, failed, missing, unavailable, reason = 0, [], [], [], ""
    for step in steps:
        try:
            results.require(step)
            if stage.startswith("tests-") or stage.endswith("check"):
                tests_ran(results, step)
            if step == "device/info" and results.json(step).get("options", {}).get("device") is not True:
                raise Malformed("device/info.json: the programs were built without a device (options: device)")
            passed += 1
        except Absent as absent:
            {FAILED: failed, MISSING: missing, UNAVAILABLE: unavailable}[absent.verdict].append(str(absent))
        except Malformed as error:
            failed.append(f"malformed: {error}")
    row = {"check": check, "result": f"{passed} of {len(steps)}", "bar": "all"}
    if failed:
        row["verdict"], reason = FAILED, failed[0] + (f"; and {len(failed) - 1} others" if len(failed) > 1 else "")
    elif not steps:
        row["verdict"], reason = MISSING, "no step of this stage is known"
    elif missing:
        row["verdict"], reason = MISSING, f"{len(missing)} have not run"
    elif unavailable:
        row["verdict"], reason = UNAVAILABLE, unavailable[0]
    else:
        row["verdict"] = PASSED
    row["reason"] = reason
    return row


def tests_ran(results, step):
    """Throws Malformed unless tests passed or were skipped: a program without a test ends with status 0 too."""
    file = results.folder / f"{step}.log"
    text = file.read_text(errors="replace") if file.exists() else ""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()  # mpirun gives programs a terminal: they write in colour
    ran = [line for line in lines if re.match(r"\[  (PASSED|SKIPPED) +\] [1-9]", line)]
    if not ran:
        raise Malformed(f"{step}.log: no line tells that tests passed")


def rows(results, expected):
    return ([row_of_stage(results, stage, check, expected) for stage, check in STAGES]
            + [row_of_bar(results, *bar) for bar in BARS])


def exit_status(table):
    # A figure without a bar counts only if it is malformed or its step failed.
    judged = [row["verdict"] for row in table if row["bar"] != "none" or row["verdict"] == FAILED]
    if FAILED in judged:
        return 1
    return 0 if all(verdict == PASSED for verdict in judged) else 3


def text_of(table):
    columns = ("check", "result", "bar", "verdict", "reason")
    lines = [columns, *[tuple(row[column] for column in columns) for row in table]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns) - 1)]
    return "".join(
        ("  ".join(cell.ljust(width) for cell, width in zip(line, widths)) + "  " + line[-1]).rstrip() + "\n"
        for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="OUT of gpu_acceptance.sh")
    options = parser.parse_args()
    folder = pathlib.Path(options.folder)
    if not (folder / "expected").exists():
        sys.exit(f"table.py: {folder}/expected does not exist; run scripts/gpu_acceptance.sh --stage table")
    table = rows(Results(folder), (folder / "expected").read_text().split())
    status = exit_status(table)
    text = text_of(table)
    print(text, end="")
    (folder / "table.txt").write_text(text)
    device = {}
    try:
        device = Results(folder).json("device/info")
    except (Absent, Malformed) as error:
        device = {"unknown": str(error)}
    verdict = {0: "passed", 1: "failed", 3: "incomplete"}[status]
    (folder / "acceptance.json").write_text(
        json.dumps({"verdict": verdict, "rows": table, "info": device}, indent=2) + "\n")
    print(f"verdict: {verdict}")
    sys.exit(status)


if __name__ == "__main__":
    main()
