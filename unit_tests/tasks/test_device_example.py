"""Runs examples/cholesky with --device on an emulated device, and in a build without a device.
test_device_example.py <cholesky on the emulated device> <cholesky>
"""
import json
import pathlib
import subprocess
import sys
import tempfile

emulated, plain = sys.argv[1:3]
N, TILE, TILE_BYTES = 300, 64, 64 * 64 * 8
ELEMENTS = [64, 64, 64, 64, 44]  # rows of the tiles
LOWER_BYTES = sum(8 * a * b for j, b in enumerate(ELEMENTS) for a in ELEMENTS[j:])


def run(program, *arguments):
    command = [program, "--n", str(N), "--tile", str(TILE), "--repeat", "1", *map(str, arguments)]
    return subprocess.run(command, text=True, capture_output=True, timeout=60)


def results(program, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "result.json")
        result = run(program, *arguments, "--json", file)
        assert result.returncode == 0, f"{arguments}: {result.stderr}{result.stdout}"
        return json.loads(file.read_text()), result.stdout


def expect_error(program, text, *arguments):
    result = run(program, *arguments)
    assert result.returncode == 2 and text in result.stderr, f"{arguments}: {result.returncode} {result.stderr}"


host, _ = results(plain, "--workers", 2)
for precision in ("double", "float"):
    values, text = results(emulated, "--device", "--precision", precision)
    assert values.keys() == host.keys(), values.keys() ^ host.keys()
    assert values["workers"] == 4 and values["tile"] == values["tile_rows"] == TILE and values["tasks"] == 35, values
    assert values["residual"] < (1e-13 if precision == "double" else 1e-4), values
    # All tiles fit: each is copied once in each direction.
    size = LOWER_BYTES if precision == "double" else LOWER_BYTES // 2
    assert values["bytes_swapped_in"] == values["bytes_swapped_out"] == size, (values, size)
    assert values["bytes_compulsory"] == 2 * size and values["evictions"] == 0, values
    assert "on a device, with " in text, text

values, _ = results(emulated, "--device", "--memory", 4 * TILE_BYTES, "--workers", 2, "--evict", "lru")
assert values["workers"] == 2 and values["residual"] < 1e-13 and values["evictions"] > 0, values
assert values["bytes_swapped"] > values["bytes_compulsory"] == 2 * LOWER_BYTES, values
expect_error(emulated, f"expected at least {3 * TILE_BYTES} bytes", "--device", "--memory", 3 * TILE_BYTES - 1)

# Without --device the program is the usual one.
assert results(emulated, "--workers", 2)[0]["bytes_swapped"] == 0

expect_error(plain, "cholesky: --device = aloni_ENABLE_CUDA is OFF: expected a build with aloni_ENABLE_CUDA=ON and a "
             "process with a GPU; or no --device", "--device")
for program in (plain, emulated):
    expect_error(program, "--swap = memory: expected no --device", "--device", "--memory", "1M", "--swap", "memory")
