#!/usr/bin/env bash
# All set-up, then every test of the host preset. Arguments go to ctest: scripts/test.sh -R halo
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/setup.sh"
cd "$root"
# Built and run on this machine, so compiled for it.
cmake --preset host -D aloni_CXX_ARCH=native
cmake --build --preset host
ctest --preset host "$@"
