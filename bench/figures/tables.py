"""Renders the tables of docs/performance.md and README.md: pure functions of docs/performance.json."""
import re
import textwrap

from figures.sections import LAYERS, PASSES, SECTIONS, SIZES, pass_text, size_text


def marked(program):
    """Finds the figures that a program writes, with their name."""
    return re.compile(rf"(<!-- figures: {re.escape(program)} (\w+) -->\n)(.*?)(<!-- end of figures -->)", re.DOTALL)


MARKED = marked("bench/report.py")
MISSING = "–"
MOST_COLUMNS = 120


def table(headings, rows):
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def wrapped(text, indent=""):
    return textwrap.fill(text, MOST_COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def number(value):
    """Three digits, two below one."""
    value = float(f"{value:.3g}")
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def figure(value, unit):
    return f"{value:,.0f} {unit}" if unit in ("bytes", "messages") else f"{number(value)} {unit}"


def peer_of(bar):
    return f"{bar['peer_name']}: {figure(bar['peer'], bar['unit'])}" if bar["peer_name"] else MISSING


def ratio_of(bar):
    if bar["ratio"] is None:
        return MISSING
    if bar["unit"] in ("bytes", "MiB"):
        return f"{number(bar['ratio'])} × the bytes"
    return number(bar["ratio"]) + (" × as fast" if bar["ratio_is"] == "times as fast" else " × the time")


def requirement(bar):
    def text_of(value):
        if bar["ratio"] is not None:
            return f"{value:g}"
        if bar["unit"] in ("ms", "µs"):  # requirements are in seconds
            return f"{value * 1e6:g} µs" if value < 1e-3 else f"{value:g} s"
        return f"{value:g} {bar['unit']}"

    texts = [f"{text} {text_of(bar[key])}" for text, key in (("at most", "at_most"), ("at least", "at_least"))
             if bar[key] is not None]
    return ", ".join(texts) or MISSING


def bar_table(bars):
    met = {True: "yes", False: "**no**", None: MISSING}
    rows = [[bar["what"], figure(bar["ours"], bar["unit"]), peer_of(bar), ratio_of(bar), requirement(bar),
             met[bar["met"]]] for bar in bars]
    return table(["bar", "ours", "peer", "ratio", "required", "met"], rows)


# Wide tables. They take {id: bar} and show a dash for a bar that is left out.

def microseconds(bar, key):
    return MISSING if bar is None else number(bar[key] * {"µs": 1, "ms": 1e3, "s": 1e6}[bar["unit"]])


def ratio_cell(bar):
    """Bold where the requirement is not met."""
    if bar is None:
        return MISSING
    return f"**{number(bar['ratio'])}**" if bar["met"] is False else number(bar["ratio"])


def all_reduce_table(bars):
    rows = []
    for size in SIZES:
        shared, private, shared_gloo, private_gloo = (
            bars.get(f"all_reduce/{size}/{name}")
            for name in ("shared/Open MPI", "private/Open MPI", "shared/gloo", "private/gloo"))
        rows.append([size_text(size), microseconds(shared, "ours"), microseconds(private, "ours"),
                     microseconds(shared, "peer"), microseconds(private_gloo, "peer"), ratio_cell(shared),
                     ratio_cell(private), ratio_cell(shared_gloo), ratio_cell(private_gloo)])
    return table(["size", "shared, µs", "private, µs", "Open MPI, µs", "gloo, µs", "Open MPI / shared",
                  "Open MPI / private", "gloo / shared", "gloo / private"], rows)


def convolution_table(bars):
    rows = []
    for name in LAYERS:
        for one in PASSES:
            splits = [bars.get(f"convolution/{name}/{one}/{split}") for split in ("h2", "w2", "c2", "f2")]
            limit = next(filter(None, splits), None)
            rows.append([f"{name}, {pass_text(one)}", microseconds(limit, "peer"), *map(ratio_cell, splits)])
    return table(["layer, pass", "oneDNN, µs", "height", "width", "channels", "filters"], rows)


def framework_table(bars):
    rows = []
    for name in LAYERS:
        pytorch, jax = (bars.get(f"frameworks/{name}/{peer}") for peer in ("PyTorch", "JAX"))
        rows.append([name, microseconds(pytorch or jax, "ours"), microseconds(pytorch, "peer"), ratio_cell(pytorch),
                     microseconds(jax, "peer"), ratio_cell(jax)])
    return table(["layer", "ours, µs", "PyTorch, µs", "PyTorch / ours", "JAX, µs", "JAX / ours"], rows)


# Section: its wide table, and the ids of the bars in it
WIDE = {
    "all_reduce": (all_reduce_table, r"all_reduce/\d+/"),
    "convolution": (convolution_table, r"convolution/(?!chain)"),
    "frameworks": (framework_table, r"frameworks/"),
}


def left_out_text(bars, problems):
    ids = {}
    for bar in bars:
        if "left_out" in bar:
            ids.setdefault(bar["left_out"], []).append(bar["id"])
    items = []
    for missing, names in ids.items():
        text = ", ".join(f"`{name}`" for name in names)
        if len(names) > 3:
            text = f"{len(names)} bars from `{names[0]}` on"
        items.append(f"- Left out, no figure of {missing}: {text}")
    items += ["- Failed: `{}`".format(problem.replace("`", "'").replace("\n", " ")) for problem in problems]
    return "".join(f"\n{wrapped(item, '  ')}" for item in items) + ("\n" if items else "")


def section_text(data, name):
    about = data["sections"].get(name)
    if about is None:
        return "Not measured yet.\n"
    bars = [bar for bar in data["bars"] if bar["section"] == name]
    measured = [bar for bar in bars if "left_out" not in bar]
    text = ""
    if name in WIDE:
        wide_table, in_it = WIDE[name]
        inside = [bar for bar in measured if re.match(in_it, bar["id"])]
        measured = [bar for bar in measured if bar not in inside]
        met = [bar["met"] for bar in inside if bar["met"] is not None]
        text += wide_table({bar["id"]: bar for bar in inside})
        text += f"\n{sum(met)} of {len(met)} requirements in this table are met.\n" + ("\n" if measured else "")
    if measured:
        text += bar_table(measured)
    turns = "1 turn" if about["turns"] == 1 else f"{about['turns']} turns"
    origin = f"{about['date']}, commit {about['commit']}, {turns}. {SECTIONS[name].measure.__doc__}"
    if about["quick"]:
        origin += " **A smoke run: these figures mean nothing.**"
    return f"{text}{left_out_text(bars, about['problems'])}\n{wrapped(origin)}\n"


def machine_text(data):
    machine = data["machine"]
    rows = [["processor", machine["processor"]], ["cores used", str(machine["cores"])]]
    return table(["machine", "value"], rows + [list(item) for item in sorted(machine["libraries"].items())])


SUMMARY = {
    "training/n2-b64": "LeNet-5 on two ranks: step of 64 samples",
    "training/n2-b1024": "LeNet-5 on two ranks: step of 1,024 samples",
    "threads/step-b1024": "LeNet-5 on one rank, two threads: step of 1,024 samples",
    "all_reduce/1048576/shared/Open MPI": "all-reduce of 1 MiB, shared memory",
    "all_reduce/33554432/shared/Open MPI": "all-reduce of 32 MiB, shared memory",
    "halo/image512-c64/h2/forward": "halo exchange of 514 KiB, contiguous faces",
    "stencil/all": "halos of all 26 neighbours, 128³ × 8 doubles",
    "convolution/c64_256/forward/h2": "convolution 64 to 64, 3×3, 256², two ranks by height",
}


def summary_text(data):
    """The README's table: at most ten rows."""
    bars = {bar["id"]: bar for bar in data["bars"] if "left_out" not in bar}
    rows = [[text, figure(bars[name]["ours"], bars[name]["unit"]), peer_of(bars[name]), ratio_of(bars[name])]
            for name, text in SUMMARY.items() if name in bars]
    for peer, units in (("PyTorch", "threads"), ("JAX", "devices")):
        ratios = [bar["ratio"] for name, bar in bars.items() if re.fullmatch(f"frameworks/.*/{peer}", name)]
        if ratios:
            rows.append([f"convolution: {len(ratios)} layers, forward and backward", MISSING, f"{peer}, two {units}",
                         f"{number(min(ratios))} to {number(max(ratios))} × as fast"])
    text = table(["bar, two cores", "ours", "peer", "ratio"], rows)
    if any(about["quick"] for about in data["sections"].values()):
        text += "\n**A smoke run: these figures mean nothing.**\n"
    return text


def tables_of(data, name):
    """The text between the markers NAME. Throws KeyError if there is no such section."""
    if name == "machine":
        return machine_text(data)
    if name == "summary":
        return summary_text(data)
    if name not in SECTIONS:
        raise KeyError(f"no section {name}; sections are {', '.join(SECTIONS)}, machine, summary")
    return section_text(data, name)


def with_tables(text, data):
    """A document's text with the tables of `data` between its markers."""
    return MARKED.sub(lambda match: match[1] + tables_of(data, match[2]) + match[4], text)
