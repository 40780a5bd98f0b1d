#!/usr/bin/env bash
# A good guest: the library's sources (the optional environment apart) name no MPI_COMM_WORLD, print nothing and end no process.
#   source_rules.sh <source folder>
set -euo pipefail
cd "$1"
pattern='MPI_COMM_WORLD|std::(cout|cerr|clog|printf|puts|exit|_Exit|quick_exit|abort|terminate)|\b(f?printf|puts|fputs|exit|_exit|abort|signal|sigaction|MPI_Abort|MPI_Finalize)\('

# Comments may speak of them.
offenders() {
  local file
  for file in "$@"; do
    sed -E 's,//.*$,,' "$file" | grep -nE "$pattern" | sed "s,^,$file:," || true
  done
}

# Left out: who starts and stops MPI, and who puts the handlers of signals back that UCX takes over.
files=()
for folder in core views halo nn model tasks; do
  [[ -d $folder ]] || continue
  while IFS= read -r file; do files+=("$file"); done < <(find "$folder" -name '*.hpp' -o -name '*.cpp' | grep -vE '^core/(environment|comm/transport/ucx_library)\.')
done
((${#files[@]} > 20)) || { echo "found only ${#files[@]} files in $1: the folders have moved"; exit 1; }

# The rule must see what it forbids.
sample=$(mktemp --suffix=.cpp)
trap 'rm -f "$sample"' EXIT
printf 'void f() { MPI_Comm_rank(MPI_COMM_WORLD, &r); }\nvoid g() { std::cout << 1; }\nvoid h() { exit(1); }\n' >"$sample"
[[ $(offenders "$sample" | wc -l) == 3 ]] || { echo "the pattern misses what it is for"; exit 1; }

found=$(offenders "${files[@]}")
if [[ -n $found ]]; then
  echo "library sources must not print, end the process, or use MPI_COMM_WORLD:"
  echo "$found"
  exit 1
fi
echo "${#files[@]} files keep the rules"
