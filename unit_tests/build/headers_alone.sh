#!/usr/bin/env bash
# Checks that every public header compiles alone and twice. Sources that include their header first have been compiled
# alone in this build, so their headers are left out.
# headers_alone.sh <source> <compiler> <folder of all_include_dirs> <folder>/<header>…
set -uo pipefail
source=$1 compiler=$2 lists=$3
shift 3
(($#)) || { echo "no headers given"; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

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
for header in "$@"; do
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
((failures == 0)) && echo "${#alone[@]} of $# headers compile alone, the others first in their sources"
exit "$failures"
