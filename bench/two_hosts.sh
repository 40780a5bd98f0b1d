#!/usr/bin/env bash
# Makes two hosts of one machine, for effects that only appear between machines: network namespaces h0 and h1 joined by
# one link. Each has its own host name, so MPI sees two machines and uses TCP between them.
#   bench/two_hosts.sh up [RATE [BURST]]    makes the hosts
#     RATE     of the link per direction, in the notation of tc (1gbit); default: no limit
#     BURST    bytes that pass at once after a pause (16kb), besides one packet of up to 64 KiB
#   bench/two_hosts.sh run N program …      runs N ranks on each host under Open MPI
#   bench/two_hosts.sh sent                 prints the bytes that each host sent over the link since `up`, with frames
#   bench/two_hosts.sh down                 removes the hosts
# Needs root, iproute2 and Open MPI. The hosts share the machine's cores: rank r is pinned to core r modulo their
# number, because unpinned messages took 4 ms. Ranks 0 … N - 1 are on h0. With PLACE=node even ranks are on h0, odd ones
# on h1.
#   bench/two_hosts.sh run 2 build/host/bin/bench_collectives --time_oversubscribed \
#     --benchmark_filter='allreduce/(mpi|hierarchical)/'
set -euo pipefail
self=$(realpath "${BASH_SOURCE[0]}")

cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) # nproc would return the value of these variables

fail() { echo "two_hosts.sh: $1" >&2; exit 1; }

need() { # fails without root or one of these programs
  ((EUID == 0)) || fail "network namespaces need root; run this script as root"
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || fail "no $program; apt-get install iproute2 util-linux openmpi-bin"
  done
}

on() { ip netns exec "h$1" "${@:2}"; }

up() {
  ip netns add h0 && ip netns add h1 ||
    fail "up: can't add namespaces h0 and h1; if they exist: $0 down, otherwise this machine forbids namespaces"
  ip link add v0 type veth peer name v1
  local i
  for i in 0 1; do
    ip link set "v$i" netns "h$i"
    on $i ip addr add "10.77.0.$((i + 1))/24" dev "v$i"
    on $i ip link set "v$i" up
    on $i ip link set lo up
    [[ -n ${1:-} ]] || continue
    # A token bucket (tbf) needs a burst of 128kb to keep a rate of 1gbit.
    on $i tc qdisc add dev "v$i" root handle 1: htb default 1
    on $i tc class add dev "v$i" parent 1: classid 1:1 htb rate "$1" quantum 60000 burst "${2:-16kb}" \
      cburst "${2:-16kb}"
  done
}

run() {
  [[ ${1:-} =~ ^[1-9][0-9]*$ && $# -ge 2 ]] || fail "usage: $0 run RANKS_PER_HOST program arguments…"
  on 0 true 2>/dev/null && on 1 true 2>/dev/null || fail "run: no hosts h0 and h1; first: $0 up [RATE]"
  local n=$1
  # Open MPI takes the replacement of ssh as one word.
  agent=$(mktemp)
  trap 'rm -f "$agent"' EXIT
  printf '#!/bin/bash\nexec %q agent "$@"\n' "$self" >"$agent"
  chmod +x "$agent"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  local flags=(--mca pml ob1 --mca btl tcp,self,vader --mca btl_tcp_if_include 10.77.0.0/24)
  flags+=(--mca oob_tcp_if_include 10.77.0.0/24)
  ((2 * n <= cores)) || flags+=(--mca mpi_yield_when_idle 1)
  on 0 unshare -u sh -c 'hostname h0; exec "$@"' sh mpirun -n $((2 * n)) \
    --bind-to none --map-by "${PLACE:-slot}" --host "10.77.0.1:$n,10.77.0.2:$n" \
    -x OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" --mca plm_rsh_agent "$agent" "${flags[@]}" "$self" pin "${@:2}"
}

agent() { # arguments of ssh: options, host, command
  while [[ $1 == -* ]]; do shift; done
  local host=h$((${1##*.} - 1))
  exec ip netns exec "$host" unshare -u sh -c "hostname $host; ${*:2}"
}

command=${1:-}
shift || true
case $command in
  up) need ip tc && up "$@" ;;
  run) need ip unshare mpirun taskset && run "$@" ;;
  sent) need ip && for i in 0 1; do echo "h$i $(on $i cat "/sys/class/net/v$i/statistics/tx_bytes")"; done ;;
  down) need ip && for host in h0 h1; do if [[ -e /run/netns/$host ]]; then ip netns del $host; fi; done ;;
  agent) agent "$@" ;;
  pin) exec taskset -c $((OMPI_COMM_WORLD_RANK % cores)) "$@" ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \?//;p}' "$self" >&2 && exit 1 ;;
esac
