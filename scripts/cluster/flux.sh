#!/bin/bash
# A training under Flux that survives the end of its time: a checkpoint two minutes before it.
#   RUN=run1 flux batch -N 2 scripts/cluster/flux.sh --model resnet50 --data DIR --epochs 90
# Arguments go to `aloni train`. Set ALONI to the command if it is not on PATH, and ALONI_SOURCE to the clone if the job
# starts elsewhere. The folder RUN holds configuration, metrics and checkpoints. The same command with the same RUN
# continues it; the status is 3 if it is not at its end.
# Adapt the lines below, and DEVICES and MINUTES: devices of a node, and the time of the training within the job.
# flux: --job-name=aloni
# flux: -N 1
# flux: --exclusive
# flux: -t 240m
set -uo pipefail
here=${ALONI_SOURCE:-$PWD}
aloni=${ALONI:-aloni}
run=${RUN:?name the folder of the run}
nodes=$(flux resource list -n -s all -o '{nnodes}' | head -1)

# --signal: SIGUSR1 goes to the ranks, which write a checkpoint and exit with code 3.
# cpu-affinity=off, gpu-affinity=off: bind chooses cores near the device, and each rank sees all devices of its node.
exec flux run -N "$nodes" -n $((nodes * ${DEVICES:-8})) --exclusive -t "${MINUTES:-235}m" --signal=SIGUSR1@120s \
  -o cpu-affinity=off -o gpu-affinity=off \
  "$here/scripts/cluster/bind" "$aloni" train "$@" --run "$run" --checkpoint-every 900s --resume --progress plain
