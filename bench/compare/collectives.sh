#!/usr/bin/env bash
# Times all-reduces of floats on two ranks of one thread: aloni, MPI, and PyTorch over gloo.
# aloni has data in the user's memory (private) and in memory of the library (shared). All take turns, each process on
# its own core.
# Prints medians over turns and their ratios. See README.md beside this file.
#   PYTHON=~/peers/bin/python bench/compare/collectives.sh [BYTES…]        JSON=FILE keeps the figures
# BYTES: sizes that bench_collectives has; default: 8 bytes to 32 MiB.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bench=${BENCH:-$root/build/host/bin/bench_collectives}
python=${PYTHON:-python3}
turns=${TURNS:-5}
ranks=2
(($#)) || set -- 8 64 1024 4096 16384 65536 262144 1048576 4194304 8388608 33554432

[[ -x $bench ]] ||
  { echo "collectives.sh: no program $bench; build target bench_collectives or set BENCH" >&2; exit 1; }
"$python" -c 'import torch' ||
  { echo "collectives.sh: $python has no PyTorch; see $here/README.md, set PYTHON" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(($(env -u OMP_NUM_THREADS nproc) >= ranks)) ||
  { echo "collectives.sh: fewer cores than $ranks ranks: bench_collectives gives no times" >&2; exit 1; }
export OMP_NUM_THREADS=1 OMP_PROC_BIND=false

sizes=$(IFS='|' && echo "$*")
for ((turn = 0; turn < turns; ++turn)); do
  "$root/scripts/mpirun" -n $ranks "$here/pinned.sh" "$bench" --benchmark_min_time=0.1 \
    "--benchmark_filter=^allreduce/(private|shared|mpi)/($sizes)(/|\$)" \
    "--benchmark_out=$work/aloni.$turn.json" --benchmark_out_format=json >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
  "$python" "$here/collectives_gloo.py" --ranks $ranks --seconds 0.1 "$@" >"$work/gloo.$turn.json"
done

python3 - "$work" "$turns" "${JSON:-}" "$@" <<'PYTHON'
import json
import statistics
import sys
work, turns, output, *sizes = sys.argv[1:]
names = ("private", "shared", "mpi", "gloo")
times = {size: {name: [] for name in names} for size in sizes}
for turn in range(int(turns)):
    aloni = json.load(open(f"{work}/aloni.{turn}.json"))
    for case in aloni["benchmarks"]:
        _, name, size, *_ = case["name"].split("/")
        times[size][name].append(case["real_time"])
    gloo = json.load(open(f"{work}/gloo.{turn}.json"))
    for size in sizes:
        times[size]["gloo"].append(1e6 * gloo["seconds"][size])
print("us per all-reduce; a ratio below 1: aloni is faster")
print(f"{'bytes':>10}" + "".join(f"{name:>12}" for name in names) + "   private/gloo shared/gloo private/mpi")
rows = []
for size in sizes:
    if not times[size]["private"]:
        sys.exit(f"collectives.sh: bench_collectives has no case of {size} bytes; "
                 "its sizes are in bench/bench_collectives.cpp")
    median = {name: statistics.median(times[size][name]) for name in names}
    rows.append({"bytes": int(size), "microseconds": median, "all": times[size]})
    print(f"{size:>10}" + "".join(f"{median[name]:12.2f}" for name in names)
          + f"{median['private'] / median['gloo']:15.3f}{median['shared'] / median['gloo']:12.3f}"
          + f"{median['private'] / median['mpi']:12.3f}")
if output:
    context = {key: aloni["context"][key] for key in ("date", "processor", "cores", "ranks", "aloni", "mpi")}
    with open(output, "w") as file:
        json.dump({"context": context | {"gloo": gloo["library"]}, "rows": rows}, file, indent=1)
PYTHON
