#!/usr/bin/env bash
# All set-up, then the exhaustive tests, which take hours: every test on every rank count in Release and under both
# sanitizers, everything compiled for CUDA without spills, eight times as many random cases from a new seed, 200 kills
# and 100 stops, 1,000 factorisations in random orders, each reader of files fuzzed for ten minutes, and the deliberate
# faults of unit_tests/mutation, none of which may survive. The trials of host become the figures of docs/guarantees.md.
#   scripts/test_nightly.sh [host] [host-debug] [host-tsan] [demo] [cuda] [fuzz] [mutations]   (without: all seven)
#   scripts/test_nightly.sh guarantees      of host, only the tests whose trials become these figures
# mutations keeps its build and its results in build/nightly-mutations.
# Prints the seed; ALONI_FUZZ_SEED=… repeats a run.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
scripts/setup.sh || exit 1
export ALONI_NIGHTLY=1 ALONI_FUZZ_SEED="${ALONI_FUZZ_SEED:-$(date +%s)}"
export ALONI_KILLS=200 ALONI_STOPS=100 ALONI_EXCHANGES=1000 ALONI_FACTORISATIONS=1000 ALONI_STEPS=100
echo "nightly: seed $ALONI_FUZZ_SEED"
(($#)) || set -- host host-debug host-tsan demo cuda fuzz mutations

# The deliberate faults take hours. An interrupted run goes on if commit and changes of the tree are still the same.
mutations() {
  local folder=build/nightly-mutations state status
  state=$({ git rev-parse HEAD && git diff HEAD; } | sha256sum)
  if [[ $(cat "$folder/state" 2>/dev/null) != "$state" ]]; then
    rm -rf "$folder" && mkdir -p "$folder" && echo "$state" >"$folder/state" || return 1
  fi
  env -u ALONI_NIGHTLY unit_tests/mutation/mutate.py --build "$folder/tree" --json "$folder/results.json" --resume \
    -- -D aloni_CXX_ARCH=native
  status=$?
  ((status > 128)) || rm -f "$folder/state" # not interrupted: the next run begins with the first fault
  return $status
}

# Its build has activations of float alone, and must say so.
demo() {
  local refused
  scripts/demo.sh --epochs 1 || return 1
  refused=$(build/demo/bin/aloni train --model lenet5 --data synthetic --precision bfloat16 2>&1)
  (($? == 2)) && [[ $refused == *aloni_ACTIVATIONS* ]] && return
  echo "nightly: the demo's command does not refuse bfloat16: $refused"
  return 1
}

# The inputs that reach new code stay in build/nightly-fuzz/kept, where the next run begins. A find stays beside them.
fuzz() {
  local folder=$root/build/nightly-fuzz names
  cmake --preset host-debug -B "$folder" -D aloni_CXX_ARCH=native -D aloni_FUZZ_COVERAGE=ON -D aloni_ENABLE_HDF5=ON &&
    cmake --build "$folder" --target fuzz_readers && mkdir -p "$folder/kept" && cd "$folder" || return 1
  cp -r "$root"/unit_tests/fuzz/corpus/. kept/
  names=$(bin/fuzz_readers --names) || return 1
  xargs -P "$(nproc)" -I NAME bin/fuzz_readers --seconds "${ALONI_FUZZ_READER_SECONDS:-600}" \
    --seed "$ALONI_FUZZ_SEED" --corpus kept --keep kept NAME <<<"$names"
}

failed=() records=$root/build/nightly-guarantees
rm -rf "$records"
for part in "$@"; do
  echo "== $part"
  case $part in
    host | host-debug | host-tsan | guarantees)
      preset=$part only=()
      if [[ $part == guarantees ]]; then
        preset=host only=(-R "$(scripts/guarantees.py --tests)")
      fi
      folder=build/nightly-$preset
      unset ALONI_GUARANTEES
      [[ $preset == host ]] && export ALONI_GUARANTEES=$records # sanitizers change times
      # Each file compiled alone, without precompiled headers: missing includes are errors, and no warning is off.
      cmake --preset "$preset" -B "$folder" -D aloni_CXX_ARCH=native -D aloni_NIGHTLY_TESTS=ON \
        -D CMAKE_UNITY_BUILD=OFF -D aloni_ENABLE_PRECOMPILED_HEADERS=OFF &&
        cmake --build "$folder" &&
        ctest --test-dir "$folder" --output-on-failure -j 4 "${only[@]}" || failed+=("$part")
      ;;
    demo) (demo) || failed+=(demo) ;;
    cuda) # compiled and linked only; then again the files of docs/device_kernels.md, for their spills
      command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
      if command -v nvcc >/dev/null; then
        cmake/bootstrap --variant cuda &&
          cmake --preset cuda -B build/nightly-cuda -D CMAKE_EXPORT_COMPILE_COMMANDS=ON &&
          cmake --build build/nightly-cuda && scripts/ptxas_table.py build/nightly-cuda --check || failed+=(cuda)
      else
        echo "nightly: cuda left out, this machine has no nvcc"
      fi
      ;;
    fuzz) (fuzz) || failed+=(fuzz) ;;
    mutations) mutations || failed+=("$part") ;;
    *)
      echo "test_nightly: $part is none of host, host-debug, host-tsan, guarantees, demo, cuda, fuzz, mutations" >&2
      exit 2
      ;;
  esac
done
if [[ -d $records ]]; then
  scripts/guarantees.py "$records" || failed+=(guarantees)
fi
((${#failed[@]} == 0)) && echo "nightly: passed" && exit
echo "nightly: failed: ${failed[*]}"
exit 1
