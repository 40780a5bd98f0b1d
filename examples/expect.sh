#!/usr/bin/env bash
# expect.sh <extended regular expression>… -- <command…>: the command succeeds, and each expression matches a line of its output.
set -euo pipefail
expected=()
while [[ $1 != -- ]]; do
  expected+=("$1")
  shift
done
shift
output=$("$@")
printf '%s\n' "$output"
for expression in "${expected[@]}"; do
  grep -qE -- "$expression" <<<"$output" || { echo "no line matches: $expression"; exit 1; }
done
