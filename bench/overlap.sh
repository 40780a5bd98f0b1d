#!/usr/bin/env bash
# Measures overlap on a slow link: forward and backward of a layer split by height between two hosts (two_hosts.sh).
#   bench/overlap.sh [LAYER] [bench_conv]      default: c64_256, build/host/bin/bench_conv
# First it times the computation. Then it gives the link the rate at which the halos take as long. It prints five times,
# and each as a multiple of the longer of computation and communication:
#   computation, communication    each alone
#   blocking                      one after the other
#   interior_first                the interior in slabs; messages make progress between slabs
#   progress_thread               interior_first without slabs; a thread makes progress
# Needs the programs of two_hosts.sh, and root.
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
layer=${1:-c64_256}
bench=${2:-build/host/bin/bench_conv}
[[ -x $bench ]] || { echo "overlap.sh: no program $bench; build target bench_conv of the host preset" >&2; exit 1; }

run() { # prints the mean time of a case in µs; further arguments go to the benchmark
  "$here/two_hosts.sh" run 1 "$bench" --time_oversubscribed --benchmark_format=json --benchmark_min_time=2 \
    --benchmark_filter="^overlap/$layer/$1" "${@:2}" 2>/dev/null |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["benchmarks"][0]["real_time"])'
}
counter() { # prints a counter of the case communication
  "$here/two_hosts.sh" run 1 "$bench" --time_oversubscribed --benchmark_format=json --benchmark_min_time=0.1 \
    --benchmark_filter="^overlap/$layer/communication" 2>/dev/null |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["benchmarks"][0][sys.argv[1]])' "$1"
}

trap '"$here/two_hosts.sh" down >/dev/null 2>&1 || true' EXIT
"$here/two_hosts.sh" up
computation=$(run computation)
bytes=$(counter sent_bytes)
"$here/two_hosts.sh" down
kbit=$(python3 -c "print(max(1, round($bytes * 8 / $computation * 1000)))") # bytes and microseconds
echo "$layer: $bytes bytes of halos each way, computation $computation us: the link gets $kbit kbit/s"
"$here/two_hosts.sh" up "${kbit}kbit" 16kb
declare -A time
for what in computation communication blocking interior_first; do time[$what]=$(run $what); done
time[progress_thread]=$(run interior_first --progress_thread)
longer=$(python3 -c "print(max(${time[computation]}, ${time[communication]}))")
for what in computation communication blocking interior_first progress_thread; do
  python3 -c "print(f'{\"$what\":16}{${time[$what]}:12.0f} us{${time[$what]} / $longer:8.2f}')"
done
