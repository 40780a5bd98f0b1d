#!/usr/bin/env bash
# All set-up, then the tests that take more than CI has time for: more kills of running ranks, more random exchanges and networks, other ones each night.
# About half an hour.
set -euo pipefail
export ALONI_NIGHTLY=1 ALONI_FUZZ_SEED="${ALONI_FUZZ_SEED:-$(date +%s)}"
ALONI_KILLS=200 ALONI_EXCHANGES=1000 exec "$(dirname "${BASH_SOURCE[0]}")/test.sh" \
  -R "^test_failures|^test_random_exchanges|^test_split|^fuzz_split|^test_step_graph|^test_local_"
