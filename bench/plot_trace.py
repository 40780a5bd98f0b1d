#!/usr/bin/env python3
"""Draws one step of a trace of `aloni train --trace` as an SVG, and prints how its times add up.

  scripts/mpirun -n 2 build/host/bin/aloni train --data examples/data/mnist_subset --strategy h2 --trace trace.json
  bench/plot_trace.py trace.json --output trace.svg

Draws the fastest step, or the one of --step. Each rank has rows for input and compute, communication, and communication
in flight. --from and --to select a part of the step, in microseconds. Needs nothing but Python; ui.perfetto.dev shows
the same file with all arguments.
"""
import argparse
import html
import json
import sys

COLOURS = {"input": "#e08a1e", "forward": "#2b6cb0", "loss": "#6b46c1", "backward": "#2f855a", "update": "#6e7781",
           "communication": "#c53030", "in flight": "#f2b8b5"}
ROWS = ("input and compute", "communication", "in flight")
WIDTH, LEFT, RIGHT, ROW, GAP, TOP = 1200, 150, 24, 26, 4, 58
CHARACTER = 5.8  # width of a character of 10 px


def fail(message):
    sys.exit(f"plot_trace.py: {message}")


def read(path):
    """Returns facts about the run, and {rank: {row: [slices]}}."""
    try:
        with open(path, encoding="utf-8") as file:
            trace = json.load(file)
        events = trace["traceEvents"]
        rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
        ranks = {}
        for event in events:
            if event["ph"] == "X":
                row = rows[event["pid"], event["tid"]]
                ranks.setdefault(event["pid"], {}).setdefault(row, []).append(event)
    except OSError as error:
        fail(f"can't read {path} ({error.strerror}); write it with aloni train --trace {path}")
    except (ValueError, KeyError, TypeError):
        fail(f"{path} is no trace of aloni train --trace")
    if not ranks or any("step" not in rows for rows in ranks.values()):
        fail(f"{path} has no steps; write it with aloni train --trace {path}")
    return trace.get("otherData", {}), ranks


def end(event):
    return event["ts"] + event["dur"]


def inside(slices, step):
    return [s for s in slices if step["ts"] <= s["ts"] and end(s) <= end(step) + 1e-3]


def share(rows, step):
    """The part of a step that the slices of its rows explain."""
    slices = [s for name in ("input", "compute", "communication") for s in inside(rows.get(name, []), step)]
    return sum(s["dur"] for s in slices) / step["dur"]


def colour(event, row):
    if row == ROWS[1]:
        return COLOURS["communication"]
    if row == ROWS[2]:
        return COLOURS["in flight"]
    phase = event["args"].get("phase")
    return COLOURS[phase or {"mini-batch": "input", "result": "loss"}.get(event["name"], "update")]


def short(name):
    for word in ("start ", "finish ", "forward ", "backward "):
        name = name.replace(word, "", 1) if name.startswith(word) else name
    return name


def draw(about, ranks, steps, first, last, output):
    begin = min(step["ts"] for step in steps.values())
    first, last = begin + first, min(begin + last, max(end(step) for step in steps.values()))
    scale = (WIDTH - LEFT - RIGHT) / (last - first)

    def x(time):
        return LEFT + (min(max(time, first), last) - first) * scale

    shapes, top = [], TOP
    for rank, rows in sorted(ranks.items()):
        flights = [name for name in rows if name.startswith("in flight")]
        lanes = [(ROWS[0], inside(rows.get("input", []) + rows.get("compute", []), steps[rank])),
                 (ROWS[1], inside(rows.get("communication", []), steps[rank]))]
        lanes += [(ROWS[2], inside(rows[name], steps[rank])) for name in sorted(flights)]
        shapes.append(f'<text x="8" y="{top + 12}" font-weight="bold">rank {rank}</text>')
        for i, (row, slices) in enumerate(lanes):
            slices = [s for s in slices if first < end(s) and s["ts"] < last]
            if i >= len(ROWS) and not slices:
                continue
            label = row if i < len(ROWS) else ""
            y = top + 20
            shapes.append(f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{label}</text>')
            shapes.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{ROW}" fill="#f6f8fa"/>')
            for s in slices:
                width = max(x(end(s)) - x(s["ts"]), 0.6)
                title = html.escape(f"{s['name']}: {s['dur']:.1f} µs")
                shapes.append(f'<rect x="{x(s["ts"]):.2f}" y="{y}" width="{width:.2f}" height="{ROW}" stroke="#ffffff" '
                              f'stroke-width="0.3" fill="{colour(s, row)}"><title>{title}</title></rect>')
                text = short(s["name"])
                room = int((width - 4) / CHARACTER)
                if room >= min(len(text), 6):
                    text = text if len(text) <= room else text[:room - 1] + "…"
                    shade = "#1b1f24" if row == ROWS[2] else "#ffffff"
                    shapes.append(f'<text x="{x(s["ts"]) + 3:.2f}" y="{y + 17}" font-size="10" fill="{shade}" '
                                  f'pointer-events="none">{html.escape(text)}</text>')
            top += ROW + GAP
        top += 34
    unit, axis = (1000, "ms") if last - first >= 2000 else (1, "µs")
    mark = next(m * 10 ** power for power in range(9) for m in (1, 2, 5) if (last - first) / (m * 10 ** power) <= 12)
    ticks = []
    for i in range(int((last - first) / mark) + 1):
        place = x(first + i * mark)
        ticks.append(f'<line x1="{place:.2f}" y1="{TOP}" x2="{place:.2f}" y2="{top - 20}" stroke="#d0d7de"/>')
        value = (first - begin + i * mark) / unit
        ticks.append(f'<text x="{place:.2f}" y="{top - 6}" font-size="11" text-anchor="middle">{value:g} {axis}</text>')
    legend, place = [], LEFT
    for name, fill in COLOURS.items():
        legend.append(f'<rect x="{place}" y="32" width="12" height="12" fill="{fill}"/>')
        legend.append(f'<text x="{place + 17}" y="42" font-size="11">{name}</text>')
        place += 40 + 7 * len(name)
    facts = (f"{about.get('model', '')}, strategy {about.get('strategy', '')}, batch {about.get('batch', '')}, "
             f"{about.get('precision', '')}, {about.get('ranks', '')} ranks: {next(iter(steps.values()))['name']}")
    text = "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" '
        'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12" fill="#1b1f24">',
        f"<title>{html.escape(facts)}</title>", f'<rect width="{WIDTH}" height="{top}" fill="#ffffff"/>',
        f'<text x="8" y="20" font-size="14" font-weight="bold">{html.escape(facts)}</text>', *legend, *ticks, *shapes,
        "</svg>", ""])
    try:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        fail(f"can't write {output} ({error.strerror})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--output", default="trace.svg")
    parser.add_argument("--step", type=int, help="number of the step, as in the trace")
    parser.add_argument("--from", dest="first", type=float, default=0, metavar="MICROSECONDS")
    parser.add_argument("--to", dest="last", type=float, default=float("inf"), metavar="MICROSECONDS")
    options = parser.parse_args()
    about, ranks = read(options.file)
    by_name = {}
    for rank, rows in sorted(ranks.items()):
        for step in rows["step"]:
            by_name.setdefault(step["name"], {})[rank] = step
            print(f"rank {rank}, {step['name']}: {step['dur'] / 1000:.3f} ms, "
                  f"{100 * share(rows, step):.1f} % in slices")
    complete = {name: steps for name, steps in by_name.items() if len(steps) == len(ranks)}
    name = f"step {options.step}" if options.step else min(
        complete, key=lambda n: max(end(s) for s in complete[n].values()) - min(s["ts"] for s in complete[n].values()))
    if name not in complete:
        fail(f"--step {options.step}: expected one of {', '.join(complete)}")
    draw(about, ranks, complete[name], options.first, options.last, options.output)


if __name__ == "__main__":
    main()
