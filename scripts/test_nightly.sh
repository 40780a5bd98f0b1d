#!/usr/bin/env bash
# All set-up, then the tests that take more than CI has time for: more kills of running ranks, more random exchanges. About ten minutes.
set -euo pipefail
ALONI_KILLS=200 ALONI_EXCHANGES=1000 exec "$(dirname "${BASH_SOURCE[0]}")/test.sh" -R "^test_failures|^test_random_exchanges"
