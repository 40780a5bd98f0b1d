#!/usr/bin/env python3
"""The share of time in which a device runs neither a kernel nor a copy: device_idle.py FILE [--json FILE]

FILE: the record of bench/device_activity.cpp, of a program that repeats equal steps. FILE* with exactly one match is
taken too. Counts from the middle of the kernels to the end of the last one: the first half has set-up and warm-up.
Kernels and copies of all streams count as one: the device is busy while at least one of them runs.
"""
import argparse
import glob
import json
import sys

LEAST_KERNELS = 100


def fail(message):
    sys.exit(f"device_idle.py: {message}")


def read(path):
    """(start, end) of all work of the device in ns, in order, and the same of kernels alone."""
    intervals, kernels = [], []
    with open(path, encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if words and words[0] == "dropped":
                fail(f"{path}: records were dropped, so the share would be too large")
            if len(words) != 3 or words[0] not in ("kernel", "copy") or not (words[1] + words[2]).isdigit():
                fail(f"{path}:{number}: expected `kernel START END` or `copy START END`, not {line.strip()!r}")
            intervals.append((int(words[1]), int(words[2])))
            if words[0] == "kernel":
                kernels.append(intervals[-1])
    return sorted(intervals), sorted(kernels)


def idle_share(intervals, kernels):
    first = kernels[len(kernels) // 2][0]
    last = max(end for _, end in kernels)
    busy, reached = 0, first
    for start, end in intervals:
        start, end = max(start, reached), min(end, last)
        if end > start:
            busy += end - start
            reached = end
    return 1 - busy / (last - first)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record")
    parser.add_argument("--json", help="also write the share to this file")
    options = parser.parse_args()
    found = glob.glob(glob.escape(options.record) + "*")
    if len(found) != 1:
        fail(f"{options.record}*: {len(found)} files, expected one, of one process that used a device")
    try:
        intervals, kernels = read(found[0])
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{found[0]}: {error}")
    if len(kernels) < LEAST_KERNELS:
        fail(f"{found[0]} has {len(kernels)} kernels; expected {LEAST_KERNELS} or more, of many steps")
    share = idle_share(intervals, kernels)
    print(f"idle: {100 * share:.2f} % of the time after the first half of {len(kernels)} kernels")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"idle_share": share, "kernels": len(kernels)}, file)


if __name__ == "__main__":
    main()
