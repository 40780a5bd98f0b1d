#!/usr/bin/env bash
# Installs this build for the tests that use an installation. No installed file may name the source or the build folder.
# installation.sh <source> <build> <prefix>
set -euo pipefail
source=$1 build=$2 prefix=$3
rm -rf "$prefix"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cmake --install "$build" --prefix "$prefix" >"$log" || { cat "$log"; exit 1; }
if grep -rlE "$source/|$build/" "$prefix" --include='*.cmake' --include='*.pc' --include='*.hpp'; then
  echo "the files above name the source or the build folder"
  exit 1
fi
