#!/usr/bin/env bash
# Checks the rules of a good guest: the library's sources do not use MPI_COMM_WORLD, print nothing and end no process.
# core/environment is exempt.
#   source_rules.sh <source folder>
set -euo pipefail
cd "$1"
pattern='MPI_COMM_WORLD|std::(cout|cerr|clog|printf|puts|exit|_Exit|quick_exit|abort|terminate)'
pattern+='|\b(f?printf|puts|fputs|exit|_exit|abort|signal|sigaction|MPI_Abort|MPI_Finalize)\('

# Comments may name these functions.
offenders() {
  local file
  for file in "$@"; do
    sed -E 's,//.*$,,' "$file" | grep -nE "$pattern" | sed "s,^,$file:," || true
  done
}

# Exempt: core/environment starts and stops MPI; ucx_library restores the signal handlers that UCX replaces.
files=()
for folder in core views halo nn model tasks; do
  [[ -d $folder ]] || continue
  while IFS= read -r file; do files+=("$file"); done < <(find "$folder" -name '*.hpp' -o -name '*.cpp' |
    grep -vE '^core/(environment|comm/transport/ucx_library)\.')
done
((${#files[@]} > 20)) || { echo "found only ${#files[@]} files in $1: have the folders moved?"; exit 1; }

# The pattern must match forbidden code.
sample=$(mktemp --suffix=.cpp)
trap 'rm -f "$sample"' EXIT
printf '%s\n' 'void f() { MPI_Comm_rank(MPI_COMM_WORLD, &r); }' 'void g() { std::cout << 1; }' 'void h() { exit(1); }' \
  >"$sample"
[[ $(offenders "$sample" | wc -l) == 3 ]] || { echo "the pattern does not match forbidden code"; exit 1; }

found=$(offenders "${files[@]}")
if [[ -n $found ]]; then
  echo "library sources must not print, end the process or use MPI_COMM_WORLD:"
  echo "$found"
  exit 1
fi
echo "${#files[@]} files follow the rules"
