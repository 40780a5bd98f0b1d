#!/usr/bin/env python3
"""Runs tasks.py and cholesky.py on tiny problems and checks what they write.

  check_scripts.py FOLDER-OF-PROGRAMS

A library that is not installed is named and left out. Exit status 77 if none is installed.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
os.environ["BIN"] = sys.argv[1]

from peer_program import ONE_THREAD, Missing, build
from tasks import LENGTHS, half_efficiency

HERE = pathlib.Path(__file__).resolve().parent


def check(condition, text):
    if not condition:
        sys.exit(f"check_scripts.py: {text}")


def installed(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        try:
            build(*arguments, folder)
            return True
        except Missing as error:
            print(f"left out: {error}")
            return False


def result_of(script, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/out.json"
        done = subprocess.run([HERE / script, *map(str, arguments), "--turns", "1", "--json", file],
                              capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"{script}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        with open(file, encoding="utf-8") as stream:
            return json.load(stream), done.stdout


def check_half_efficiency():
    """With a time per task that is longer by a constant, half efficiency is at the length of this constant."""
    def times(overhead, workers):
        return {f"busy/{length}us/w{workers}": 1e-6 * (length + overhead) / workers for length in LENGTHS}
    for overhead in (2, 5, 10):
        for workers in (1, 2):
            found = half_efficiency(times(overhead, workers), workers)
            check(math.isclose(found, overhead), f"half efficiency is {found}, not {overhead}")
    between = half_efficiency(times(3, 2), 2)
    check(2 < between < 5, f"half efficiency is {between}, not between 2 and 5")
    check(half_efficiency(times(0.1, 2), 2) == LENGTHS[0], "half efficiency below the shortest tasks")
    check(half_efficiency(times(50, 2), 2) is None, "half efficiency above the longest tasks")


def check_tasks(with_starpu):
    result, text = result_of("tasks.py", "--seconds", 0.001, "--schedulers", "lws")
    who = {"aloni", "StarPU"} if with_starpu else {"aloni"}
    check(set(result["seconds_per_task"]) == who, f"tasks.py has times of {set(result['seconds_per_task'])}")
    for times in result["seconds_per_task"].values():
        for length in LENGTHS:
            for workers in (1, 2):
                least = 1e-6 * length / workers
                found = times[f"busy/{length}us/w{workers}"]
                check(found >= 0.99 * least, f"{workers} workers took {found} s for a task of {length} us")
        check(0 < times["independent/w1"] < 1e-3, f"an empty task took {times['independent/w1']} s")
    check("half efficiency/w2" in text, "tasks.py prints no half efficiency")


def check_cholesky(with_scalapack):
    result, text = result_of("cholesky.py", 512, "--repeat", 1, "--scalapack", "64,1,2,L")
    rates = result["rows"][0]["gflops"]
    expected = {"dgemm", "1x2", "2x1", "dpotrf"} | ({"pdpotrf"} if with_scalapack else set())
    check(set(rates) == expected, f"cholesky.py has rates of {set(rates)}")
    check(all(0 < rate < 1e5 for rate in rates.values()), f"rates of cholesky.py: {rates}")
    check("blocks of 64, 1 x 2 ranks, L" in text or not with_scalapack, f"cholesky.py prints {text}")


os.environ |= ONE_THREAD
check_half_efficiency()
starpu = installed("starpu_tasks.cpp", "starpu-1.3", "libstarpu-dev")
scalapack = installed("scalapack_cholesky.cpp", "scalapack-openmpi", "libscalapack-openmpi-dev")
check_tasks(starpu)
check_cholesky(scalapack)
if not (starpu or scalapack):
    sys.exit(77)
print("tasks.py and cholesky.py run")
