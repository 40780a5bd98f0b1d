#!/usr/bin/env python3
"""Whether the tests notice faults: mutate.py [--build FOLDER] [--only TEXT] [--json FILE [--resume]] [--check]

Applies each fault of mutations.txt to a copy of the tree, builds the tests of the faulty file's folder, and runs them
until one fails. Prints a table; fails when a fault survives, or when a line of the list isn't found exactly once.
Compiles with ccache if the machine has it, so that the restored file after a fault costs nothing.

--build FOLDER  keeps the copy and its build there, so that a later run compiles only the files that have changed
                (default: a temporary folder)
--only TEXT     faults whose name or file contains the text; may come several times
--json FILE     the table for programs
--resume        skips the faults that FILE has already: a long run in several parts
--check         only whether every line of the list is found: fast, a test of CI
Arguments behind -- go to cmake when the copy is configured: -D aloni_CXX_ARCH=native
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).with_name("mutations.txt")
# The programs that hold the tests of a folder, and runs of their files: (program, files, ranks), 0 ranks without a
# launcher. From the fastest to find something to the slowest. A fault that needs more is a fault that the tests are too
# weak for.
NN_PURE = [("test_nn_pure", "test_step_graph,test_stream_plan,test_network_plan", 0)]
LOCAL = [("test_local", "test_filter_orders", 0)]
CHOICE = [("test_local", "test_convolution_choice", 0)]
GEMM = [("test_local", "test_local_convolution", 0)]
POOLING = [("test_local", "test_local_pooling", 0)]
PLAN = [("test_nn_pure", "test_plan_memory,test_plan_cost,test_verify,test_recomputation,test_summed_gradients,"
         "test_known_sums", 0)]
NN = [("test_nn", "fuzz_split", 4), ("test_nn", "test_split", 2), ("test_nn", "fuzz_split", 6),
      ("test_nn", "test_split", 4), ("test_nn", "test_split", 3), ("test_nn", "test_16_bit", 2),
      ("test_nn", "test_16_bit", 3),
      ("test_nn", "test_gradients", 1)]  # the last: a fault of the split and of the unsplit network
PARTS = [("test_nn", "fuzz_split", 4), ("test_nn", "test_16_bit", 3)]
REPLICATED = [("test_nn", "test_replicated", 2)]
TRAFFIC = [("test_nn", "test_traffic", 4)]
PARTIAL = [("test_nn", "test_update,test_traffic", 2)]
SCALING = [("test_nn_pure", "test_optimiser", 0), ("test_nn", "test_update", 2)]
NUMBERS = [("test_core_pure", "test_16_bit_numbers", 0)]
CORE_PURE = [("test_core_pure", "", 0), ("test_core", "test_engine", 0)]
CORE = [("test_core", "test_communicator,test_collectives", 4), ("test_core", "test_communicator,test_collectives", 3),
        ("test_core", "test_contract", 3), ("test_core", "test_contract", 2), ("test_transports", "", 2)]
SHARED_HEAP = [("test_core", "test_shared_heap", 0)]
CONTRACT = [("test_core", "test_contract", 3)]
AGREEMENT = [("test_core", "test_agreement", 3)]
WATCH = [("test_core_pure", "test_watch", 0)]
START_UP = [("test_core", "test_start_up", 3)]
HALO_PURE = [("test_halo_pure", "", 0)]
HALO = [("test_halo", "test_transfer,test_exchange,test_redistribution", 3),
        ("test_halo", "test_transfer,test_exchange,test_redistribution", 4), ("test_halo", "test_wrong_calls", 2)]
DEEP_HALO = [("test_halo", "test_deep_halo", 3)]
CONSOLIDATION = [("test_halo", "test_consolidation", 4)]
LINKS = [("test_halo", "test_link_table", 4)]
GROUPS = [("test_halo", "test_message_group", 4)]
KFAC_COST = [("test_nn_pure", "test_kfac_cost", 0)]
COSTS = [("test_model_pure", "test_transfer_costs,test_communication_costs,test_collective_costs,test_layer_costs,"
          "test_simulate,test_consolidated_transfers", 0)]
MACHINE = [("test_model_pure", "test_kernel_times", 0)]
SEARCH = [("test_model_pure", "test_choose_strategy", 0)]
VIEWS = [("test_views_pure", "", 0), ("test_views", "", 0)]
TASKS_PURE = [("test_tasks_pure", "", 0)]
TASKS = [("test_tasks", "test_random_orders,test_tile_mail", 2),
         ("test_tasks", "test_random_orders,test_tile_mail,test_rank_factorisations", 4)]
# By the beginning of the file's path, the first that fits: which runs, program by program.
STAGES = [("nn/step_graph", [NN_PURE, NN]), ("nn/stream_plan", [NN_PURE]),
          ("nn/network_plan", [NN_PURE, NN]), ("halo/stencil", [NN_PURE, NN]),
          ("nn/local/detail/onednn", [LOCAL, NN]), ("nn/local/convolution_onednn", [LOCAL, NN]),
          ("nn/strategy", [[("test_nn_pure", "", 0)]]), ("nn/layer_split", [[("test_nn_pure", "", 0)]]),
          ("nn/data", [[("test_nn_pure", "", 0)]]), ("nn/detail/convolution_region", [PARTS, NN]),
          ("nn/local/convolution_choice", [CHOICE]), ("nn/local/detail/column_sums", [POOLING]),
          ("nn/local/convolution_kokkos_kernels", [GEMM, NN]),
          ("nn/loss_scaling", [SCALING]), ("nn/local/norms", [SCALING]), ("nn/run/bind_layers", [SCALING, NN]),
          ("nn/run/binder", [TRAFFIC, NN]),
          ("core/float16", [NUMBERS]), ("nn/network.cpp", [PARTIAL, NN]), ("nn/plan/work", [PARTIAL]),
          ("nn/detail/replicated", [REPLICATED]), ("nn/plan/kfac_cost", [KFAC_COST]),
          ("nn/plan/cost", [TRAFFIC, PLAN, NN]), ("nn/plan", [PLAN, NN]),
          ("nn", [NN]), ("model/choose_strategy", [SEARCH]), ("model/detail/whole_strategy", [SEARCH]),
          ("model/machine.cpp", [MACHINE, COSTS]), ("model", [COSTS]), ("halo/detail/message_group", [GROUPS]),
          ("halo/placement/detail/link_rounds", [LINKS]), ("halo/deep_halo", [DEEP_HALO]),
          ("halo/detail/consolidation", [CONSOLIDATION]), ("halo/node_pairs", [CONSOLIDATION]),
          ("halo/placement", [HALO_PURE]),
          ("halo", [HALO_PURE, HALO]), ("views", [VIEWS, HALO_PURE, HALO]),
          ("core/comm/shared_heap", [SHARED_HEAP, CORE]), ("core/comm/transfer_messages", [CONTRACT, HALO]),
          ("core/comm/agreement", [AGREEMENT]), ("core/comm/liveness/watch", [WATCH]),
          ("core/comm/engine/start_up", [START_UP]), ("tasks/detail/solve_columns", [TASKS_PURE]), ("tasks", [TASKS]),
          ("core/comm/grouped_messages", [GROUPS]), ("core/comm/device/device_collectives", [GROUPS]),
          ("core", [CORE_PURE, CORE])]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false", "OPENBLAS_NUM_THREADS": "1",
               "OMPI_MCA_mpi_yield_when_idle": "1", "ALONI_FUZZ_SECONDS": "20"}
# A fault may leave ranks waiting for each other. A test that takes this many times as long as without a fault hangs.
PATIENCE, LEAST_PATIENCE, MOST_PATIENCE = 6, 40, 400  # the last two in seconds
patience = {}  # by run, in seconds


def read_list():
    """[(name, file, old, new)]"""
    faults = []
    for number, block in enumerate(re.split(r"\n\s*\n", LIST.read_text())):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if not lines:
            continue
        marks = [line[0] for line in lines[1:]]
        if marks != ["@", "-", "+"]:
            sys.exit(f"{LIST.name}: block {number + 1} is not a name and lines with @, -, +:\n{block}")
        faults.append((lines[0], lines[1][2:].strip(), lines[2][2:].strip(), lines[3][2:].strip()))
    return faults


def mutated(text, old, new):
    """The text with one line another; None when the line isn't there exactly once."""
    lines = text.splitlines(keepends=True)
    places = [i for i, line in enumerate(lines) if line.strip() == old]
    if len(places) != 1:
        return None
    line = lines[places[0]]
    indentation = line[: len(line) - len(line.lstrip())]
    lines[places[0]] = indentation + (new or "/* left out */;" if old.endswith(";") else new) + "\n"
    return "".join(lines)


def check(faults):
    rotten = 0
    for name, file, old, new in faults:
        if mutated((root / file).read_text(), old, new) is None:
            print(f"{file}: not exactly once: {old}")
            rotten += 1
    names = [fault[0] for fault in faults]
    for name in {n for n in names if names.count(n) > 1}:
        print(f"two faults are called {name}")
        rotten += 1
    return rotten


def copy_tree(target):
    """What git knows and what it would add."""
    files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                           check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, files):
        source, copy = root / name, target / name
        if not source.is_file() or (copy.is_file() and copy.read_bytes() == source.read_bytes()):
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)


def launcher(tree):
    """Options of cmake that compile with ccache; none without it. A setting of the caller's environment counts."""
    if not shutil.which("ccache"):
        return []
    # Without the sloppiness it does not cache files that begin with precompiled headers, or include a new header.
    for name, value in {"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1",
                        "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime"}.items():
        os.environ.setdefault(name, value)
    return ["-D", "CMAKE_CXX_COMPILER_LAUNCHER=ccache"]


def build(tree, targets):
    """None, or what the compiler says."""
    done = subprocess.run(["cmake", "--build", "--preset", "host", "--target", *targets], cwd=tree, capture_output=True,
                          text=True)
    return None if done.returncode == 0 else done.stdout[-3000:] + done.stderr[-1000:]


def run(tree, program, files, ranks):
    """How it ended: "passes", "fails", "hangs"."""
    binary = str(tree / "build/host/bin" / program)
    command = [binary] if ranks == 0 else [str(tree / "scripts/mpirun"), "-n", str(ranks), binary]
    command += [f"--test_files={files}"] if files else []
    process = subprocess.Popen(command + ["--gtest_fail_fast", "--gtest_brief=1"], env=os.environ | ENVIRONMENT,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        return "passes" if process.wait(patience.get((program, files, ranks), MOST_PATIENCE)) == 0 else "fails"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # its launcher ends the ranks
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return "hangs"


def stages_of(file):
    return next(stages for path, stages in STAGES if file.startswith(path))


def try_fault(tree, fault):
    """(result, by whom)"""
    name, file, old, new = fault
    original = (tree / file).read_text()
    (tree / file).write_text(mutated(original, old, new))
    try:
        for runs in stages_of(file):
            error = build(tree, sorted({program for program, _, _ in runs}))
            if error:
                print(error)
                return "does not compile", ""
            for program, files, ranks in runs:
                end = run(tree, program, files, ranks)
                if end != "passes":
                    return "caught", f"{files or program}{f' on {ranks}' if ranks else ''} {end}"
        return "survives", ""
    finally:
        (tree / file).write_text(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("cmake", nargs="*")
    options = parser.parse_args()

    faults = read_list()
    if check(faults):
        return 1
    print(f"{len(faults)} faults, each line found once", flush=True)
    if options.check:
        return 0
    chosen = [f for f in faults if not options.only or any(text in f[0] or text in f[1] for text in options.only)]
    tree = (options.build or pathlib.Path(tempfile.mkdtemp(prefix="aloni_mutation"))).resolve()
    results = json.loads(options.json.read_text()) if options.resume and options.json.exists() else []
    done = {r["fault"] for r in results}
    chosen = [f for f in chosen if f[0] not in done]
    try:
        tree.mkdir(parents=True, exist_ok=True)
        copy_tree(tree)
        # Without unity builds a fault compiles one file.
        subprocess.run(["cmake", "--preset", "host", "-D", "CMAKE_UNITY_BUILD=OFF", *launcher(tree), *options.cmake],
                       cwd=tree, check=True, stdout=subprocess.DEVNULL)
        runs = list(dict.fromkeys(run for fault in chosen for stage in stages_of(fault[1]) for run in stage))
        error = build(tree, sorted({program for program, _, _ in runs}))
        if error:
            sys.exit(error)
        for program, files, ranks in runs:
            start = time.monotonic()
            if (end := run(tree, program, files, ranks)) != "passes":
                sys.exit(f"without a fault {files or program} on {ranks} ranks {end}")
            patience[program, files, ranks] = max(LEAST_PATIENCE, PATIENCE * (time.monotonic() - start))
        for fault in chosen:
            start = time.monotonic()
            result, by = try_fault(tree, fault)
            seconds = round(time.monotonic() - start)
            results.append({"fault": fault[0], "file": fault[1], "result": result, "by": by, "seconds": seconds})
            print(f"{result:10} {fault[1]:36} {fault[0]:58} {by} ({seconds} s)", flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    finally:
        if not options.build:
            shutil.rmtree(tree)
    caught = sum(r["result"] == "caught" for r in results)
    print(f"{caught} of {len(results)} faults are caught")
    return 0 if caught == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
