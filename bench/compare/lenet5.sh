#!/usr/bin/env bash
# Times one training step of LeNet-5 on two ranks of one thread, split by sample: aloni and PyTorch in turn, each
# process on its own core. Prints medians over turns and their ratio. See README.md beside this file.
#   PYTHON=~/peers/bin/python bench/compare/lenet5.sh [BATCH…]        default: 64 1024
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
aloni=${ALONI:-$root/build/host/bin/aloni}
python=${PYTHON:-python3}
turns=${TURNS:-5}
ranks=2
(($#)) || set -- 64 1024

[[ -x $aloni ]] || { echo "lenet5.sh: no program $aloni; build target aloni_command or set ALONI" >&2; exit 1; }
"$python" -c 'import torch' ||
  { echo "lenet5.sh: $python has no PyTorch; see $here/README.md, set PYTHON" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(($(env -u OMP_NUM_THREADS nproc) >= ranks)) ||
  echo "lenet5.sh: fewer cores than $ranks ranks: ranks share cores, and times mean little" >&2
export OMP_NUM_THREADS=1 OMP_PROC_BIND=false OPENBLAS_NUM_THREADS=1

step_of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["step_seconds"])' "$1"; }

for batch in "$@"; do
  steps=$((batch < 512 ? 500 : 100))
  : >"$work/aloni.times" && : >"$work/pytorch.times"
  for ((turn = 0; turn < turns; ++turn)); do
    "$root/scripts/mpirun" -n $ranks "$here/pinned.sh" "$aloni" train --model lenet5 \
      --data "$root/examples/data/mnist_subset" --batch "$batch" --steps "$steps" --strategy n$ranks --shift 0 \
      --progress none --json "$work/aloni.json" >/dev/null
    step_of "$work/aloni.json" >>"$work/aloni.times"
    "$python" "$here/steps_pytorch.py" --ranks $ranks --batch "$batch" --steps "$steps" >"$work/pytorch.json"
    step_of "$work/pytorch.json" >>"$work/pytorch.times"
  done
  python3 - "$batch" "$work/aloni.times" "$work/pytorch.times" <<'PYTHON'
import statistics
import sys
batch, *files = sys.argv[1:]
times = [[1e3 * float(line) for line in open(file)] for file in files]
aloni, pytorch = map(statistics.median, times)
print(f"batch {batch}: aloni {aloni:.3f} ms, PyTorch {pytorch:.3f} ms, ratio {aloni / pytorch:.3f} (runs: "
      + ", ".join(f"{name} {min(t):.3f} to {max(t):.3f}" for name, t in zip(("aloni", "PyTorch"), times)) + ")")
PYTHON
done
