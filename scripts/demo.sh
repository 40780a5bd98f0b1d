#!/usr/bin/env bash
# All set-up, then LeNet-5 learns handwritten digits on two ranks, each holding half the rows of every image.
# Arguments are added to those of `aloni train`: scripts/demo.sh --epochs 2
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/setup.sh"
cd "$root"
echo "demo: building the aloni command" >&2
log=$(mktemp)
# Built and run on this machine, so compiled for it.
if ! { cmake --preset host -D aloni_CXX_ARCH=native && cmake --build --preset host --target aloni_command; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
rm -f "$log"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # the layers are too small for more
# The ranks' stderr is the launcher's pipe: they can't see by themselves that somebody is watching.
progress=plain
[[ -t 2 ]] && progress=line
exec scripts/mpirun -n 2 build/host/bin/aloni train --model lenet5 --data examples/data/mnist_subset \
  --epochs 5 --batch 64 --strategy h2 --progress $progress "$@"
