#!/usr/bin/env bash
# Uses an installation as other projects do: all its headers, find_package, and pkg-config.
# package.sh <source> <prefix> <scratch> <compiler>
set -euo pipefail
source=$1 prefix=$2 scratch=$3 compiler=$4
program=$source/examples/first_steps/main.cpp
rm -rf "$scratch"
mkdir -p "$scratch"
export OMP_NUM_THREADS=1

configure() {
  cmake -G Ninja -S "$source/unit_tests/build/foreign" -B "$1" -D MODE=package -D PROGRAM="$program" \
    -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_COMPILER="$compiler" -D aloni_ROOT="$prefix" "${@:2}"
}

echo "-- find_package"
configure "$scratch/foreign"
cmake --build "$scratch/foreign"
"$source/scripts/mpirun" -n 2 "$scratch/foreign/program"

echo "-- find_package fails for a missing component"
if configure "$scratch/missing" -D COMPONENTS=teleportation >"$scratch/missing.log" 2>&1; then
  echo "find_package found the component teleportation"
  exit 1
fi
grep -q 'no component teleportation' "$scratch/missing.log" || { cat "$scratch/missing.log"; exit 1; }

echo "-- pkg-config, and every installed header"
if command -v pkg-config >/dev/null; then
  PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name aloni.pc)")
  export PKG_CONFIG_PATH
  read -ra flags <<<"$(pkg-config --cflags aloni)"
  read -ra libraries <<<"$(pkg-config --libs aloni)"
  (cd "$prefix/include" && find aloni -name '*.hpp') | sed 's,.*,#include <&>,' >"$scratch/headers.cpp"
  "$compiler" "${flags[@]}" -fsyntax-only "$scratch/headers.cpp"
  "$compiler" "${flags[@]}" "$program" -o "$scratch/by_makefile" "${libraries[@]}"
  "$source/scripts/mpirun" -n 2 "$scratch/by_makefile"
fi
