#!/usr/bin/env python3
"""Registers, stack and spills of the device kernels, from ptxas. Needs nvcc, and no device.

  cmake --preset cuda -D CMAKE_EXPORT_COMPILE_COMMANDS=ON
  scripts/ptxas_table.py build/cuda            # compiles the files below with -O3; writes docs/ptxas.json and the table
  scripts/ptxas_table.py build/cuda --check    # writes nothing
  scripts/ptxas_table.py --tables              # writes the table of docs/device_kernels.md from docs/ptxas.json

Fails if a kernel spills registers to memory, or if a file has no kernel any more. With --check it also fails if the
files differ from those of docs/ptxas.json.
"""
import argparse
import collections
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from figures.tables import marked, table

PROGRAM = "scripts/ptxas_table.py"
MARKED = marked(PROGRAM)
DATA, DOCUMENT = ROOT / "docs/ptxas.json", ROOT / "docs/device_kernels.md"
ARCHITECTURES = ("80", "90")
# Files with the kernels of a step: layers, losses, updates, packing of ghosts. Convolutions themselves are cuDNN's.
FILES = (
    "nn/kfac.cpp", "nn/local/average.cpp", "nn/local/batch_norm.cpp", "nn/local/bias.cpp",
    "nn/local/convolution_converting.cpp", "nn/local/convolution_kokkos_kernels.cpp",
    "nn/local/convolution_reference.cpp", "nn/local/dense.cpp", "nn/local/dropout.cpp", "nn/local/gemm_blocked.cpp",
    "nn/local/gemm_kokkos_kernels.cpp", "nn/local/group_norm.cpp", "nn/local/layer_norm.cpp", "nn/local/loss.cpp",
    "nn/local/metric_sums.cpp", "nn/local/norms.cpp", "nn/local/patches.cpp", "nn/local/pointwise.cpp",
    "nn/local/pointwise_layers.cpp", "nn/local/pooling.cpp", "nn/local/resampling.cpp", "nn/run/bind_layers.cpp",
    "views/strided_copy.cpp", "halo/transfer.cpp", "halo/detail/transfer_lists.cpp")
SECTIONS = ("kernels",)

ENTRY = re.compile(r"Compiling entry function '([^']+)' for 'sm_(\d+)'")
PROPERTIES = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")

Kernel = collections.namedtuple("Kernel", "name architecture registers stack stores loads")


def parse(text):
    """The kernels in the output of `ptxas -v`. Throws ValueError if a kernel has no figures."""
    kernels, name, architecture, properties = [], None, None, None
    for line in text.splitlines():
        if entry := ENTRY.search(line):
            if name is not None:
                raise ValueError(f"ptxas gives no registers of {name}")
            (name, architecture), properties = entry.groups(), None
        elif name is not None and (found := PROPERTIES.search(line)):
            properties = [int(value) for value in found.groups()]
        elif name is not None and (used := USED.search(line)):
            if properties is None:
                raise ValueError(f"ptxas gives no spills of {name}")
            kernels.append(Kernel(name, architecture, int(used[1]), *properties))
            name = None
    if name is not None:
        raise ValueError(f"ptxas gives no registers of {name}")
    return kernels


def device_command(command, output):
    """The command that compiles a file, for device code of all ARCHITECTURES only, with the report of ptxas."""
    words, kept, skip = shlex.split(command), [], False
    for word in words:
        if skip or word == "-c" or word.startswith("--generate-code"):
            skip = False
        elif word == "-o":
            skip = True
        elif word in ("-O0", "-O1", "-O2") or word == "-g":
            pass
        else:
            kept.append(word)
    if "-O3" not in kept:
        kept.append("-O3")
    for architecture in ARCHITECTURES:
        kept.append(f"--generate-code=arch=compute_{architecture},code=sm_{architecture}")
    return [*kept, "-Xptxas", "-v", "--fatbin", "-o", output]


def short(name):
    """What a person recognises of a mangled kernel: the function of aloni in which it stands."""
    text = subprocess.run(["c++filt", name], capture_output=True, text=True, check=False).stdout
    types = ("::Index", "::bfloat16", "::float16")
    words = [word for word in re.findall(r"aloni::[\w:]+", text) if not word.endswith(types)]
    return words[0] if words else text.strip()[:120] or name


def compile_all(build):
    commands = build / "compile_commands.json"
    if not commands.exists():
        sys.exit(f"ptxas_table: {commands} does not exist; configure with -D CMAKE_EXPORT_COMPILE_COMMANDS=ON and "
                 "-D CMAKE_UNITY_BUILD=OFF")
    of_file = {str(pathlib.Path(entry["file"]).resolve().relative_to(ROOT)): entry
               for entry in json.loads(commands.read_text())
               if pathlib.Path(entry["file"]).resolve().is_relative_to(ROOT)}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for file in FILES:
            if file not in of_file:
                sys.exit(f"ptxas_table: {commands} does not compile {file}: a unity build, or the file was renamed")
            entry = of_file[file]
            result = subprocess.run(device_command(entry["command"], f"{scratch}/out"), cwd=entry["directory"],
                                    capture_output=True, text=True, check=False)
            if result.returncode != 0:
                sys.exit(f"ptxas_table: {file}:\n{result.stderr[-3000:]}")
            kernels = parse(result.stderr + result.stdout)
            for architecture in ARCHITECTURES:
                mine = [kernel for kernel in kernels if kernel.architecture == architecture]
                print(f"{file}, sm_{architecture}: {len(mine)} kernels", file=sys.stderr, flush=True)
                rows.append({"file": file, "architecture": architecture, "kernels": len(mine),
                             "registers": max((kernel.registers for kernel in mine), default=0),
                             "stack_bytes": max((kernel.stack for kernel in mine), default=0),
                             "spilled": [{"kernel": short(kernel.name), "mangled": kernel.name,
                                          "stores": kernel.stores, "loads": kernel.loads}
                                         for kernel in mine if kernel.stores or kernel.loads]})
    compiler = shlex.split(of_file[FILES[0]]["command"])[0]
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    release = re.search(r"release [\d.]+, V([\d.]+)", version)
    return {"compiler": f"nvcc {release[1] if release else 'unknown'}", "rows": rows}


def faults_of(data):
    faults = []
    for row in data["rows"]:
        if row["kernels"] == 0:
            faults.append(f"{row['file']} has no kernel for sm_{row['architecture']}: remove it from FILES")
        for kernel in row["spilled"]:
            faults.append(f"{row['file']}, sm_{row['architecture']}: {kernel['kernel']} spills: {kernel['stores']} "
                          f"bytes of stores, {kernel['loads']} of loads ({kernel['mangled']})")
    return faults


def tables_of(data, name):
    """The text between the markers NAME. Throws KeyError if there is no such section."""
    if name not in SECTIONS:
        raise KeyError(f"no section {name}; there is {', '.join(SECTIONS)}")
    by_file = {}
    for row in data["rows"]:
        by_file.setdefault(row["file"], {})[row["architecture"]] = row
    rows = []
    for file, of in by_file.items():
        cells = [f"`{file}`", str(of[ARCHITECTURES[0]]["kernels"])]
        for architecture in ARCHITECTURES:
            row = of[architecture]
            cells += [str(row["registers"]), str(row["stack_bytes"]), str(len(row["spilled"]))]
        rows.append(cells)
    headings = ["file", "kernels"]
    for architecture in ARCHITECTURES:
        headings += [f"sm_{architecture}: registers", "stack, bytes", "kernels that spill"]
    return f"Compiler: {data['compiler']}, `-O3`.\n\n" + table(headings, rows)


def write_table(data):
    text = DOCUMENT.read_text()
    DOCUMENT.write_text(MARKED.sub(lambda m: m[1] + tables_of(data, m[2]) + m[4], text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", help="build folder of the preset cuda")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--tables", action="store_true", help="write the table from docs/ptxas.json")
    options = parser.parse_args()
    if options.tables:
        write_table(json.loads(DATA.read_text()))
        return
    if not options.build:
        parser.error("name the build folder, or give --tables")
    data = compile_all(pathlib.Path(options.build).resolve())
    faults = faults_of(data)
    if options.check:
        listed = {row["file"] for row in json.loads(DATA.read_text())["rows"]}
        if listed != set(FILES):
            faults.append("docs/ptxas.json has other files than FILES: run scripts/ptxas_table.py without --check")
    else:
        DATA.write_text(json.dumps(data, indent=2) + "\n")
        if DOCUMENT.exists():
            write_table(data)
    print("\n".join(faults) or "no kernel spills")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
