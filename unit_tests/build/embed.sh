#!/usr/bin/env bash
# Builds aloni inside another project with every backend OFF: by FetchContent, by add_subdirectory, then with its tests.
#
# The library compiles once, in the cheapest way: a dozen files as one, without optimisation. Both configurations share
# one build folder, so their compile commands must not differ. Tests are hardly compiled: relink_tests.py links the
# objects of the main build with this library.
# embed.sh <source> <scratch> <compiler> <Kokkos_DIR> <main build>
set -euo pipefail
source=$1 scratch=$2 compiler=$3 kokkos=$4 main=$5
rm -rf "$scratch"
mkdir -p "$scratch"
export OMP_NUM_THREADS=1
fail() {
  echo "$*"
  exit 1
}

# Kernels set -O3 for their own files, which takes longer than all the rest.
cat >"$scratch.compile" <<'EOF'
#!/usr/bin/env bash
exec "${@/#-O3/-O0}"
EOF
chmod +x "$scratch.compile"
# The checks of the main build: classes must have the same members in both.
checks=$(sed -nE 's/^aloni_ENABLE_DEBUG_CHECKS:BOOL=//p' "$main/CMakeCache.txt")

configure() {
  cmake -G Ninja -S "$source/unit_tests/build/foreign" -B "$scratch" \
    -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG="-O0 -g0" -D aloni_ENABLE_PRECOMPILED_HEADERS=ON \
    -D CMAKE_CXX_COMPILER_LAUNCHER="${CMAKE_CXX_COMPILER_LAUNCHER:+$CMAKE_CXX_COMPILER_LAUNCHER;}$scratch.compile" \
    -D CMAKE_UNITY_BUILD=ON -D CMAKE_UNITY_BUILD_BATCH_SIZE=12 \
    -D CMAKE_CXX_COMPILER="$compiler" -D Kokkos_DIR="$kokkos" -D ALONI_SOURCE="$source" \
    -D PROGRAM="$source/examples/first_steps/main.cpp" -D aloni_ENABLE_DEBUG_CHECKS="${checks:-OFF}" \
    -D aloni_ENABLE_CUDA=OFF -D aloni_ENABLE_NCCL=OFF -D aloni_ENABLE_UCX=OFF \
    -D aloni_ENABLE_ONEDNN=OFF -D aloni_ENABLE_KOKKOSKERNELS=OFF -D aloni_ENABLE_LAPACK=OFF \
    -D aloni_ENABLE_ZLIB=OFF "$@"
}

echo "-- FetchContent"
configure -D MODE=fetchcontent -D FETCHCONTENT_SOURCE_DIR_ALONI="$source"
cmake --build "$scratch" --target program
"$source/scripts/mpirun" -n 2 "$scratch/program"
config=$(find "$scratch" -path '*aloni/core/config.hpp' | head -n 1)
[[ $(grep -c 'bool has_' "$config") -ge 5 ]] || fail "$config says nothing of backends"
if grep 'bool has_.*= true' "$config" | grep -v has_debug_checks; then fail "a backend is ON"; fi

echo "-- add_subdirectory"
configure -D MODE=subdirectory
compiled=$(ninja -C "$scratch" -n program | grep -c 'Building CXX object aloni/.*nn' || true)
cmake --build "$scratch" --target program
"$source/scripts/mpirun" -n 2 "$scratch/program"
((!compiled)) || fail "FetchContent and add_subdirectory use different compile commands for the library"

echo "-- tests with every backend OFF"
if (cd "$source" && grep -rl --include='*.hpp' 'core/config.hpp' core views tasks halo nn model); then
  fail "the headers above include core/config.hpp: tests depend on the options unseen"
fi
# Backends serve nn; the other folders' tests run with the same objects at night.
only='^test_(nn|nn_pure|local)$'
[[ -z ${ALONI_NIGHTLY:-} ]] || only=
python3 "$source/unit_tests/build/relink_tests.py" --main "$main" --libraries "$scratch/aloni" \
  --scratch "$scratch/tests" --only "$only"
