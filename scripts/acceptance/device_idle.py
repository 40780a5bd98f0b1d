#!/usr/bin/env python3
"""The share of time in which a device runs neither a kernel nor a copy: device_idle.py FILE.sqlite [--json FILE]

FILE.sqlite: a profile of Nsight Systems, exported by `nsys export --type=sqlite`, of a program that repeats equal
steps. Counts from the middle of the kernels to the last one: the first half has set-up and warm-up. Kernels, copies and
memsets of all streams count as one: the device is busy while at least one of them runs.
"""
import argparse
import json
import sqlite3
import sys

TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


def intervals_of(path):
    """(start, end) of all work of the device in ns, and the starts of kernels."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as profile:
        present = {name for name, in profile.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if TABLES[0] not in present:
            sys.exit(f"device_idle.py: {path} has no kernels: was the profile taken with --trace=cuda?")
        intervals = [interval for table in TABLES if table in present
                     for interval in profile.execute(f"SELECT start, end FROM {table}")]
        kernels = sorted(start for start, in profile.execute(f"SELECT start FROM {TABLES[0]}"))
    return sorted(intervals), kernels


def idle_share(intervals, kernels):
    first = kernels[len(kernels) // 2]
    last = max(end for _, end in intervals)
    busy, reached = 0, first
    for start, end in intervals:
        start, end = max(start, reached), min(end, last)
        if end > start:
            busy += end - start
            reached = end
    return 1 - busy / (last - first)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("--json", help="also write the share to this file")
    options = parser.parse_args()
    try:
        intervals, kernels = intervals_of(options.profile)
    except sqlite3.Error as error:
        sys.exit(f"device_idle.py: {options.profile}: {error}")
    if len(kernels) < 100:
        sys.exit(f"device_idle.py: {options.profile} has {len(kernels)} kernels; expected 100 or more, of many steps")
    share = idle_share(intervals, kernels)
    print(f"idle: {100 * share:.2f} % of the time after the first half of {len(kernels)} kernels")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"idle_share": share, "kernels": len(kernels)}, file)


if __name__ == "__main__":
    main()
