#!/usr/bin/env bash
# Checks the format of all C++ files: format.sh <source> <clang-format 14>
set -euo pipefail
cd "$1"
if git rev-parse --show-toplevel >/dev/null 2>&1; then
  git ls-files -z --cached --others --exclude-standard -- '*.hpp' '*.cpp'
else
  find . -path ./build -prune -o \( -name '*.hpp' -o -name '*.cpp' \) -print0
fi | xargs -0 "$2" --dry-run -Werror
