#!/bin/bash
# A training under Slurm that survives the end of its time: a checkpoint two minutes before it, then the next job.
#   sbatch --nodes=2 scripts/cluster/slurm.sh --model resnet50 --data DIR --epochs 90
# Arguments go to `aloni train`. Set ALONI to the command if it is not on PATH, and ALONI_SOURCE to the clone if the job
# starts elsewhere. The folder RUN (default: run-<job>) holds configuration, metrics and checkpoints; the same RUN
# continues it.
# Adapt the lines below: devices and cores of a node.
#SBATCH --job-name=aloni
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail
here=${ALONI_SOURCE:-$SLURM_SUBMIT_DIR}
aloni=${ALONI:-aloni}
run=${RUN:-run-$SLURM_JOB_ID} # a requeued job keeps its number

# --signal without B: sends SIGUSR1 to the ranks, not to this script. Ranks write a checkpoint and exit with code 3.
# --gpu-bind=none: each rank sees all devices of its node, which copies between devices need.
# --cpu-bind=none: bind chooses cores near the device. --kill-on-bad-exit: a failed rank ends the others.
srun --mpi=pmix --gpu-bind=none --cpu-bind=none --kill-on-bad-exit=1 \
  "$here/scripts/cluster/bind" "$aloni" train "$@" --run "$run" --checkpoint-every 900s --resume --progress plain
status=$?
((status != 3)) || scontrol requeue "$SLURM_JOB_ID"
exit "$status"
