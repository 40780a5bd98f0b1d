#!/usr/bin/env python3
"""The share of time in which a device runs neither a kernel nor a copy.

  device_idle.py FILE [--json FILE] [--kernels N]

FILE: the record of bench/device_activity.cpp, of a program that repeats equal steps. FILE* with exactly one record of
kernels is taken too: launchers write empty ones. Counts from the middle of the kernels to the end of the last one: the
first half has set-up and warm-up.
Kernels and copies of all streams count as one: the device is busy while at least one of them runs.
--kernels: also prints the N kernels with the most time there.
"""
import argparse
import collections
import glob
import json
import shutil
import subprocess
import sys

LEAST_KERNELS = 100


def fail(message):
    sys.exit(f"device_idle.py: {message}")


def read(path):
    """(start, end) of all work of the device in ns, in order, and (start, end, name) of kernels alone."""
    intervals, kernels = [], []
    with open(path, encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if words and words[0] == "dropped":
                fail(f"{path}: records were dropped, so the share would be too large")
            if (len(words) not in (3, 4) or words[0] not in ("kernel", "copy")
                    or not (words[1] + words[2]).isdigit()):
                fail(f"{path}:{number}: expected `kernel START END NAME` or `copy START END`, not {line.strip()!r}")
            intervals.append((int(words[1]), int(words[2])))
            if words[0] == "kernel":
                kernels.append((*intervals[-1], words[3] if len(words) == 4 else "?"))
    return sorted(intervals), sorted(kernels)


def idle_share(intervals, kernels):
    first = kernels[len(kernels) // 2][0]
    last = max(end for _, end, _ in kernels)
    busy, reached = 0, first
    for start, end in intervals:
        start, end = max(start, reached), min(end, last)
        if end > start:
            busy += end - start
            reached = end
    return 1 - busy / (last - first)


def print_kernels(kernels, count):
    """The `count` kernels with the most time after the first half: ms, number, share of all kernels' time, name."""
    times = collections.defaultdict(list)
    for start, end, name in kernels[len(kernels) // 2:]:
        times[name].append(end - start)
    total = sum(map(sum, times.values()))
    longest = sorted(times, key=lambda name: -sum(times[name]))[:count]
    shown = longest
    if shutil.which("c++filt"):
        shown = subprocess.run(["c++filt"], input="\n".join(longest), capture_output=True, text=True,
                               check=True).stdout.split("\n")
    for name, text in zip(longest, shown):
        spent = sum(times[name])
        print(f"{spent / 1e6:10.3f} ms {len(times[name]):6} times {100 * spent / total:5.1f} %  {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record")
    parser.add_argument("--json", help="also write the share to this file")
    parser.add_argument("--kernels", type=int, default=0, help="print that many kernels")
    options = parser.parse_args()
    records = {}
    for path in glob.glob(glob.escape(options.record) + "*"):
        try:
            intervals, kernels = read(path)
        except (OSError, UnicodeDecodeError) as error:
            fail(f"{path}: {error}")
        if kernels:
            records[path] = intervals, kernels
    if len(records) != 1:
        fail(f"{options.record}*: {len(records)} files with kernels, expected one, of one process")
    (path, (intervals, kernels)), = records.items()
    if len(kernels) < LEAST_KERNELS:
        fail(f"{path} has {len(kernels)} kernels; expected {LEAST_KERNELS} or more, of many steps")
    share = idle_share(intervals, kernels)
    print(f"idle: {100 * share:.2f} % of the time after the first half of {len(kernels)} kernels")
    print_kernels(kernels, options.kernels)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"idle_share": share, "kernels": len(kernels)}, file)


if __name__ == "__main__":
    main()
