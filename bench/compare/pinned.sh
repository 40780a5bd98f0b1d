#!/usr/bin/env bash
# Runs a program on the core of its rank. Binding options differ between MPI implementations; taskset does not.
#   scripts/mpirun -n 2 bench/compare/pinned.sh <program> <arguments…>
set -euo pipefail
mapfile -t cores < <(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)), sep="\n")')
rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-0}}
exec taskset -c "${cores[rank % ${#cores[@]}]}" "$@"
