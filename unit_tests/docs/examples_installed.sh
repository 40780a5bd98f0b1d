#!/usr/bin/env bash
# Builds and runs examples against an installation, as the README describes. The others differ only in their code.
# examples_installed.sh <source> <prefix> <scratch> <compiler>
set -euo pipefail
source=$1 prefix=$2 scratch=$3 compiler=$4
rm -rf "$scratch"
mkdir -p "$scratch"
cmake -G Ninja -S "$source/examples" -B "$scratch" -D aloni_ROOT="$prefix" \
  -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER="$compiler"
cmake --build "$scratch" --target first_steps train_lenet
ctest --test-dir "$scratch" --output-on-failure --no-tests=error -R 'first_steps|train_lenet.h2'
