#!/usr/bin/env bash
# expect.sh [--fails] <extended regular expression>… -- <command…>
# Checks that the command succeeds and that each expression matches a line of stdout.
# With --fails, checks that the command fails and that each expression matches a line of stdout or stderr.
set -euo pipefail
expected=() fails=
[[ $1 != --fails ]] || { fails=1; shift; }
while [[ $1 != -- ]]; do
  expected+=("$1")
  shift
done
shift
if [[ $fails ]]; then
  output=$("$@" 2>&1) && { echo "expected a failure, but the command succeeded: $output"; exit 1; }
else
  output=$("$@")
fi
printf '%s\n' "$output"
for expression in "${expected[@]}"; do
  grep -qE -- "$expression" <<<"$output" || { echo "no line matches: $expression"; exit 1; }
done
