#!/usr/bin/env bash
# What overlap is worth on a slow link: forward and backward of a layer split in height between two hosts made of this machine (two_hosts.sh), on a
# link shaped so that the halos take as long as the computation.
#   bench/overlap.sh [LAYER] [bench_conv]      c64_256, build/host/bin/bench_conv
# A progress thread (interior_first with it: progress_thread) is the alternative to computing the interior in slabs, between which messages are looked after.
# First the computation is timed, then the link gets the rate at which the halos' bytes take as long. Prints five times and each as a multiple of
# the longer of computation and communication. Needs what two_hosts.sh needs, root above all.
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
layer=${1:-c64_256}
bench=${2:-build/host/bin/bench_conv}
[[ -x $bench ]] || { echo "overlap.sh: no program $bench; build the host preset first" >&2; exit 1; }

run() { # the case's mean time in µs; what follows its name goes to the benchmark
  "$here/two_hosts.sh" run 1 "$bench" --time_oversubscribed --benchmark_format=json --benchmark_min_time=2 \
    --benchmark_filter="^overlap/$layer/$1" "${@:2}" 2>/dev/null |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["benchmarks"][0]["real_time"])'
}
counter() { # what one of its counters says
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
