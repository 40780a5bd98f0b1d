"""Builds the C++ programs of this folder that call other libraries, and runs programs, for tasks.py and cholesky.py."""
import os
import pathlib
import shlex
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}
BIN = pathlib.Path(os.environ.get("BIN", ROOT / "build/host/bin"))


class Missing(Exception):
    """A library or a program is not installed; the text says which, and how to get it."""


def output(command, environment=None):
    """Standard output. Ends this program with the other's message if it fails."""
    done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(map(str, command))}: exit status {done.returncode}\n{done.stderr}{done.stdout}")
    return done.stdout


def our_program(name):
    if not (BIN / name).is_file():
        raise Missing(f"no program {BIN / name}; build target {name}, or set BIN to the folder of the programs")
    return BIN / name


def build(source, package, debian, folder):
    """Compiles a source of this folder with the flags of a package of pkg-config. Throws Missing."""
    try:
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", package], capture_output=True, text=True,
                               check=False)
    except FileNotFoundError:
        raise Missing("no pkg-config; apt-get install pkg-config") from None
    if flags.returncode:
        raise Missing(f"pkg-config knows no {package}; apt-get install {debian}")
    program = pathlib.Path(folder) / pathlib.Path(source).stem
    output([os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-Wall", "-Wextra", HERE / source, "-o", program,
            *shlex.split(flags.stdout)])
    return program


def version_of(package):
    return output(["pkg-config", "--modversion", package]).strip()


def without_thread_settings():
    return {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "OPENBLAS_"))}
