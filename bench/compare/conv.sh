#!/usr/bin/env bash
# Times forward and backward of the layers of bench_conv in PyTorch (one process), DTensor (two ranks) and JAX
# (two devices). Prints one line per layer with milliseconds. A missing peer is left out. See README.md beside it.
#   PYTHON=~/torch/bin/python JAX_PYTHON=~/jax/bin/python bench/compare/conv.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
jax_python=${JAX_PYTHON:-$python}

report() { # name, command…
  local name=$1 layer result
  shift
  "$@" | while read -r layer result; do printf '%-16s %-9s %s\n' "$layer" "$name" "$result"; done
}

if "$python" -c 'import torch' 2>/dev/null; then
  report PyTorch "$python" "$here/conv_pytorch.py" --threads 2
  report DTensor "$python" "$here/conv_pytorch.py" --ranks 2
else
  echo "conv.sh: $python has no PyTorch; see $here/README.md, set PYTHON" >&2
fi
if "$jax_python" -c 'import jax' 2>/dev/null; then
  report JAX "$jax_python" "$here/conv_jax.py"
else
  echo "conv.sh: $jax_python has no JAX; see $here/README.md, set JAX_PYTHON" >&2
fi
