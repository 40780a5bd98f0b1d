#!/usr/bin/env bash
# All set-up, then the tests that take more than CI has time for: more kills of running ranks. About ten minutes.
set -euo pipefail
ALONI_KILLS=200 exec "$(dirname "${BASH_SOURCE[0]}")/test.sh" -R '^test_failures'
