#!/usr/bin/env python3
"""Runs the tests of the main build with a library whose backends are all OFF.

relink_tests.py --main BUILD --libraries BUILD/aloni --scratch FOLDER [--only REGULAR_EXPRESSION]

Options reach the sources through <aloni/core/config.hpp> alone. Objects of tests that do not include it, directly or
not, are the same in every build: the main build has them. The few others are compiled again, with the config.hpp of the
other build. All are linked with the libraries of the other build, and without the libraries of the backends: a program
that needs a backend cannot be linked. --only: programs whose names match.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

# Not HDF5: a test of the same program writes its files with it.
BACKENDS = re.compile(r"libz\.|libdnnl|kokkoskernels|openblas|libucp|libnccl|libcudart")
LIBRARY = re.compile(r"(core|views|tasks|halo|nn|model)/libaloni_\w+\.a$")
# Tests without a launcher, and tests on one or two ranks with the default transport: of each the largest.
WANTED = re.compile(r"(test_[a-z0-9_]+?)(\.np[12])?")
# Tests that need a backend, take minutes without optimisation, or are about a build rather than about the library.
LEFT_OUT = re.compile(r"test_(gzip|hdf5_array|restart|update|training|split|zoo|verify|representatives|replicated"
                      r"|faulty_exchanges"
                      r"|random_exchanges|gradients|batch_norm_scopes"
                      r"|engine|algorithms|placement|bfloat16"
                      r"|emulated_device"
                      r"|local_convolution|local_bounds|local_bfloat16|filter_orders|depthwise_kernels|direct_kernels"
                      r"|good_guest|local_guest|fence_guard|step_arithmetic|info|train_command|progress_line).*")
LEAST_TESTS = 30


def ninja(main, *arguments):
    return subprocess.run(["ninja", "-C", main, *arguments], check=True, capture_output=True, text=True).stdout


def see_options(main, objects):
    """Those of the objects that were compiled with config.hpp among their headers."""
    found, current = set(), None
    for line in ninja(main, "-t", "deps", *objects).splitlines():
        if line and not line.startswith(" "):
            current = line.split(":")[0]
        elif "aloni/core/config.hpp" in line or line.strip().endswith("core/config.hpp"):
            found.add(current)
    return found


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\nfails: {done.stdout}{done.stderr}")


def last_command(main, target):
    return shlex.split(ninja(main, "-t", "commands", target).strip().splitlines()[-1])


def compile_again(main, libraries, target, to):
    command = last_command(main, target)
    command[command.index("-o") + 1] = str(to)
    if "-MF" in command:
        command[command.index("-MF") + 1] = f"{to}.d"
    first = next(i for i, word in enumerate(command) if word.startswith("-I"))
    command.insert(first, f"-I{libraries}/include/generated")
    run(command, main)


def relink(main, libraries, scratch, program):
    """Returns the objects that had to be compiled."""
    words = [w for w in last_command(main, f"bin/{program}") if w not in (":", "&&")]
    seen = see_options(main, [w for w in words if w.endswith(".o")])
    again = {}
    for target in seen:
        again[target] = scratch / f"{program}.{len(again)}.o"
        compile_again(main, libraries, target, again[target])
    command = []
    for word in words:
        if BACKENDS.search(word) and not word.startswith("-Wl,-rpath"):
            continue
        word = str(again.get(word, word))
        command.append(f"{libraries}/{word}" if LIBRARY.match(word) else word)
    command[command.index("-o") + 1] = str(scratch / program)
    run(command, main)
    return sorted(seen)


def run_test(test, scratch, main):
    command = [re.sub(rf"^{re.escape(main)}/bin/", f"{scratch}/", word) for word in test["command"]]
    properties = {p["name"]: p["value"] for p in test["properties"]}
    environment = {**os.environ, **dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))}
    start = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        output = done.stdout + done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired:
        output = "does not end within 300 s"
    print(f"{time.monotonic() - start:6.1f} s  {'FAILED' if output else 'passed'}  {test['name']}", flush=True)
    return output


def main():
    parser = argparse.ArgumentParser()
    for name in ("--main", "--libraries", "--scratch"):
        parser.add_argument(name, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    scratch = pathlib.Path(options.scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    listed = json.loads(subprocess.run(["ctest", "--test-dir", options.main, "--show-only=json-v1"], check=True,
                                       capture_output=True, text=True).stdout)["tests"]
    largest = {}
    for test in sorted(listed, key=lambda t: t["name"]):
        wanted = WANTED.fullmatch(test["name"])
        if wanted and not LEFT_OUT.fullmatch(test["name"]):
            largest[wanted[1]] = test
    tests, programs = [], set()
    for test in largest.values():
        names = [pathlib.Path(w).name for w in test.get("command", []) if w.startswith(f"{options.main}/bin/test_")]
        program = names[0] if names and re.search(options.only, names[0]) else None
        if program and not program.startswith("test_tools"):  # the command is no part of an embedded build
            tests.append(test)
            programs.add(program)
    if not options.only and len(tests) < LEAST_TESTS:
        sys.exit(f"only {len(tests)} tests are listed in {options.main}")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for seen in pool.map(lambda p: relink(options.main, options.libraries, scratch, p), sorted(programs)):
            for target in seen:
                print(f"compiled: {target}")
        print(f"{len(programs)} programs are linked without backends")
        outputs = list(pool.map(lambda t: run_test(t, scratch, options.main), tests))
    for test, output in zip(tests, outputs):
        if output:
            print(f"\n{test['name']}:\n{output}")
    failed = sum(1 for output in outputs if output)
    print(f"{len(tests) - failed} of {len(tests)} tests passed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
