#!/usr/bin/env bash
# scripts/mpirun needs no variable set by hand: ranks print no warnings, neither ranks nor threads are bound to a core.
# launcher.sh <scripts/mpirun> <program that starts Kokkos> <arguments…>
set -euo pipefail
launcher=$1
shift
unset OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES OMP_THREAD_LIMIT
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  echo "launcher: $*"
  exit 1
}
quiet() { # <threads> <ranks> <program> <arguments…>
  local threads=$1 ranks=$2
  shift 2
  OMP_NUM_THREADS=$threads "$launcher" -n "$ranks" "$@" >"$scratch/out" 2>"$scratch/err" ||
    fail "$1 fails: $(cat "$scratch/err")"
  [[ ! -s $scratch/err ]] || fail "$ranks rank(s) with $threads thread(s) print: $(cat "$scratch/err")"
}
in_rank() { "$launcher" -n "$1" bash -c "$2" | sort -u; }

cores=$(nproc)
quiet 1 1 "$@"
if ((cores >= 2)); then # fewer cores than threads deserve a warning
  quiet 2 1 "$@"
  quiet 1 2 "$@"
fi

binding=$(in_rank 2 'echo "$OMP_PROC_BIND"')
[[ $binding == false ]] || fail "ranks run with OMP_PROC_BIND=$binding instead of false"
kept=$(OMP_PROC_BIND=close in_rank 2 'echo "$OMP_PROC_BIND"')
[[ $kept == close ]] || fail "ranks run with OMP_PROC_BIND=$kept instead of the caller's close"
allowed=$(in_rank 2 'grep Cpus_allowed_list /proc/self/status')
[[ $allowed == "$(grep Cpus_allowed_list /proc/self/status)" ]] || fail "ranks are bound: $allowed"
threads=$(in_rank 1 'echo "$OMP_NUM_THREADS"')
[[ $threads == "$cores" ]] || fail "one rank runs $threads threads on $cores cores"
