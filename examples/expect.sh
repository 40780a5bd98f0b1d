#!/usr/bin/env bash
# expect.sh [--fails] <extended regular expression>… -- <command…>: the command succeeds, and each expression matches a line of its output;
# with --fails it fails, and they match lines of its output or its errors.
set -euo pipefail
expected=() fails=
[[ $1 != --fails ]] || { fails=1; shift; }
while [[ $1 != -- ]]; do
  expected+=("$1")
  shift
done
shift
if [[ $fails ]]; then
  output=$("$@" 2>&1) && { echo "it should have failed: $output"; exit 1; }
else
  output=$("$@")
fi
printf '%s\n' "$output"
for expression in "${expected[@]}"; do
  grep -qE -- "$expression" <<<"$output" || { echo "no line matches: $expression"; exit 1; }
done
