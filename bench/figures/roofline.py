"""The section `roofline` of bench/report.py: training steps beside the time that their work needs at the limits of the
machine (Williams, Waterman and Patterson 2009, with one limit for each kind of work).

The limit of convolutions is the rate at which this library computes them alone: all convolutions of the step, phase by
phase, one after another. So the table shows the time that is lost between the kernels. All else has the bandwidth of
memory as its limit."""
import json
import pathlib
import statistics
import tempfile
from typing import NamedTuple

from figures.run import BIN, median, pass_text, run_text

STEPS = "^training/"
RANKS = 2
LEAST_STEPS = 3
PHASES = ("forward", "backward_data", "backward_filter")
PARTS = ("convolutions", "other kernels", "communication")


class Limits(NamedTuple):
    """Of one rank, while the other one computes too."""
    flops: dict  # per second, by phase
    bandwidth: float  # bytes per second


def step_name(case):
    """As bench/conv/step_convolutions.cpp has it."""
    return f"{case.model}-{case.input}-b{case.batch}-{case.splits[0]}"


def rates(run):
    """{"rate/STEP/PHASE": flops per second of one rank}."""
    values = run.suite("bench_local_conv", STEPS, min_time=0.5, fastest=True)
    found = {}
    for name, work in values.items():
        case, _, counter = name.partition(":")
        if counter == "work":
            _, step, phase = case.split("/")[:3]
            found[f"rate/{step}/{phase}"] = work / values[case] / RANKS
    return found


def bandwidth(run):
    """{"bandwidth": bytes per second of one rank}, of memory."""
    with tempfile.TemporaryDirectory() as folder:
        machine = json.loads(pathlib.Path(run.quick_machine(folder)).read_text(encoding="utf-8"))
    return {"bandwidth": machine["processor"]["node_bandwidth"] / RANKS}


def part_of(event):
    """The part of a step to which a node of the trace belongs; None for spans that are no node."""
    work = event["args"].get("work")
    if work in ("convolution", "filter_gradient"):
        return "convolutions"
    if work in ("transfer", "reduction"):
        return "communication"
    return "other kernels" if work else None


def counts(event, part):
    """Communication has three events: its start and its end on the core, and the time between them beside kernels."""
    return part != "communication" or event["name"].startswith(("start ", "finish "))


def least_seconds(args, limits):
    """The time that a node needs at the limits."""
    moved = sum(args.get(key, 0) for key in ("bytes_read", "bytes_written", "bytes_sent", "bytes_received"))
    seconds = moved / limits.bandwidth
    if args["work"] == "filter_gradient":
        return max(seconds, args["flops"] / limits.flops["backward_filter"])
    if args["work"] == "convolution":
        of_phase = "forward" if args["phase"] == "forward" else "backward_data"
        return max(seconds, args["flops"] / limits.flops[of_phase])
    return seconds


def seconds_of_trace(trace, limits):
    """{"step", PART, "least/PART"}: seconds of a step, the mean over ranks of medians over steps."""
    of_ranks = []
    for rank in sorted({event["pid"] for event in trace["traceEvents"]}):
        events = [e for e in trace["traceEvents"] if e["pid"] == rank and e["ph"] == "X"]
        steps = []
        for step in (e for e in events if e["name"].startswith("step ")):
            inside = [e for e in events if e is not step and step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
            found = dict.fromkeys((*PARTS, *(f"least/{part}" for part in PARTS)), 0.0)
            found["step"] = 1e-6 * (step["dur"] - sum(e["dur"] for e in inside if e["name"] == "mini-batch"))
            for event in inside:
                if (part := part_of(event)) and counts(event, part):
                    found[part] += 1e-6 * event["dur"]
                    if not event["name"].startswith("finish "):
                        found[f"least/{part}"] += least_seconds(event["args"], limits)
            steps.append(found)
        of_ranks.append({name: statistics.median(step[name] for step in steps) for name in steps[0]})
    return {name: statistics.mean(rank[name] for rank in of_ranks) for name in of_ranks[0]}


def measure(run, networks):
    """Enters the bars. `networks`: {name: NetworkCase}."""
    measured = run.in_turns(lambda: rates(run), lambda: bandwidth(run))
    if "bandwidth" not in measured:
        return
    limits = {name: Limits({phase: median(measured, f"rate/{step_name(case)}/{phase}") for phase in PHASES},
                           median(measured, "bandwidth")) for name, case in networks.items()}

    def step(name, case):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "trace.json"
            count = max(LEAST_STEPS, case.steps // 2)
            run.train("--input", case.input, "--batch", case.batch, "--steps", 5 + count, "--strategy", case.splits[0],
                      "--trace", path, "--trace-steps", count, model=case.model, data="synthetic", pinned=True)
            found = seconds_of_trace(json.loads(path.read_text(encoding="utf-8")), limits[name])
        return {f"{name}/{key}": value for key, value in found.items()}

    values = run.in_turns(*(lambda name=name, case=case: step(name, case) for name, case in networks.items()))
    for name, case in networks.items():
        command = (f"OMP_NUM_THREADS=1 scripts/mpirun -n {RANKS} {BIN}aloni train --model {case.model} "
                   f"--data synthetic --input {case.input} --batch {case.batch} --steps 8 "
                   f"--strategy {case.splits[0]} --trace FILE")
        of = {part: (median(values, f"{name}/{part}"), median(values, f"{name}/least/{part}")) for part in PARTS}
        if None in of["convolutions"]:
            run.bar(f"{name}/step", f"{name}: step", None, None, "limits")
            continue
        run.bar(f"{name}/step", f"{name}: step", median(values, f"{name}/step"), sum(least for _, least in of.values()),
                "limits", at_most=1.08, command=command)
        for part, (seconds, least) in of.items():
            run.bar(f"{name}/{part}", f"{name}: {part}", seconds, least or None, "limits" if least else "",
                    command=command)
        for phase, rate in limits[name].flops.items():
            text = pass_text(phase)
            run.bar(f"{name}/{text}", f"{name}: convolutions alone, {text}", rate / 1e9, unit="GFLOP/s",
                    command=run_text("bench_local_conv", f"^training/{step_name(case)}/{phase}"))
