#!/usr/bin/env bash
# Does all set-up, then runs every test of the preset `cuda` on this machine's GPU.
# Arguments go to ctest: scripts/test_gpu.sh -R halo
# Needs a GPU with its driver, and the CUDA toolkit (nvcc 12 or newer).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
for program in nvidia-smi nvcc; do
  command -v "$program" >/dev/null || { echo "test_gpu: $program is not on PATH" >&2; exit 1; }
done
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '. ')
[[ $architecture =~ ^[0-9]+$ ]] || { echo "test_gpu: nvidia-smi lists no GPU" >&2; exit 1; }
"$root/scripts/setup.sh" --variant cuda --cuda-arch "$architecture"
cd "$root"
cmake --preset cuda -D aloni_CXX_ARCH=native -D CMAKE_CUDA_ARCHITECTURES="$architecture"
cmake --build --preset cuda
ctest --preset cuda "$@"
