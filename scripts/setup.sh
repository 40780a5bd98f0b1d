#!/usr/bin/env bash
# Sets up a Debian machine for builds. Installs missing packages as root; otherwise names them and stops. Then builds
# Kokkos and Kokkos Kernels into the cache. Does nothing if everything is present.
#   scripts/setup.sh [arguments of cmake/bootstrap…]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

packages=(
  g++ cmake ninja-build git python3 python3-pip
  libopenmpi-dev openmpi-bin libucx-dev
  libopenblas-openmp-dev # the variant that computes on the threads of OpenMP, which are those of Kokkos
  libdnnl-dev zlib1g-dev libfmt-dev libhdf5-dev
  libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  python3-numpy # a test reads a checkpoint with it
)

if command -v dpkg-query >/dev/null; then
  missing=()
  for package in "${packages[@]}"; do
    case $package in # any installation will do
      g++ | cmake | git) ! command -v "$package" >/dev/null || continue ;;
      python3) ! python3 --version >/dev/null 2>&1 || continue ;;
      python3-numpy) ! python3 -c 'import numpy' 2>/dev/null || continue ;;
      python3-pip) ! python3 -m pip --version >/dev/null 2>&1 || continue ;;
      ninja-build) ! command -v ninja >/dev/null || continue ;;
    esac
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || true
    [[ $status == installed ]] || missing+=("$package")
  done
  if ((${#missing[@]})); then
    if ((EUID != 0)); then
      echo "setup: packages are missing; run as root: apt-get install ${missing[*]}" >&2
      exit 1
    fi
    echo "setup: installing ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    install() { apt-get -q update && apt-get -qy install --no-install-recommends "${missing[@]}"; }
    if ! install </dev/null >"$log" 2>&1; then
      cat "$log" >&2
      echo "setup: apt-get failed" >&2
      exit 1
    fi
    rm -f "$log"
  fi
else
  echo "setup: this is not Debian; install the equivalents of these Debian packages: ${packages[*]}" >&2
fi

"$root/cmake/bootstrap" "$@" >/dev/null
