#!/usr/bin/env bash
# Installs this build into a fresh prefix, then builds and tests the examples against it, as the README describes.
# examples_installed.sh <source> <build> <compiler>
set -euo pipefail
source=$1 build=$2 compiler=$3
scratch=$build/unit_tests/docs/examples
rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/install.log" || { cat "$scratch/install.log"; exit 1; }
cmake -G Ninja -S "$source/examples" -B "$scratch/examples" -D aloni_ROOT="$scratch/prefix" \
  -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER="$compiler"
cmake --build "$scratch/examples"
ctest --test-dir "$scratch/examples" --output-on-failure --no-tests=error
