#!/usr/bin/env bash
# Builds aloni inside another project, every option OFF: by FetchContent, by add_subdirectory, then with a few tests.
# The other project asks for a unity build of a dozen files each.
# All three share one build folder, so that the library compiles once; their compile commands must not differ.
# embed.sh <source> <scratch> <compiler> <Kokkos_DIR>
set -euo pipefail
source=$1 scratch=$2 compiler=$3 kokkos=$4
rm -rf "$scratch"
mkdir -p "$scratch"
export OMP_NUM_THREADS=1

configure() {
  cmake -G Ninja -S "$source/unit_tests/build/foreign" -B "$scratch" \
    -D CMAKE_BUILD_TYPE=Debug -D CMAKE_CXX_FLAGS_DEBUG="-O0 -g0" -D aloni_ENABLE_PRECOMPILED_HEADERS=ON \
    -D CMAKE_UNITY_BUILD=ON -D CMAKE_UNITY_BUILD_BATCH_SIZE=12 \
    -D CMAKE_CXX_COMPILER="$compiler" -D Kokkos_DIR="$kokkos" -D ALONI_SOURCE="$source" \
    -D PROGRAM="$source/examples/first_steps/main.cpp" \
    -D aloni_ENABLE_ONEDNN=OFF -D aloni_ENABLE_KOKKOSKERNELS=OFF -D aloni_ENABLE_ZLIB=OFF "$@"
}

echo "-- FetchContent"
configure -D MODE=fetchcontent -D FETCHCONTENT_SOURCE_DIR_ALONI="$source"
cmake --build "$scratch" --target program
"$source/scripts/mpirun" -n 2 "$scratch/program"

echo "-- add_subdirectory"
configure -D MODE=subdirectory
compiled=$(ninja -C "$scratch" -n program | grep -c 'Building CXX object aloni/.*nn' || true)
cmake --build "$scratch" --target program
"$source/scripts/mpirun" -n 2 "$scratch/program"
if ((compiled)); then
  echo "FetchContent and add_subdirectory use different compile commands for the library"
  exit 1
fi

echo "-- tests with every backend OFF"
configure -D MODE=subdirectory -D WITH_TESTS=ON -D aloni_ENABLE_TESTS=ON
# A few tests of each folder that take seconds even without optimisation.
wanted='^(test_error|test_distribution|test_stencil|test_models|test_exchange\.np2|test_gradients\.np2)$'
mapfile -t targets < <(ctest --test-dir "$scratch" -N -R "$wanted" |
  sed -nE 's/^ *Test +#[0-9]+: ([a-z_]+).*/\1/p' | sort -u)
((${#targets[@]})) || { echo "no test matches $wanted"; exit 1; }
cmake --build "$scratch" --target "${targets[@]}"
ctest --test-dir "$scratch" -R "$wanted" --output-on-failure
