#!/usr/bin/env bash
# Trains ResNet-18 on CIFAR-10 by one recipe in aloni and in PyTorch, and compares their test accuracies over seeds.
# SGD with momentum 0.9 and weight decay 5e-4, mini-batches of 64, learning rate 0.05 falling linearly to 0, random
# shifts of up to 4 pixels, random mirroring. Fails if the mean accuracies differ by more than TOLERANCE.
#   PYTHON=~/peers/bin/python bench/compare/accuracy.sh DIR
# DIR has CIFAR-10 in binary form, or a part of it: *.bin or *.bin.gz. Files with "test" in their names are the test
# set.
# EPOCHS (8), SEEDS ("1 2 3"), PRECISION of aloni (float), RESULTS: a folder that keeps the result of each training, and
# the state of an interrupted one. A later run with this folder goes on from there. One training takes 15 to 35 minutes
# on two cores.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
aloni=${ALONI:-$root/build/host/bin/aloni}
python=${PYTHON:-python3}
epochs=${EPOCHS:-8}
seeds=${SEEDS:-1 2 3}
precision=${PRECISION:-float}
(($# == 1)) || { echo "accuracy.sh: expected one folder with CIFAR-10 in binary form" >&2; exit 2; }
[[ -x $aloni ]] || { echo "accuracy.sh: no program $aloni; build target aloni_command or set ALONI" >&2; exit 1; }
"$python" -c 'import torch, numpy' ||
  { echo "accuracy.sh: $python has no PyTorch; see $here/README.md, set PYTHON" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/data"
results=${RESULTS:-$work}
mkdir -p "$results"
number=0
for file in "$1"/*.bin "$1"/*.bin.gz; do
  [[ -f $file ]] || continue
  if [[ $(basename "$file") == *test* ]]; then
    name=test_batch.bin
  else
    name=data_batch_$((++number)).bin
  fi
  if [[ $file == *.gz ]]; then gzip -cd "$file"; else cat "$file"; fi >>"$work/data/$name"
done
[[ $number -gt 0 && -f $work/data/test_batch.bin ]] ||
  { echo "accuracy.sh: $1 has no *.bin of CIFAR-10, or none with test in its name" >&2; exit 1; }
export OMP_PROC_BIND=false OPENBLAS_NUM_THREADS=1
for seed in $seeds; do
  ours=$results/aloni.resnet18.$precision.$epochs.$seed.json theirs=$results/pytorch.resnet18.$epochs.$seed.json
  if [[ ! -s $ours ]]; then
    state=${ours%.json}.state
    OMP_NUM_THREADS=1 "$root/scripts/mpirun" -n 2 "$aloni" train --model resnet18 --data "$work/data" --strategy n2 \
      --precision "$precision" --epochs "$epochs" --seed "$seed" --shift 4 --flip --weight-decay 5e-4 \
      --checkpoint "$state" --checkpoint-every 300s --keep 1 --resume \
      --progress none --json "$work/ours.json" >/dev/null
    mv "$work/ours.json" "$ours"
    rm -rf "$state"
  fi
  if [[ ! -s $theirs ]]; then
    state=${theirs%.json}.state
    "$python" "$here/accuracy_pytorch.py" --data "$work/data" --epochs "$epochs" --seed "$seed" --state "$state" \
      >"$work/theirs.json"
    mv "$work/theirs.json" "$theirs"
    rm -f "$state"
  fi
  python3 - "$ours" "$theirs" "$work/accuracies" "$seed" <<'PYTHON'
import json
import sys
our_file, their_file, accuracies, seed = sys.argv[1:]
ours = json.load(open(our_file))["epochs"][-1]["test_accuracy"]
theirs = json.load(open(their_file))["accuracies"][-1]
print(f"seed {seed}: aloni {100 * ours:.1f} %, PyTorch {100 * theirs:.1f} %", flush=True)
print(ours, theirs, file=open(accuracies, "a"))
PYTHON
done
python3 - "$work/accuracies" "${TOLERANCE:-1.5}" <<'PYTHON'
import sys
pairs = [list(map(float, line.split())) for line in open(sys.argv[1])]
ours, theirs = (100 * sum(column) / len(pairs) for column in zip(*pairs))
print(f"mean: aloni {ours:.2f} %, PyTorch {theirs:.2f} %, difference {ours - theirs:+.2f} points")
sys.exit(abs(ours - theirs) > float(sys.argv[2]))
PYTHON
