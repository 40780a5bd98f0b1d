#!/usr/bin/env bash
# All set-up, then the tests that take more than CI has time for: more kills of running ranks. About ten minutes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/setup.sh"
cd "$root"
cmake --preset host -D aloni_CXX_ARCH=native
cmake --build --preset host
ALONI_KILLS=200 ctest --preset host -R '^test_failures'
