#!/usr/bin/env python3
"""Simulates every figure of docs/scaling.md, and writes its tables and plots.

  scripts/scaling.py --aloni build/host/bin/aloni     everything; two minutes on one core
  scripts/scaling.py                                  the tables and the plots again, from docs/scaling.json
  scripts/scaling.py --tables                         the tables alone, which need no matplotlib

Runs `aloni simulate --json`, so no machine of the document needs to exist. Writes docs/scaling.json, the tables between
`<!-- figures: scripts/scaling.py NAME -->` and `<!-- end of figures -->` in docs/scaling.md, and docs/scaling_*.svg.
Equal builds give equal files. Plots need matplotlib: pip install matplotlib, or apt-get install python3-matplotlib.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from figures.tables import MISSING, marked, number, table

MARKED = marked("scripts/scaling.py")
FIGURES = ROOT / "docs/scaling.json"
DOCUMENT = ROOT / "docs/scaling.md"

# The study of performance-models, section 4: one device per node, 100 nodes, 128 samples per device, one link of
# 200 Gbit/s per node. The nodes of a100_cluster have eight of these links.
NETWORKS = {"vgg16": "VGG16", "resnet50": "ResNet-50", "densenet121": "DenseNet-121"}
INPUTS = {"cifar": ("32x32x3", 10, "CIFAR-10"), "imagenet": ("224x224x3", 1000, "ImageNet")}
NODES, SAMPLES, LINK_FACTOR = 100, 128, 0.125
SWEEPS = {  # name: values, title of the axis
    "batch": ([16, 32, 64, 128, 256], "samples per device"),
    "flops": ([0.125, 0.25, 0.5, 1, 2, 4, 8], "FLOP rate, times that of an A100"),
    "memory": ([0.125, 0.25, 0.5, 1, 2, 4, 8], "memory bandwidth, times that of an A100"),
    "link": ([0.05, 0.125, 0.25, 0.5, 1, 2, 4], "link bandwidth, times 200 Gbit/s"),
    "nodes": ([2, 8, 32, 100, 256, 1024, 4096], "nodes"),
}
BASELINE = {"batch": SAMPLES, "flops": 1, "memory": 1, "link": 1, "nodes": NODES}

# The tables of spatial-parallel-cnn: samples, blocks of samples, then devices, grid, seconds of a step. Its text gives
# table III (ResNet-50) by one time and two speedups.
PAPER = {
    "mesh1k": (4, 4, [(4, "n4", 0.403), (8, "n4h2", 0.2), (16, "n4h2w2", 0.121), (32, "n4h4w2", 0.0906),
                      (64, "n4h4w4", 0.066)]),
    "mesh2k": (2, 2, [(4, "n2h2", 0.247), (8, "n2h2w2", 0.12), (16, "n2h4w2", 0.0859), (32, "n2h4w4", 0.0683)]),
    "resnet50": (128, 4, [(4, "n4", 0.106), (8, "n4h2", 0.106 / 1.4), (16, "n4h2w2", 0.106 / 1.8)]),
}
# Seconds of a kernel launch and of latency between nodes: public figures, a fit to table I, a compromise for both.
CONSTANTS = {"shipped": (5e-6, 9.6e-6), "table I": (34e-6, 1e-3), "both": (80e-6, 0.5e-3)}
# Machines of the weak and strong scaling, with their constants.
MESH_MACHINES = {"lassen": "shipped", "lassen_fitted": "table I", "h100": None}

GRIDS = {1: "h1", 2: "h2", 4: "h2w2", 8: "h4w2", 16: "h4w4"}  # by devices per sample
LEAST = {"mesh1k": 1, "mesh2k": 2}  # devices per sample in the paper
DEVICES = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
STRONG_BATCH = 128

# Filters or space on lassen: networks, and devices with samples per device.
FILTERS = {"vgg16": [(32, 1), (64, 1), (128, 1), (256, 1), (32, 4), (256, 4)],
           "resnet50": [(32, 1), (64, 1), (128, 1), (256, 1), (32, 4), (256, 4)]}
STRATEGIES = {"h4": ("h4", "--complete", "n"), "f4": ("f4", "--complete", "n"), "by layer": ("auto",)}


class Simulator:
    def __init__(self, command, folder):
        self.command, self.folder = command, pathlib.Path(folder)

    def cases(self, *arguments):
        file = self.folder / "step.json"
        subprocess.run([self.command, "simulate", *map(str, arguments), "--json", str(file)], check=True,
                       stdout=subprocess.DEVNULL)
        return json.loads(file.read_text(encoding="utf-8"))["cases"]

    def local_statistics(self, model):
        """A model file whose batch normalisation takes the statistics of the own block, as in the paper."""
        file = self.folder / f"{model}.json"
        if not file.exists():
            subprocess.run([self.command, "plan", "--model", model, "--export", str(file)], check=True,
                           stdout=subprocess.DEVNULL)
            network = json.loads(file.read_text(encoding="utf-8"))
            for layer in network["layers"]:
                if layer["kind"] == "batch_norm":
                    layer["scope"] = "local"
            file.write_text(json.dumps(network), encoding="utf-8")
        return file

    def lassen(self, launch, latency):
        machine = json.loads((ROOT / "machines/lassen.json").read_text(encoding="utf-8"))
        machine["processor"]["kernel_seconds"] = launch
        machine["links"]["between_nodes"]["latency"] = latency
        file = self.folder / "lassen.json"
        file.write_text(json.dumps(machine), encoding="utf-8")
        return file

    def scale_for(self, seconds, *arguments):
        """The factor of kernel times with which a step takes so many seconds."""
        scale = 1.0
        for _ in range(20):
            step = self.cases(*arguments, *rates(scale))[0]["step_seconds"]
            if abs(step - seconds) < 1e-4 * seconds:
                return scale
            scale *= seconds / step
        sys.exit(f"scaling.py: no factor of kernel times gives {seconds} s for {' '.join(map(str, arguments))}")


def rates(scale):
    """Kernel times by a factor: both limits of the roofline change."""
    return "--flops-factor", f"{1 / scale:.6g}", "--memory-bandwidth-factor", f"{1 / scale:.6g}"


def rounded(value):
    return float(f"{value:.4g}")


def point(case):
    """Step and exposed communication in seconds."""
    return [rounded(case["step_seconds"]), rounded(case["exposed_communication_seconds"])]


def simulate_study(simulator):
    study = {}
    for name, (extents, classes, _) in INPUTS.items():
        for model in NETWORKS:
            for sweep, (values, _) in SWEEPS.items():
                points = []
                for value in values:
                    at = BASELINE | {sweep: value}
                    points.append(point(simulator.cases(
                        "--machine", "a100_cluster", "--ranks-per-node", 1, "--model", model, "--input", extents,
                        "--classes", classes, "--ranks", at["nodes"], "--batch", at["nodes"] * at["batch"],
                        "--flops-factor", at["flops"], "--memory-bandwidth-factor", at["memory"],
                        "--link-bandwidth-factor", LINK_FACTOR * at["link"])[0]))
                study[f"{name}/{model}/{sweep}"] = points
    return study


def simulate_tables(simulator):
    tables, scales = {}, {}
    for constants, pair in CONSTANTS.items():
        machine = simulator.lassen(*pair)
        for model, (batch, _, entries) in PAPER.items():
            network = simulator.local_statistics(model)
            common = ("--machine", machine, "--model", network, "--batch", batch)
            arguments = [(*common, "--ranks", devices, "--strategy", grid) for devices, grid, _ in entries]
            scale = simulator.scale_for(entries[0][2], *arguments[0])
            scales[f"{model}/{constants}"] = rounded(scale)
            tables[f"{model}/{constants}"] = [point(simulator.cases(*a, *rates(scale))[0]) for a in arguments]
    return tables, scales


def simulate_meshes(simulator, machine, options):
    """By network and devices per sample: [devices, step, exposed] for one sample per group of devices, and at a fixed
    batch."""
    weak, strong = {}, {}
    for model, least in LEAST.items():
        network, more = options(model)
        for per_sample, grid in GRIDS.items():
            if per_sample < least:
                continue
            def run(devices, batch):
                return [devices, *point(simulator.cases("--machine", machine, "--model", network, "--ranks", devices,
                                                        "--batch", batch, "--strategy", grid, "--complete", "n",
                                                        *more)[0])]
            key = f"{model}/{per_sample}"
            weak[key] = [run(devices, devices // per_sample) for devices in DEVICES if devices >= per_sample]
            strong[key] = [row for row in weak[key] if row[0] == STRONG_BATCH * per_sample]
    return {"weak": weak, "strong": strong}


def simulate_memory(simulator):
    memory = {}
    for model in LEAST:
        for per_sample, grid in GRIDS.items():
            case = simulator.cases("--machine", "lassen", "--model", model, "--ranks", per_sample, "--batch", 1,
                                   "--strategy", grid)[0]
            memory[f"{model}/{per_sample}"] = [case["memory_bytes_per_rank"], case["separate_bytes_per_rank"]]
    return memory


def simulate_filters(simulator):
    """Step and exposed communication of each strategy."""
    return {f"{model}/{devices}/{samples}": [
        point(simulator.cases("--machine", "lassen", "--model", model, "--ranks", devices, "--batch",
                              devices * samples, "--strategy", *strategy)[0]) for strategy in STRATEGIES.values()]
            for model, cases in FILTERS.items() for devices, samples in cases}


def simulate(command):
    with tempfile.TemporaryDirectory() as folder:
        simulator = Simulator(command, folder)
        tables, scales = simulate_tables(simulator)
        lassen = json.loads((ROOT / "machines/lassen.json").read_text(encoding="utf-8"))
        data = {"study": simulate_study(simulator), "tables": tables, "scales": scales}
        for name, constants in MESH_MACHINES.items():
            if constants is None:
                data[name] = simulate_meshes(simulator, "h100_cluster", lambda model: (model, ()))
                continue
            data[name] = simulate_meshes(
                simulator, simulator.lassen(*CONSTANTS[constants]),
                lambda model, c=constants: (simulator.local_statistics(model), rates(scales[f"{model}/{c}"])))
        return data | {
            "memory": simulate_memory(simulator), "memory_limit": lassen["memory_bytes"],
            "filters": simulate_filters(simulator)}


# Tables.

def milliseconds(seconds):
    return f"{number(1e3 * seconds)} ms"


def study_table(data, name):
    rows = []
    for model, title in NETWORKS.items():
        points = {sweep: dict(zip(values, data["study"][f"{name}/{model}/{sweep}"]))
                  for sweep, (values, _) in SWEEPS.items()}
        step, exposed = points["batch"][SAMPLES]
        cells = [points[sweep][value][0] / step for sweep, value in
                 (("flops", 2), ("memory", 2), ("link", 0.05), ("nodes", 4096))]
        rows.append([title, milliseconds(step), f"{100 * exposed / step:.0f} %", *[f"{c:.2f} ×" for c in cells]])
    return table(["network", "step", "exposed", "2 × FLOP rate", "2 × memory", "10 Gbit/s", "4,096 nodes"], rows)


def paper_table(data, model):
    batch, blocks, entries = PAPER[model]
    rows = []
    for i, (devices, _, seconds) in enumerate(entries):
        row = [f"{devices // blocks}", str(devices), milliseconds(seconds)]
        for constants in CONSTANTS:
            step, _ = data["tables"][f"{model}/{constants}"][i]
            row.append(f"{milliseconds(step)}, {100 * (step / seconds - 1):+.0f} %")
        rows.append(row)
    rows.append(["factor of kernels", "", "", *[f"{data['scales'][f'{model}/{c}']:.2f}" for c in CONSTANTS]])
    block = "sample" if batch == blocks else f"{batch // blocks} samples"
    return table([f"devices per {block}", "devices", "paper", *[
        f"{launch * 1e6:g} µs, {latency * 1e3:g} ms" for launch, latency in CONSTANTS.values()]], rows)


def growth_table(data, machine):
    """Times at the most devices beside the least, weak scaling."""
    rows = []
    for model, least in LEAST.items():
        for per_sample in GRIDS:
            if per_sample < least:
                continue
            points = data[machine]["weak"][f"{model}/{per_sample}"]
            (first, begin, _), (last, end, exposed) = points[0], points[-1]
            rows.append([model, str(per_sample), f"{first:,}: {milliseconds(begin)}", f"{last:,}: {milliseconds(end)}",
                         f"{100 * (end / begin - 1):+.1f} %", f"{100 * exposed / end:.0f} %"])
    return table(["network", "devices per sample", "fewest devices", "most devices", "growth", "exposed"], rows)


def strong_table(data):
    rows = []
    for model, least in LEAST.items():
        for machine in MESH_MACHINES:
            steps = {s: data[machine]["strong"][f"{model}/{s}"][0][1] for s in GRIDS if s >= least}
            rows.append([model, machine.replace("_", ", "), *[MISSING if s not in steps else
                         f"{milliseconds(steps[s])}, {steps[least] / steps[s]:.1f} ×" for s in GRIDS]])
    return table(["network", "machine", *[f"{STRONG_BATCH * s:,} devices" for s in GRIDS]], rows)


def memory_table(data):
    limit, rows = data["memory_limit"], []
    for key, (ours, separate) in data["memory"].items():
        model, per_sample = key.split("/")
        fits = ["yes" if size <= limit else "**no**" for size in (separate, ours)]
        rows.append([model, per_sample, f"{separate / 1e9:.2f} GB", fits[0], f"{ours / 1e9:.2f} GB", fits[1]])
    return table(["network", "devices per sample", "separate buffers", "fits", "shared over time", "fits"], rows)


def filters_table(data):
    rows = [[NETWORKS[model], str(devices), str(samples),
             *[milliseconds(step) for step, _ in data["filters"][f"{model}/{devices}/{samples}"]]]
            for model, cases in FILTERS.items() for devices, samples in cases]
    return table(["network", "devices", "samples per device", *[f"`{s}`" if s != "by layer" else s
                                                                for s in STRATEGIES]], rows)


SECTIONS = {
    "cifar": lambda data: study_table(data, "cifar"),
    "imagenet": lambda data: study_table(data, "imagenet"),
    "table_1": lambda data: paper_table(data, "mesh1k"),
    "table_2": lambda data: paper_table(data, "mesh2k"),
    "table_3": lambda data: paper_table(data, "resnet50"),
    "filters": filters_table,
    "weak": lambda data: growth_table(data, "lassen"),
    "weak_fitted": lambda data: growth_table(data, "lassen_fitted"),
    "strong": strong_table,
    "h100": lambda data: growth_table(data, "h100"),
    "memory": memory_table,
}


def tables_of(data, name):
    """The text between the markers NAME. Throws KeyError if there is no such section."""
    if name not in SECTIONS:
        raise KeyError(f"no section {name}; sections are {', '.join(SECTIONS)}")
    return SECTIONS[name](data)


# Plots: grey text and no background, which are readable on white and on black.

COLOURS = ["#3b82c4", "#d9822b", "#3d9a50", "#b45fb8", "#c9534f"]


def set_up_plots():
    try:
        import matplotlib
    except ImportError:
        sys.exit("scaling.py: no matplotlib; pip install matplotlib, or use --tables")
    matplotlib.use("svg")
    grey = "#808080"
    matplotlib.rcParams.update({
        "svg.hashsalt": "scaling", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
        "text.color": grey, "axes.labelcolor": grey, "axes.edgecolor": grey, "xtick.color": grey, "ytick.color": grey,
        "axes.grid": True, "axes.grid.axis": "y", "grid.color": grey, "grid.alpha": 0.25, "legend.frameon": False,
        "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot
    return pyplot


def write_plot(pyplot, figure, name):
    file = ROOT / f"docs/scaling_{name}.svg"
    figure.savefig(file, transparent=True, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    # A hundredth of a point is enough, and the file is a sixth smaller. Texts, which follow ">", stay.
    text = re.sub(r"(?<![>\d])\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}", file.read_text(encoding="utf-8"))
    file.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")


def decades(axes):
    low, high = axes.get_ylim()
    return math.log10(high / low)


def log_axes(axes, title, values):
    from matplotlib import ticker
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(title)
    axes.set_xticks(values, [f"{v:,g}" for v in values])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1,) if decades(axes) > 2 else (1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")


def plot_study(pyplot, data, name):
    figure, panels = pyplot.subplots(2, 3, figsize=(9.5, 5.6), sharey=True, layout="constrained")
    for axes, (sweep, (values, title)) in zip(panels.flat, SWEEPS.items()):
        for colour, (model, text) in zip(COLOURS, NETWORKS.items()):
            points = data["study"][f"{name}/{model}/{sweep}"]
            axes.plot(values, [1e3 * step for step, _ in points], "-", color=colour, label=text)
            axes.plot(values, [1e3 * exposed for _, exposed in points], ":", color=colour)
        axes.axvline(BASELINE[sweep], color="#808080", linewidth=0.8)
        log_axes(axes, title, values)
    for axes in panels[:, 0]:
        axes.set_ylabel("ms")
    panels[1, 2].axis("off")
    panels[1, 2].legend(*panels[0, 0].get_legend_handles_labels(), loc="center",
                        title=f"{INPUTS[name][2]}\nsolid: step; dotted: exposed\ngrey: baseline")
    write_plot(pyplot, figure, name)


def plot_weak(pyplot, data, machine):
    figure, panels = pyplot.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    for axes, (model, least) in zip(panels, LEAST.items()):
        for colour, per_sample in zip(COLOURS, GRIDS):
            if per_sample < least:
                continue
            points = data[machine]["weak"][f"{model}/{per_sample}"]
            axes.plot([p[0] for p in points], [1e3 * p[1] for p in points], ".-", color=colour, label=f"{per_sample}")
        log_axes(axes, "devices", DEVICES)
        axes.set_ylabel("ms per step")
        axes.set_title(f"{model}, weak scaling", fontsize=9)
        axes.legend(title="devices per sample", ncols=5, fontsize=8)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high * 1.8)
    write_plot(pyplot, figure, f"weak_{machine}")


def plot_strong(pyplot, data):
    figure, axes = pyplot.subplots(figsize=(5.6, 3.6), layout="constrained")
    colours = iter(COLOURS)
    for machine in ("lassen", "h100"):
        for model, least in LEAST.items():
            points = [data[machine]["strong"][f"{model}/{s}"][0] for s in GRIDS if s >= least]
            colour = next(colours)
            devices = [p[0] for p in points]
            axes.plot(devices, [1e3 * p[1] for p in points], ".-", color=colour, label=f"{model}, {machine}")
            axes.plot(devices, [1e3 * points[0][1] * devices[0] / d for d in devices], ":", color=colour)
    log_axes(axes, f"devices for {STRONG_BATCH} samples", [STRONG_BATCH * s for s in GRIDS])
    axes.set_ylabel("ms per step (dotted: ideal)")
    axes.legend(fontsize=8)
    write_plot(pyplot, figure, "strong")


def write_plots(data):
    pyplot = set_up_plots()
    for name in INPUTS:
        plot_study(pyplot, data, name)
    for machine in MESH_MACHINES:
        plot_weak(pyplot, data, machine)
    plot_strong(pyplot, data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aloni", metavar="PROGRAM", help="simulates all figures with this program")
    parser.add_argument("--tables", action="store_true", help="write no plots")
    options = parser.parse_args()
    if options.aloni:
        data = simulate(options.aloni)
        # One line for each series keeps differences readable.
        blocks = (f' {json.dumps(key)}: ' + (json.dumps(value) if not isinstance(value, dict) else "{\n" + ",\n".join(
            f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n }") for key, value in data.items())
        FIGURES.write_text("{\n" + ",\n".join(blocks) + "\n}\n", encoding="utf-8")
    data = json.loads(FIGURES.read_text(encoding="utf-8"))
    text = DOCUMENT.read_text(encoding="utf-8")
    text = MARKED.sub(lambda match: match[1] + tables_of(data, match[2]) + match[4], text)
    DOCUMENT.write_text(text, encoding="utf-8")
    if not options.tables:
        write_plots(data)


if __name__ == "__main__":
    main()
