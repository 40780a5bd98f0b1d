#!/usr/bin/env bash
# All set-up, then the exhaustive tests, which take hours: every test on every rank count in Release and under both
# sanitizers, eight times as many random cases from a new seed, 200 kills and 100 stops, and the deliberate faults of
# unit_tests/mutation, none of which may survive. The trials of host become the figures of docs/guarantees.md.
#   scripts/test_nightly.sh [host] [host-debug] [host-tsan] [mutations]   (without arguments: all four)
# Prints the seed; ALONI_FUZZ_SEED=… repeats a run.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
scripts/setup.sh || exit 1
export ALONI_NIGHTLY=1 ALONI_FUZZ_SEED="${ALONI_FUZZ_SEED:-$(date +%s)}" ALONI_KILLS=200 ALONI_STOPS=100 ALONI_EXCHANGES=1000
echo "nightly: seed $ALONI_FUZZ_SEED"
(($#)) || set -- host host-debug host-tsan mutations
failed=() records=$root/build/nightly-guarantees
rm -rf "$records"
for part in "$@"; do
  echo "== $part"
  case $part in
    host | host-debug | host-tsan)
      folder=build/nightly-$part
      unset ALONI_GUARANTEES
      [[ $part == host ]] && export ALONI_GUARANTEES=$records # sanitizers change times
      cmake --preset "$part" -B "$folder" -D aloni_CXX_ARCH=native -D aloni_TEST_ALL_RANKS=ON && cmake --build "$folder" &&
        ctest --test-dir "$folder" --output-on-failure -j 4 || failed+=("$part")
      ;;
    mutations) env -u ALONI_NIGHTLY unit_tests/mutation/mutate.py -- -D aloni_CXX_ARCH=native || failed+=("$part") ;;
    *) echo "test_nightly: $part is none of host, host-debug, host-tsan, mutations" >&2 && exit 2 ;;
  esac
done
if [[ -d $records ]]; then
  scripts/guarantees.py "$records" || failed+=(guarantees)
fi
((${#failed[@]} == 0)) && echo "nightly: passed" && exit
echo "nightly: failed: ${failed[*]}"
exit 1
