#!/usr/bin/env bash
# Checks that every public header compiles alone and twice, and that pure headers reach neither Kokkos nor MPI.
# A header whose .cpp includes it first has been compiled alone by the library's build; the rest are parsed here.
# headers.sh <source> <compiler> <folder of include_dirs.*> PURE <folder>/<header>… OTHERS <folder>/<header>…
set -uo pipefail
source=$1 compiler=$2 lists=$3
shift 4
pure=() others=()
while (($#)) && [[ $1 != OTHERS ]]; do pure+=("$1") && shift; done
shift
others=("$@")
((${#pure[@]} && ${#others[@]})) || { echo "no headers given"; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

# Only our include links: a header of Kokkos or MPI is not found, or is found in the compiler's default folders.
mapfile -t links < <(cat "$lists"/include_dirs.* | sed '/^$/d' | sort -u)
foreign='[^ ]*(Kokkos_[^ /]*|/mpi\.h|/fmt/[^ ]*|/omp\.h|dnnl[^ /]*)'
printf '#include <aloni/%s>\n' "${pure[@]}" >"$scratch/pure.cpp"
if ! "$compiler" -std=c++20 -M "${links[@]/#/-I}" "$scratch/pure.cpp" >"$scratch/pure.d" ||
  grep -qE "$foreign" "$scratch/pure.d"; then
  for header in "${pure[@]}"; do
    echo "#include <aloni/$header>" |
      "$compiler" -std=c++20 -M -x c++ "${links[@]/#/-I}" - >"$scratch/one.d" 2>/dev/null &&
      ! grep -oE "$foreign" "$scratch/one.d" ||
      { echo "<aloni/$header> is pure, but includes Kokkos, MPI or the like" && failures=1; }
  done
fi

mapfile -t directories < <(sed '/^$/d' "$lists/all_include_dirs")
check() {
  local compiler=$1 scratch=$2 header=$3 name
  shift 3
  name=${header//\//_}
  printf '#include <aloni/%s>\n' "$header" "$header" >"$scratch/$name.cpp"
  "$compiler" -std=c++20 -w -fsyntax-only -fopenmp -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX "$@" "$scratch/$name.cpp" ||
    { echo "<aloni/$header> does not compile alone and twice"; return 1; }
}
alone=()
for header in "${pure[@]}" "${others[@]}"; do
  implementation=$source/${header%.hpp}.cpp
  if [[ -f $implementation ]]; then
    [[ $(grep -m1 '^#include' "$implementation") == "#include <aloni/$header>" ]] && continue
    echo "${header%.hpp}.cpp does not include its own header first" && failures=1
  fi
  alone+=("$header")
done
export -f check
printf '%s\0' "${alone[@]}" |
  xargs -0 -I{} -P 2 bash -c 'check "$@"' check "$compiler" "$scratch" {} "${directories[@]/#/-I}" || failures=1
((failures == 0)) && echo "${#alone[@]} headers compile alone, of ${#pure[@]} pure and ${#others[@]} others"
exit "$failures"
