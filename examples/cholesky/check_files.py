"""Runs cholesky on matrices in files, and checks its results, its pictures and its errors.
check_files.py <folder> <cholesky>
"""
import json
import pathlib
import struct
import subprocess
import sys
import xml.etree.ElementTree

folder, program = pathlib.Path(sys.argv[1]), sys.argv[2]
folder.mkdir(parents=True, exist_ok=True)
N = 20


def element(i, j):
    return N if i == j else 1 / (1 + abs(i - j))


def run(*arguments):
    return subprocess.run([program, "--workers", "2", *map(str, arguments)], text=True, capture_output=True, timeout=60)


def write_npy(path, dtype, shape, fortran, values):
    header = f"{{'descr': '{dtype}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    kind = "d" if dtype == "<f8" else "f"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header +
                     struct.pack(f"<{len(values)}{kind}", *values))


def expect_solved(name, **expected):
    result_file = folder / "result.json"
    result_file.unlink(missing_ok=True)
    result = run("--matrix", folder / name, "--tile", 6, "--repeat", 1, "--json", result_file)
    assert result.returncode == 0, f"{name}: {result.stderr}{result.stdout}"
    values = json.loads(result_file.read_text())
    expected |= {"n": N, "tile": 6, "workers": 2, "tasks": 20, "bytes_sent": 0, "bytes_swapped": 0}
    assert {key: values[key] for key in expected} == expected, f"{name}: {values}"
    assert values["residual"] < 1e-14 and values["gflops"] > 0 and values["gemm_gflops"] > 0, f"{name}: {values}"


def expect_error(name, text, *arguments):
    result = run("--matrix", folder / name, *arguments)
    assert result.returncode == 2 and text in result.stderr, f"{name}: {result.returncode} {result.stderr}"


full = [(i, j) for i in range(N) for j in range(N)]
write_npy(folder / "rows.npy", "<f8", (N, N), False, [element(i, j) for i, j in full])
# Only the lower triangle counts.
write_npy(folder / "lower.npy", "<f8", (N, N), True, [element(i, j) if i >= j else 99 for j, i in full])
write_npy(folder / "float.npy", "<f4", (N, N), False, [element(i, j) for i, j in full])
lower = "".join(f"{i + 1} {j + 1} {element(i, j)!r}\n" for i, j in full if i >= j)
(folder / "symmetric.mtx").write_text("%%MatrixMarket matrix coordinate real symmetric\n% a comment\n"
                                      f"{N} {N} {N * (N + 1) // 2}\n{lower}")
everything = "".join(f"{element(i, j)!r}\n" for j, i in full)
(folder / "array.mtx").write_text(f"%%MatrixMarket matrix array real general\n{N} {N}\n{everything}")
for name in ("rows.npy", "lower.npy", "float.npy", "symmetric.mtx", "array.mtx"):
    expect_solved(name, precision="double")

(folder / "short.mtx").write_text(f"%%MatrixMarket matrix coordinate real general\n{N} {N} 3\n1 1 1\n2 2 1\n")
expect_error("short.mtx", "entry 3")
(folder / "outside.mtx").write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1\n")
expect_error("outside.mtx", "positions from 1 to 2")
(folder / "complex.mtx").write_text("%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 1 1 1\n")
expect_error("complex.mtx", "field complex")
diagonal = "".join(f"{i} {i} {-1 if i == 6 else 1}\n" for i in range(1, 8))
(folder / "indefinite.mtx").write_text(f"%%MatrixMarket matrix coordinate integer general\n7 7 7\n{diagonal}")
expect_error("indefinite.mtx", "tile (1, 1), column 5 = pivot -1", "--tile", 4)
write_npy(folder / "wide.npy", "<f8", (2, 3), False, [1] * 6)
expect_error("wide.npy", "2x3")
write_npy(folder / "truncated.npy", "<f8", (3, 3), False, [1] * 8)
expect_error("truncated.npy", "as many elements as the shape says")
expect_error("rows.txt", ".mtx (Matrix Market) or .npy")
expect_error("absent.npy", "cannot be opened")

result = run("--n", 200, "--tile", 50, "--repeat", 1, "--svg", folder / "a.svg", "--trace", folder / "a.json")
assert result.returncode == 0, result.stderr
rectangles = xml.etree.ElementTree.parse(folder / "a.svg").getroot().findall("{http://www.w3.org/2000/svg}rect")
tasks = [r for r in rectangles if len(r) == 1]
assert len(tasks) == 20, len(tasks)
slices = [e for e in json.loads((folder / "a.json").read_text())["traceEvents"] if e["ph"] == "X"]
assert sorted(e["name"] for e in slices).count("gemm") == 4 and len(slices) == 20, slices
