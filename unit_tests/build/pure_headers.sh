#!/usr/bin/env bash
# Checks that every pure header compiles alone and twice, with only our include links and the standard library. It must
# include neither Kokkos nor MPI, even if their headers are in the compiler's default folders.
# pure_headers.sh <compiler> <folder of include_dirs.*> <folder>/<header>…
set -uo pipefail
compiler=$1 lists=$2
shift 2
(($#)) || { echo "no pure headers given"; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

check() {
  local compiler=$1 lists=$2 scratch=$3 header=$4 name
  name=${header//\//_}
  mapfile -t directories < <(sed '/^$/d' "$lists/include_dirs.${header%%/*}")
  printf '#include <aloni/%s>\n' "$header" "$header" >"$scratch/$name.cpp"
  "$compiler" -std=c++20 -Wall -Wextra -fsyntax-only -MD -MF "$scratch/$name.d" "${directories[@]/#/-I}" \
    "$scratch/$name.cpp" ||
    { echo "<aloni/$header> does not compile alone"; return 1; }
  if grep -oE '[^ ]*(Kokkos_[^ /]*|/mpi\.h|/fmt/[^ ]*|/omp\.h|dnnl[^ /]*)' "$scratch/$name.d"; then
    echo "<aloni/$header> includes the header above"
    return 1
  fi
}
export -f check
printf '%s\0' "$@" | xargs -0 -n 1 -P 2 bash -c 'check "$@"' check "$compiler" "$lists" "$scratch"
