#!/usr/bin/env bash
# Installs this build into a fresh prefix, and uses the installation through find_package and through pkg-config.
# install.sh <source> <build> <compiler>
set -euo pipefail
source=$1 build=$2 compiler=$3
here=$source/unit_tests/build
scratch=$build/unit_tests/build/install
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
program=$source/examples/first_steps/main.cpp
export OMP_NUM_THREADS=1

echo "-- no installed file names the source or the build folder"
if grep -rlE "$source/|$build/" "$scratch/prefix" --include='*.cmake' --include='*.pc' --include='*.hpp'; then
  exit 1
fi

configure() {
  cmake -G Ninja -S "$here/foreign" -B "$1" -D MODE=package -D PROGRAM="$program" -D CMAKE_BUILD_TYPE=Release \
    -D CMAKE_CXX_COMPILER="$compiler" -D aloni_ROOT="$scratch/prefix" "${@:2}"
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

echo "-- pkg-config"
if command -v pkg-config >/dev/null; then
  library=$(dirname "$(find "$scratch/prefix" -name aloni.pc)")
  export PKG_CONFIG_PATH=$library
  # shellcheck disable=SC2046
  "$compiler" "$program" -o "$scratch/by_makefile" $(pkg-config --cflags --libs aloni)
  "$source/scripts/mpirun" -n 2 "$scratch/by_makefile"
fi
