#!/usr/bin/env bash
# Checks that headers and sources listed as pure reach neither Kokkos nor MPI, and sources of tools no Kokkos. The
# compiler lists the headers of all of them at once, which reads each header once. Only if that fails, it lists the
# headers of each file.
# pure_files.sh <source> <compiler> <folder of include_dirs.*> <folder>/<file>…
set -uo pipefail
source=$1 compiler=$2 lists=$3
shift 3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Only our include links: a header of Kokkos or MPI is not found, or is found in the compiler's default folders.
mapfile -t links < <(cat "$lists"/include_dirs.* | sed '/^$/d' | sort -u)
foreign='[^ ]*(Kokkos_[^ /]*|/mpi\.h|/fmt/[^ ]*|/omp\.h)'
in_headers='[^ ]*dnnl[^ /]*' # sources of backends may include it
# is_pure <files…>: prints the reason if they are not. Files of tools may include MPI.
is_pure() {
  local pattern=$foreign missing=()
  [[ " $* " == *".cpp "* ]] || pattern+="|$in_headers"
  [[ " $* " != *" $source/tools/"* ]] || pattern='[^ ]*Kokkos_[^ /]*' missing=(-MG) # a header may be missing
  printf '#include "%s"\n' "$@" >"$scratch/all.cpp"
  "$compiler" -std=c++20 -M "${missing[@]}" "${links[@]/#/-I}" "$scratch/all.cpp" >"$scratch/all.d" \
    2>"$scratch/errors" || { grep -m1 error "$scratch/errors" && return 1; }
  ! grep -m1 -oE "$pattern" "$scratch/all.d"
}

# Tried first on sources that are not pure, directly and by one of our headers.
for header in Kokkos_Core.hpp mpi.h omp.h aloni/core/comm/mpi.hpp aloni/nn/network.hpp; do
  echo "#include <$header>" >"$scratch/impure.cpp"
  is_pure "$source/nn/plan/plan_step.cpp" "$scratch/impure.cpp" >"$scratch/reason" || continue
  echo "a source that includes <$header> passes for pure"
  exit 1
done
echo "#include <aloni/nn/detail/instantiate.hpp>" >"$scratch/impure.cpp"
if is_pure "$source/tools/train_command.cpp" "$scratch/impure.cpp" >"$scratch/reason"; then
  echo "a source of the command that includes Kokkos passes for pure"
  exit 1
fi
for folder in nn/plan nn/plan/detail nn/models views halo model; do
  [[ " $*" == *" $folder/"* ]] || { echo "no pure source of $folder is given: have the lists moved?"; exit 1; }
done
for file in "$source"/nn/plan/*.cpp "$source"/nn/plan/detail/*.cpp "$source"/nn/models/*.cpp "$source"/model/*.cpp; do
  [[ " $* " == *" ${file#"$source"/} "* ]] || { echo "${file#"$source"/} must be listed as pure"; exit 1; }
done
headers=() sources=() tools=()
for file in "$@"; do
  case $file in
    *.hpp) headers+=("$source/$file") ;;
    tools/*) tools+=("$source/$file") ;;
    *) sources+=("$source/$file") ;;
  esac
done
is_pure "${headers[@]}" >/dev/null && is_pure "${sources[@]}" >/dev/null &&
  { ((!${#tools[@]})) || is_pure "${tools[@]}" >/dev/null; } && { echo "$# files are pure"; exit 0; }
for file in "$@"; do
  reason=$(is_pure "$source/$file") || echo "$file is listed as pure, but: $reason"
done
exit 1
