#!/usr/bin/env bash
# Benchmarks set up a case only when it runs: listing the cases of a suite takes less than a second of CPU time, and so
# does a filter that excludes all of them. CPU time, because other tests may keep the cores busy.
# benchmark_lists.sh <scripts/mpirun> <folder of the programs>
set -euo pipefail
launcher=$1 folder=$2 limit=1.0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
shopt -s nullglob
suites=("$folder"/bench_*)
((${#suites[@]})) || { echo "a build without benchmarks"; exit 0; }

cpu_seconds() { # <command…>: of all its processes
  local TIMEFORMAT='%U %S' status=0
  { time timeout 30 "$@" >"$scratch/out" 2>"$scratch/err" || status=$?; } 2>"$scratch/time"
  awk '{print $1 + $2}' "$scratch/time"
  return "$status"
}
check() { # <what> <suite> <argument>
  local seconds
  seconds=$(cpu_seconds "$launcher" -n 2 "$2" "$3") || { echo "$1 fails or takes 30 s: $(cat "$scratch/err")"; exit 1; }
  echo "$1: $seconds s"
  awk "BEGIN {exit !($seconds < $limit)}" || { echo "$1 takes $seconds s instead of less than $limit s"; exit 1; }
}

for suite in "${suites[@]}"; do
  name=${suite##*/}
  check "listing $name" "$suite" --benchmark_list_tests
  [[ $(grep -c / "$scratch/out") -gt 3 ]] || { echo "$name lists hardly any case: $(cat "$scratch/out")"; exit 1; }
  check "excluding all of $name" "$suite" --benchmark_filter='^no_case_has_this_name$'
done
