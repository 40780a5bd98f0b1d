#!/usr/bin/env bash
# Tests the errors of cmake/bootstrap and their messages, without building anything.
# bootstrap.sh <source> <scratch>
set -uo pipefail
source=$1 scratch=$2
rm -rf "$scratch"
mkdir -p "$scratch"
export XDG_CACHE_HOME=$scratch/cache
failures=0

# expect <exit code> <part of the output> <command…>
expect() {
  local code=$1 words=$2 said status
  shift 2
  said=$("$@" 2>&1 </dev/null)
  status=$?
  if ((status != code)) || ! grep -qF -- "$words" <<<"$said"; then
    echo "$* returned $status and printed:"
    echo "$said"
    echo "expected exit code $code and: $words"
    failures=$((failures + 1))
  fi
}

expect 3 "$XDG_CACHE_HOME/aloni/kokkos-" "$source/cmake/bootstrap" --print-prefix
expect 1 "no C++ compiler named nosuch++" "$source/cmake/bootstrap" --cxx nosuch++
expect 1 "no such file" env ALONI_KOKKOS_SOURCE="$scratch/missing.tar.gz" "$source/cmake/bootstrap"
echo "not the package" >"$scratch/wrong.tar.gz"
expect 1 "expected e620f05c" env ALONI_KOKKOS_SOURCE="$scratch/wrong.tar.gz" "$source/cmake/bootstrap"
# Without network: pip gets an index that does not exist.
expect 1 "ALONI_KOKKOS_SOURCE=/path/to" env PIP_INDEX_URL=file:///nowhere PIP_EXTRA_INDEX_URL= PIP_NO_CACHE_DIR=1 \
  PIP_RETRIES=0 "$source/cmake/bootstrap"

# If neither Kokkos nor a cache entry exists, CMake's error message names the command to run.
expect 1 "cmake/bootstrap --variant host" cmake -G Ninja -S "$source" -B "$scratch/build" \
  -D CMAKE_DISABLE_FIND_PACKAGE_Kokkos=ON
((failures == 0))
