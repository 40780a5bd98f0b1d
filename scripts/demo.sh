#!/usr/bin/env bash
# Does all set-up. Then LeNet-5 learns handwritten digits on two ranks; each rank holds half the rows of every image.
# Further arguments go to `aloni train`: scripts/demo.sh --epochs 2
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/setup.sh"
cd "$root"
echo "demo: building the aloni command" >&2
log=$(mktemp)
# The program runs on this machine only, so it is compiled for its processor.
build() { cmake --preset demo -D aloni_CXX_ARCH=native && cmake --build build/demo --target aloni_command; }
if ! build >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
rm -f "$log"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # the layers are too small for more
# The ranks' stderr is the launcher's pipe, so they cannot detect a terminal themselves.
progress=plain
[[ -t 2 ]] && progress=line
exec scripts/mpirun -n 2 build/demo/bin/aloni train --model lenet5 --data examples/data/mnist_subset \
  --epochs 5 --batch 64 --strategy h2 --progress $progress "$@"
