#!/usr/bin/env python3
"""Draws the bandwidths of bench_collectives over size: one panel for allreduce/…, one for message/….

  scripts/mpirun -n 2 build/host/bin/bench_collectives --benchmark_out=collectives.json --benchmark_out_format=json
  bench/plot_collectives.py collectives.json [MORE.json…] --output collectives.svg

With several files it draws the median of each case; they should be of one machine. The suffix of the output selects the
format: png, svg or pdf. Needs matplotlib: apt-get install python3-matplotlib, or pip install matplotlib.
"""
import argparse
import json
import statistics
import sys

PANELS = {"allreduce": "All-reduce of floats", "message": "Message between two ranks"}
UNITS = ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def fail(message):
    sys.exit(f"plot_collectives.py: {message}")


def read(files):
    """Returns the context of the first file, and {(panel, implementation): {bytes: [seconds]}}."""
    context, times = None, {}
    for name in files:
        try:
            with open(name) as file:
                content = json.load(file)
            context = context or content["context"]
            cases = content["benchmarks"]
        except OSError as error:
            fail(f"can't read {name} ({error.strerror}); "
                 f"write it with bench_collectives --benchmark_out={name} --benchmark_out_format=json")
        except (ValueError, KeyError, TypeError):
            fail(f"{name} is no complete JSON of Google Benchmark; write it again with --benchmark_out_format=json")
        if cases and all(case.get("real_time", 0) == 0 for case in cases):
            fail(f"{name} has no times: there were more ranks than cores; use fewer ranks or --time_oversubscribed")
        for case in cases:
            panel, implementation, size, *_ = case["name"].split("/") + ["", ""]
            if panel not in PANELS or not size.isdigit():
                continue
            if case.get("run_type") == "aggregate" or not case["real_time"]:
                continue
            seconds = case["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[case["time_unit"]]
            times.setdefault((panel, implementation), {}).setdefault(int(size), []).append(seconds)
    if not times:
        fail(f"no case allreduce/… or message/… in {', '.join(files)}; "
             "run bench_collectives without a filter, or with a wider one")
    return context, times


def size_text(size, _=None):
    unit, name = next(((u, n) for u, n in UNITS if size >= u), UNITS[-1])
    return f"{size / unit:g} {name}"


def rate_text(rate, _=None):
    for unit, name in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if rate >= unit:
            return f"{rate / unit:g} {name}"
    return f"{rate:g} B/s"


def draw(context, times, output):
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    except ImportError:
        fail("no matplotlib; apt-get install python3-matplotlib, or pip install matplotlib")
    panels = [panel for panel in PANELS if any(key[0] == panel for key in times)]
    colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(key[1] for key in times))}  # equal in both panels
    figure, all_axes = pyplot.subplots(1, len(panels), figsize=(7 * len(panels), 5.5), squeeze=False,
                                       layout="constrained")
    for axes, panel in zip(all_axes[0], panels):
        for (p, implementation), by_size in times.items():
            if p != panel:
                continue
            sizes = sorted(by_size)
            rates = [size / statistics.median(by_size[size]) for size in sizes]
            ours_by_default = implementation in ("shared", "private")
            axes.plot(sizes, rates, marker="o", markersize=4, label=implementation, color=colours[implementation],
                      linewidth=2.2 if ours_by_default or implementation == "mpi" else 1.2,
                      linestyle="--" if implementation == "mpi" else "-")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=16))
        axes.xaxis.set_major_formatter(FuncFormatter(size_text))
        axes.yaxis.set_major_formatter(FuncFormatter(rate_text))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(which="major", alpha=0.4)
        axes.set_xlabel("size")
        axes.set_ylabel("bandwidth: size ÷ time")
        axes.set_title(PANELS[panel])
        axes.legend(fontsize="small")
    figure.suptitle(f"{context.get('processor', 'unknown processor')}, {context.get('cores', '?')} cores, "
                    f"{context.get('ranks', '?')} ranks, {context.get('mpi', 'MPI')}, "
                    f"aloni {context.get('aloni', '?')}",
                    fontsize="medium")
    try:
        figure.savefig(output, dpi=150)
    except (OSError, ValueError) as error:
        fail(f"can't write {output}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--output", default="collectives.png")
    options = parser.parse_args()
    draw(*read(options.files), options.output)


if __name__ == "__main__":
    main()
