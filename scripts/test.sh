#!/usr/bin/env bash
# All set-up, then every test of the host preset. Arguments go to ctest: scripts/test.sh -R halo
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/setup.sh"
cd "$root"
# The plans of cuDNN are tested where its headers are. They need no device.
cudnn=OFF
for folder in /usr/local/cuda/include /usr/local/include /usr/include; do
  [[ -f $folder/cudnn_graph.h && -f $folder/cuda_runtime_api.h ]] && cudnn=ON
done
# Built and run on this machine, so compiled for it.
cmake --preset host -D aloni_CXX_ARCH=native -D aloni_ENABLE_CUDNN=$cudnn
cmake --build --preset host
ctest --preset host "$@"
