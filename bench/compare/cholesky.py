#!/usr/bin/env python3
"""Times the Cholesky factorisation on two cores: ours, OpenBLAS and ScaLAPACK, in double.

  bench/compare/cholesky.py [N…] [--turns 5] [--repeat 3] [--scalapack B,R,C,L] [--json FILE]
                                                                            N: rows; default: 2048 4096 8192

  1 x 2       build/host/bin/cholesky, one process with two workers, and DGEMM by two threads in the same run
  2 x 1       the same, two processes with one worker each
  dpotrf      LAPACK of the BLAS that bench_tasks links, two threads
  pdpotrf     ScaLAPACK on two processes with one thread each (scalapack_cholesky.cpp; Debian: libscalapack-openmpi-dev)

All take turns, with the same kernels of OpenBLAS. pdpotrf has the block size, grid and triangle that were the fastest
in a sweep before, of at most 4,096 rows; --scalapack gives them instead. Each figure is the median over turns of the
fastest of --repeat runs. The programs check their results. Without ScaLAPACK its column stays empty. $BIN has the
programs if they are not in build/host/bin.
"""
import argparse
import json
import statistics
import sys
import tempfile

sys.dont_write_bytecode = True

from peer_program import (ONE_THREAD, ROOT, Missing, build, our_program, output, version_of,
                          without_thread_settings)

PACKAGE = "scalapack-openmpi"
BLOCKS = (32, 64, 96, 128, 192, 256)
MPIRUN = ROOT / "scripts/mpirun"


def ours(program, n, ranks, repeat):
    """GFLOP/s of the factorisation and of DGEMM, and the processor for which OpenBLAS has made its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/out.json"
        launcher = [MPIRUN, "-n", ranks] if ranks > 1 else []
        output([*launcher, program, "--n", n, "--workers", 2 // ranks, "--repeat", repeat, "--json", file],
               without_thread_settings() | ONE_THREAD)
        with open(file, encoding="utf-8") as stream:
            result = json.load(stream)
    return result["gflops"], result["gemm_gflops"], result["blas_kernels"]


def dpotrf(program, n, repeat):
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/out.json"
        seconds = repeat * n ** 3 / 3 / 50e9
        output([program, f"--benchmark_filter=^potrf/double/n{n}/", f"--benchmark_min_time={seconds}",
                f"--benchmark_out={file}", "--benchmark_out_format=json"],
               without_thread_settings() | {"OMP_NUM_THREADS": "2", "OMP_PROC_BIND": "false"})
        with open(file, encoding="utf-8") as stream:
            cases = json.load(stream)["benchmarks"]
    if not cases:
        raise Missing(f"bench_tasks has no case potrf/double/n{n}; its sizes are in bench/bench_tasks.cpp")
    return n ** 3 / 3 / cases[0]["best_us"] * 1e-3


def pdpotrf(program, n, choice, repeat, kernels):
    block, rows, columns, part = choice
    environment = without_thread_settings() | ONE_THREAD
    if kernels:  # those of our programs (core/blas_library.hpp); OpenBLAS may know the processor less well
        environment["OPENBLAS_CORETYPE"] = kernels
    text = output([MPIRUN, "-n", 2, program, n, block, rows, columns, part, repeat], environment)
    return n ** 3 / 3 / json.loads(text)["seconds"] * 1e-9


def best_choice(program, n, kernels):
    choices = [(block, *grid, part) for block in BLOCKS if block <= n for grid in ((1, 2), (2, 1)) for part in "LU"]
    return max(choices, key=lambda choice: pdpotrf(program, min(n, 4096), choice, 2, kernels))


def choice_of(text):
    block, rows, columns, part = text.split(",")
    if part not in ("L", "U") or int(rows) * int(columns) != 2:
        raise ValueError(text)
    return int(block), int(rows), int(columns), part


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("n", type=int, nargs="*", default=[2048, 4096, 8192])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scalapack", type=choice_of, metavar="BLOCK,ROWS,COLUMNS,L|U")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if min(options.turns, options.repeat, *options.n) < 1:
        parser.error("numbers must be above 0")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            cholesky, suite = our_program("cholesky"), our_program("bench_tasks")
        except Missing as error:
            sys.exit(f"cholesky.py: {error}")
        try:
            scalapack = build("scalapack_cholesky.cpp", PACKAGE, "libscalapack-openmpi-dev", folder)
        except Missing as error:
            scalapack = None
            print(f"cholesky.py: no times of ScaLAPACK: {error}", file=sys.stderr)
        *_, kernels = ours(cholesky, 64, 1, 1)
        print(f"{'n':>6}{'DGEMM':>9}{'1 x 2':>9}{'2 x 1':>9}{'dpotrf':>9}{'pdpotrf':>9}  GFLOP/s")
        for n in options.n:
            choice = (options.scalapack or best_choice(scalapack, n, kernels)) if scalapack else None
            values = {name: [] for name in ("dgemm", "1x2", "2x1", "dpotrf", "pdpotrf")}
            for _ in range(options.turns):
                for name, ranks in (("1x2", 1), ("2x1", 2)):
                    rate, product, _ = ours(cholesky, n, ranks, options.repeat)
                    values[name].append(rate)
                    if ranks == 1:
                        values["dgemm"].append(product)
                try:
                    values["dpotrf"].append(dpotrf(suite, n, options.repeat))
                except Missing as error:
                    sys.exit(f"cholesky.py: {error}")
                if choice:
                    values["pdpotrf"].append(pdpotrf(scalapack, n, choice, options.repeat, kernels))
            medians = {name: statistics.median(all_turns) for name, all_turns in values.items() if all_turns}
            cells = "".join(f"{medians[name]:9.2f}" if name in medians else f"{'–':>9}" for name in values)
            text = "" if choice is None else "   blocks of {}, {} x {} ranks, {}".format(*choice)
            print(f"{n:>6}{cells}{text}", flush=True)
            rows.append({"n": n, "gflops": medians, "scalapack": choice, "all": values})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            versions = {"ScaLAPACK": version_of(PACKAGE)} if scalapack else {}
            json.dump({"versions": versions, "turns": options.turns, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
