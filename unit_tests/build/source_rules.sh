#!/usr/bin/env bash
# Rules that no compiler checks. Each is tried on a sample first: a pattern that matches nothing would never complain.
# - Good guest: the library's sources do not use MPI_COMM_WORLD, print nothing and end no process.
# - Words of CUDA and NCCL appear only in files named for them, and in a short list of others.
# - model/ knows the graphs of tasks/, not their runs: it includes only the headers in the list below.
# - docs/porting.md lists exactly the files that may contain words of CUDA and NCCL.
# - Lines of C++, CMake, Python and shell have at most 120 columns, comments too.
#   source_rules.sh <source folder>
set -euo pipefail
cd "$1"
failures=0
sample=$(mktemp --suffix=.cpp)
trap 'rm -f "$sample"' EXIT

# code_with <pattern> <files…>: "file:line:code" of the lines whose code matches; comments may name anything.
code_with() {
  local pattern=$1
  shift
  grep -HnE "$pattern" "$@" | sed -E 's,//.*$,,' | grep -E "^[^:]*:[0-9]+:.*($pattern)" || true
}

# long_lines <files…>: "file:line" of the lines with more than 120 columns. A line of one word has no place to break.
long_lines() { LC_ALL=C.UTF-8 grep -HnE '^.{121,}' "$@" | grep -vE '^[^:]*:[0-9]+:\s*\S+$' | cut -d: -f1,2; }

# try <rule> <matches> <lines of code…>
try() {
  local rule=$1 matches=$2
  shift 2
  printf '%s\n' "$@" >"$sample"
  [[ $(code_with "${!rule}" "$sample" | wc -l) == "$matches" ]] && return
  echo "the pattern of $rule does not match forbidden code"
  exit 1
}

complain() {
  [[ -z $2 ]] && return
  echo "$1:"
  echo "$2"
  failures=1
}

sources() { find "$@" \( -name '*.hpp' -o -name '*.cpp' \) -print | sort; }
mapfile -t library < <(sources core views tasks halo nn model)
((${#library[@]} > 200)) || { echo "found only ${#library[@]} files in $1: have the folders moved?"; exit 1; }

# Exempt: core/environment starts and stops MPI; ucx_library restores the signal handlers that UCX replaces; start_up
# names processes by the launcher's numbers, which are ranks of MPI_COMM_WORLD.
guest='MPI_COMM_WORLD|std::(cout|cerr|clog|printf|puts|exit|_Exit|quick_exit|abort|terminate)'
guest+='|\b(f?printf|puts|fputs|exit|_exit|abort|signal|sigaction|MPI_Abort|MPI_Finalize)\('
try guest 3 'void f() { MPI_Comm_rank(MPI_COMM_WORLD, &r); }' 'void g() { std::cout << 1; }' 'void h() { exit(1); }'
exempt='^core/(environment|comm/transport/ucx_library|comm/engine/start_up)\.'
mapfile -t files < <(printf '%s\n' "${library[@]}" | grep -vE "$exempt")
complain "library sources must not print, end the process or use MPI_COMM_WORLD" "$(code_with "$guest" "${files[@]}")"

# `cudnn` alone is the name of a backend, as `onednn` is.
# Exempt: native_stream asks an instance for its stream, instantiate asks which spaces Kokkos has, and info_command
# prints the options of the build.
device='[cC][uU][dD][aA]|nccl|NCCL|cublas|cudnn[A-Z]'
try device 3 'cudaEvent_t e;' '#ifdef KOKKOS_ENABLE_CUDA' 'ncclComm_t c;  // comment'
named='(cuda|nccl|cudnn)[^/]*(/|$)'
others='^(core/comm/device/native_stream|views/detail/instantiate)\.hpp$|^tools/info_command\.cpp$'
mapfile -t files < <({ printf '%s\n' "${library[@]}"; sources tools; } | grep -vE "$named|$others")
complain "words of CUDA belong into files named for it" "$(code_with "$device" "${files[@]}")"

# The first cell of a row of the tables of files; docs/porting.md has them in its first two sections.
listed=$(sed '/^## What each interface/,$d' docs/porting.md | sed -nE 's/^\| `([^`]+)` \|.*/\1/p' | sort)
present=$({ printf '%s\n' "${library[@]}"; sources tools; } | grep -E "$named|$others" | sort)
[[ $listed == *core/cuda_queue_mark.hpp* ]] || { echo "found no table of files in docs/porting.md"; exit 1; }
complain "docs/porting.md lists other files (<) than those that may contain words of CUDA (>)" \
  "$(diff <(echo "$listed") <(echo "$present") | grep '^[<>]')"

# Graphs, rules and the state machine of tiles between ranks are values. So is a report, the form of a timeline.
known='aloni/tasks/(task|task_graph|task_rule|tile_requests|runtime|detail/ready_queue)\.hpp'
others_of_tasks="#include <aloni/tasks/"
graph_rule() { code_with "$others_of_tasks" "$@" | grep -vE "$known" || true; }
printf '%s\n' '#include <aloni/tasks/task_graph.hpp>' '#include <aloni/tasks/cholesky.hpp>' >"$sample"
[[ $(graph_rule "$sample") == "$sample:2:"* ]] || { echo "the rule of model and tasks does not find includes"; exit 1; }
mapfile -t files < <(sources model)
complain "model includes other headers of tasks than those of graphs" "$(graph_rule "${files[@]}")"

mapfile -t files < <(sources core views tasks halo nn model tools bench examples unit_tests
  find CMakeLists.txt .ci cmake core views tasks halo nn model tools bench examples unit_tests scripts -type f \
    \( -name CMakeLists.txt -o -name '*.cmake' -o -name '*.py' -o -name '*.sh' -o ! -name '*.*' \) | sort)
((${#files[@]} > 600)) || { echo "found only ${#files[@]} files of all kinds: have the folders moved?"; exit 1; }
printf '# %0119d\n# %0118d\n%0121d\n' 0 0 0 >"$sample"
[[ $(long_lines "$sample") == "$sample:1" ]] || { echo "the rule of long lines does not find them"; exit 1; }
complain "lines of more than 120 columns" "$(long_lines "${files[@]}")"
((failures == 0)) && echo "${#files[@]} files follow the rules"
exit "$failures"
