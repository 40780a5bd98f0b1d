#!/usr/bin/env bash
# Acceptance on a machine with a GPU: unit tests on 1, 2 and 4 ranks, compute-sanitizer, benchmarks with their bars, and
# one table of all results. Nothing is downloaded.
#   scripts/gpu_acceptance.sh                              from this clone: builds the preset cuda, then runs all stages
#   scripts/gpu_acceptance.sh --from FOLDER                carried programs: FOLDER/bin and FOLDER/tests.list of a build
#   FOLDER/scripts/gpu_acceptance.sh                       a folder made by scripts/acceptance/pack
#   scripts/gpu_acceptance.sh --stage NAME [--stage …]     only these stages
#   scripts/gpu_acceptance.sh --dry-run                    lists every step with its command, and runs none
# Further options:
#   --out FOLDER        results (default build/gpu_acceptance)
#   --limit SECONDS     time of a stage, 0: none (default 0). A stage that reaches it ends with status 75, and the same
#                       command goes on with the unfinished step. A lease of a GPU may allow ten minutes a command.
#   --again             runs completed steps of the chosen stages again
#   --jobs N            that many ranks of unit tests at a time (default: the cores, at most 16)
#   --python PROGRAM    Python with PyTorch (default python3)
# Stages in order: build device tests-np1 tests-np2 tests-np4 memcheck racecheck synccheck convolution interior halo
# steps idle memory table. `build` needs a clone. `table` reads all results, so it can run on another machine.
# Each step writes OUT/STAGE/STEP.log and STEP.status: exit status and seconds. Status 77 means "not available"; the
# last line of the log tells why. Exit status: that of the table (scripts/acceptance/table.py) if `table` ran; otherwise
# 1 if a step failed.
# shellcheck disable=SC2016,SC2317 # text for other shells; functions of stages are called by name
# shellcheck disable=SC2030,SC2031 # a step in the background counts failures of its own
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
stages=(build device tests-np1 tests-np2 tests-np4 memcheck racecheck synccheck convolution interior halo steps idle
  memory table)

die() { echo "gpu_acceptance: $*" >&2 && exit 2; }

cores=$(nproc)
folder='' out=$root/build/gpu_acceptance limit=0 again='' dry='' python=python3 chosen=()
jobs=$((cores < 16 ? cores : 16))
while (($#)); do
  case $1 in
    --dry-run) dry=yes ;;
    --again) again=yes ;;
    --from | --out | --limit | --jobs | --python | --stage)
      (($# >= 2)) || die "$1 needs a value"
      case $1 in
        --from) folder=$(realpath -e -- "$2" 2>/dev/null) || die "--from $2: no such folder" ;;
        --out) out=$(realpath -m -- "$2") ;;
        --limit)
          [[ $2 =~ ^[0-9]+$ ]] || die "--limit $2: expected seconds"
          limit=$2
          ;;
        --jobs)
          [[ $2 =~ ^[1-9][0-9]*$ ]] || die "--jobs $2: expected a number above 0"
          jobs=$2
          ;;
        --python) python=$2 ;;
        --stage)
          [[ " ${stages[*]} " == *" $2 "* ]] || die "--stage $2: expected one of ${stages[*]}"
          chosen+=("$2")
          ;;
      esac
      shift
      ;;
    -h | --help) sed -n '2,/^# shellcheck/{/^# shellcheck/!s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit ;;
    *) die "unknown argument $1; --help lists all" ;;
  esac
  shift
done
[[ $folder || ! -f $root/tests.list ]] || folder=$root # a packed folder
carried=$folder
[[ $folder ]] || folder=$root/build/cuda
bin=$folder/bin mpirun=$root/scripts/mpirun
((${#chosen[@]})) || chosen=("${stages[@]}")
[[ ! $dry ]] || jobs=1 # lines of steps side by side would mix

# A packed folder brings libraries and Open MPI, which finds its parts by these variables.
[[ ! -d $folder/lib ]] || export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [[ -x $folder/mpi/bin/mpirun ]]; then
  mpi=$folder/mpi
  export MPIEXEC=${MPIEXEC:-$mpi/bin/mpirun} OPAL_PREFIX=$mpi OPAL_BINDIR=$mpi/bin OPAL_LIBDIR=$mpi/lib
  export OPAL_PKGLIBDIR=$mpi/lib/openmpi OPAL_DATADIR=$mpi/share OPAL_PKGDATADIR=$mpi/share/openmpi
  export PMIX_INSTALL_PREFIX=$mpi PMIX_MCA_mca_base_component_path=$mpi/lib/pmix
fi
# cuBLAS, cuDNN and NCCL of the Python packages beside PyTorch, where the system has none: after all other folders.
if [[ ! $dry ]] && command -v "$python" >/dev/null; then
  wheels=$("$python" -c 'import glob, sys
print(":".join(sorted(f for p in sys.path if p for f in glob.glob(p + "/nvidia/*/lib"))))' 2>/dev/null) || wheels=''
  [[ ! $wheels ]] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheels
fi

# Settings of unit_tests: several ranks share cores and the device.
export OMP_PROC_BIND=false OPENBLAS_NUM_THREADS=1 GTEST_COLOR=no
# A workspace for each stream: otherwise products of cuBLAS on two streams may differ in their bits from run to run.
export CUBLAS_WORKSPACE_CONFIG=${CUBLAS_WORKSPACE_CONFIG:-:4096:8}

# --- steps ---
failures=0 in_stage=0 stage_start=0

# step <name> <most seconds> [--needs PROGRAM] <command…>: runs a step of the current stage and keeps its status.
# Without the program it is not available.
step() {
  local name=$1 most=$2 needed='' left status start seconds
  shift 2
  [[ $1 == --needs ]] && needed=$2 && shift 2
  if [[ $dry ]]; then
    printf '%s/%s (at most %s s%s):' "$stage" "$name" "$most" "${needed:+, needs $needed}"
    printf ' %q' "$@"
    echo
    return
  fi
  local file=$out/$stage/$name
  if [[ -f $file.status && ! $again ]]; then
    read -r status _ <"$file.status"
    ((status == 0 || status == 77)) || failures=1
    return
  fi
  left=$most
  if ((limit)); then
    left=$((limit - (SECONDS - stage_start)))
    ((left > 0)) || leave_stage "$name"
    ((left < most)) || left=$most
  fi
  mkdir -p "$out/$stage" && rm -f "$file.status" "$file.json"
  echo "$stage/$name" >&2
  start=$SECONDS
  if [[ $needed ]] && ! command -v "$needed" >/dev/null; then
    echo "$needed is not installed" >"$file.log"
    status=77
  else
    timeout --kill-after=10 "$left" "$@" >"$file.log" 2>&1 </dev/null
    status=$?
  fi
  seconds=$((SECONDS - start))
  if ((status == 124 || status == 137)) && ((left < most && in_stage > 0)); then
    leave_stage "$name" # ended by the stage's limit, not by its own; as the first step of a stage it would never end
  fi
  in_stage=$((in_stage + 1))
  echo "$status $seconds" >"$file.status.new" && mv "$file.status.new" "$file.status"
  ((status == 0 || status == 77)) && return
  failures=1
  echo "gpu_acceptance: $stage/$name failed with status $status; the end of $file.log:" >&2
  tail -n 5 "$file.log" >&2
}

leave_stage() {
  echo "gpu_acceptance: $stage reached --limit $limit at step $1; run the same command again to go on" >&2
  exit 75
}

# unavailable <name> <why>: a step that this version cannot run.
unavailable() { step "$1" 10 "$root/scripts/acceptance/unavailable" "$2"; }

# listed <ranks>: "name seconds program arguments…" of the tests for so many ranks, one per line.
# A line of tests.list is "name ranks seconds program arguments…".
listed() {
  awk -v ranks="$1" '$2 == ranks { $2 = ""; print }' "$folder/tests.list"
}

stage_build() {
  if [[ $carried ]]; then
    step programs 60 bash -c 'for p in $(awk "{ print \$4 }" "$0/tests.list" | sort -u) \
      bin/{aloni,bench_conv,bench_halo,bench_local_conv}; do
      [[ -x $0/$p ]] || { echo "$0/$p is missing: build it before you carry the folder"; exit 1; }; done' "$folder"
    return
  fi
  step compiled 36000 bash -c '
    set -e
    command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
    command -v nvcc >/dev/null || { echo "nvcc is not on PATH"; exit 1; }
    architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d ". ")
    [[ $architecture =~ ^[0-9]+$ ]] || { echo "nvidia-smi lists no GPU"; exit 1; }
    "$0/scripts/setup.sh" --variant cuda --cuda-arch "$architecture"
    cd "$0"
    cmake --preset cuda -D aloni_CXX_ARCH=native -D CMAKE_CUDA_ARCHITECTURES="$architecture"
    cmake --build --preset cuda' "$root"
}

stage_device() {
  step nvidia-smi 60 --needs nvidia-smi nvidia-smi -q -i 0
  step info 120 "$mpirun" -n 1 "$bin/aloni" info --json "$out/device/info.json"
}

# collect: waits for one of the running steps in the background.
collect() {
  wait -n
  local status=$?
  ((status == 0)) || failures=1
  if ((status == 75)); then unfinished=yes; else in_stage=$((in_stage + 1)); fi
  running=$((running - 1))
}

tests() { # <ranks>
  local lines line words unfinished='' running=0 most=$((jobs > $1 ? jobs / $1 : 1))
  mapfile -t lines < <(listed "$1")
  for line in "${lines[@]}"; do
    read -r -a words <<<"$line"
    ((running < most)) || collect
    [[ ! $unfinished ]] || break
    (
      failures=0
      step "${words[0]}" "${words[1]}" env OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1 "$mpirun" -n "$1" \
        "$folder/${words[2]}" "${words[@]:3}"
      exit "$failures"
    ) &
    running=$((running + 1))
  done
  while ((running)); do collect; done
  [[ ! $unfinished ]] || exit 75
}
stage_tests-np1() { tests 1; }
stage_tests-np2() { tests 2; }
stage_tests-np4() { tests 4; }

# compute-sanitizer slows kernels ten to a hundred times. This list has each kind of kernel once: packing and unpacking,
# convolution, normalisation, pooling, resampling, loss, update, whole steps, and a factorisation.
sanitized=(test_local_convolution test_local_pooling test_local_resampling test_local_batch_norm
  test_local_group_norm test_local_layer_norm test_local_loss test_local_pointwise test_exchange test_redistribution
  test_update test_recomputed_steps test_offloaded_steps test_device_cholesky)

sanitize() { # <tool> <options of it…>
  local tool=$1 ranks name seconds command words
  shift
  for ranks in 1 2; do
    while read -r name seconds command; do
      [[ " ${sanitized[*]} " == *" ${name%.np*} "* ]] || continue
      read -r -a words <<<"$command"
      step "$name" 540 --needs compute-sanitizer env OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1 \
        "$mpirun" -n "$ranks" compute-sanitizer --tool "$tool" --error-exitcode 99 --target-processes all "$@" \
        "$folder/${words[0]}" "${words[@]:1}"
    done < <(listed "$ranks")
  done
}
stage_memcheck() { sanitize memcheck; }
stage_racecheck() { sanitize racecheck --racecheck-report all; }
stage_synccheck() { sanitize synccheck; }

# benchmark <name> <most seconds> <ranks> <program> <filter>
benchmark() {
  step "$1" "$2" "$mpirun" -n "$3" "$bin/$4" --benchmark_filter="$5" --benchmark_out_format=json \
    --benchmark_out="$out/$stage/$1.json"
}

stage_convolution() {
  benchmark float 540 1 bench_local_conv '^(limit|local_conv)/.*/(cudnn|automatic)/iterations'
}
stage_interior() { benchmark mesh_conv1_1_2048 300 1 bench_conv '^interior/mesh_conv1_1_2048/'; }
stage_halo() { benchmark faces 300 2 bench_halo '^(halo|copy)/face-(depth|height|width)-large(/shared)?/iterations'; }

# A training step of a model on made-up data: <name> <most seconds> <arguments of aloni train…>
trained() {
  local name=$1 most=$2
  shift 2
  step "$name" "$most" "$mpirun" -n 1 "$bin/aloni" train --data synthetic --strategy n1 --steps 30 --progress none \
    --json "$out/$stage/$name.json" "$@"
}

# The same step in PyTorch, compiled: <name> <most seconds> <arguments of steps_pytorch.py…>
in_pytorch() {
  local name=$1 most=$2
  shift 2
  step "$name" "$most" --needs "$python" "$python" "$root/bench/compare/steps_pytorch.py" --device cuda --compile \
    --ranks 1 --steps 30 --warmup 10 --json "$out/$stage/$name.json" "$@"
}

stage_steps() {
  local type
  for type in float bfloat16; do
    trained "mesh1k-$type" 540 --model mesh1k --input 1024x1024x18 --batch 4 --precision "$type"
    in_pytorch "mesh1k-$type-pytorch" 540 --model mesh1k --input 1024x1024x18 --batch 4 --precision "$type"
    trained "resnet50-$type" 540 --model resnet50 --input 224x224x3 --classes 10 --batch 64 --precision "$type"
    in_pytorch "resnet50-$type-pytorch" 540 --model resnet50 --input 224x224x3 --batch 64 --precision "$type"
  done
  trained mesh1k-bfloat16-recorded 540 --model mesh1k --input 1024x1024x18 --batch 4 --precision bfloat16 --record
  trained resnet50-bfloat16-recorded 540 --model resnet50 --input 224x224x3 --classes 10 --batch 64 \
    --precision bfloat16 --record
}

stage_idle() {
  local file=$out/idle/mesh1k library=$bin/libaloni_device_activity.so
  if [[ ! $dry && ! -f $library ]]; then
    unavailable profile "$library does not exist: the toolkit of the build has no CUPTI"
    unavailable mesh1k "$library does not exist: the toolkit of the build has no CUPTI"
    return
  fi
  step profile 540 env CUDA_INJECTION64_PATH="$library" ALONI_DEVICE_ACTIVITY="$file.activity" \
    "$mpirun" -n 1 "$bin/aloni" train --data synthetic --strategy n1 --steps 30 --progress none \
    --model mesh1k --input 1024x1024x18 --batch 4
  step mesh1k 120 python3 "$root/scripts/acceptance/device_idle.py" "$file.activity" --json "$file.json"
}

stage_memory() {
  trained mesh2k 540 --model mesh2k --input 2048x2048x18 --batch 1
  trained mesh2k-6G 540 --model mesh2k --input 2048x2048x18 --batch 1 --recompute auto --memory-limit 6G
  trained mesh2k-6G-offloaded 540 --model mesh2k --input 2048x2048x18 --batch 1 --offload auto --memory-limit 6G
}

if [[ $dry ]]; then
  for stage in "${chosen[@]}"; do
    if [[ $stage == table ]]; then
      echo "table: python3 $root/scripts/acceptance/table.py $out"
    elif [[ $stage == tests-np* || $stage == *check ]] && [[ ! -f $folder/tests.list ]]; then
      echo "$stage: the tests in $folder/tests.list, which stage build writes"
    else
      "stage_$stage"
    fi
  done
  exit
fi

# Results of other programs must not be mixed with those of this one.
mkdir -p "$out" || exit 2
programs() { find "$bin" -maxdepth 1 -type f -executable -print0 2>/dev/null | sort -z | xargs -0r cksum; }
identity() { programs | cut -d' ' -f1,2 | cksum; }
claim() {
  [[ $stage == table || $stage == build ]] && return
  local here
  here=$(identity)
  [[ -f $out/identity ]] || echo "$here" >"$out/identity"
  [[ $(<"$out/identity") == "$here" ]] ||
    die "$out has results of other programs than those in $bin; give another --out, or remove the folder"
}

table_status=''
for stage in "${chosen[@]}"; do
  claim
  if [[ $stage == tests-np* || $stage == *check ]] && [[ ! -s $folder/tests.list ]]; then
    die "$folder/tests.list does not exist; stage build writes it, or the configuration of the preset cuda"
  fi
  if [[ $stage == table ]]; then
    # What a whole run consists of, so that the table shows what is missing. Without programs, what has been run.
    expected=$("$0" --dry-run ${carried:+--from "$carried"} --out "$out" | sed -n 's/^\([^ ]*\/[^ ]*\) (at most.*/\1/p')
    if [[ -f $folder/tests.list ]]; then echo "$expected" >"$out/expected"; fi
    python3 "$root/scripts/acceptance/table.py" "$out"
    table_status=$?
    continue
  fi
  echo "== $stage" >&2
  in_stage=0 stage_start=$SECONDS
  "stage_$stage"
  [[ $stage != build ]] || ((failures == 0)) || exit 1 # the other stages need its programs
done
exit "${table_status:-$failures}"
