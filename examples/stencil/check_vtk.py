#!/usr/bin/env python3
"""Whether the example's pictures are whole: check_vtk.py <folder for files> <launcher> <program>

- The files of four ranks, put together, hold the bytes of the file of one rank, and cover each cell once.
- A disk that is full is an error of the whole program, which names the file.
"""
import pathlib
import shutil
import struct
import subprocess
import sys
import xml.etree.ElementTree as xml

SIZE = 14  # 4 ranks by d2h2: even blocks; by d4: uneven ones
folder, launcher, program = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def run(ranks, grid, name):
    return subprocess.run([launcher, "-n", str(ranks), program, "--size", str(SIZE), "--steps", "1", "--type", "float",
                           "--grid", grid, "--vtk", str(folder / name)], text=True, capture_output=True)


def read(path):
    """The attributes and extents of a file of VTK, and of a piece its arrays: (root, image, arrays by name)."""
    text, _, data = path.read_bytes().partition(b'<AppendedData encoding="raw">\n_')
    if data:
        text += b'<AppendedData/></VTKFile>'
    root = xml.fromstring(text)
    assert root.get("header_type") == "UInt64" and root.get("byte_order") == "LittleEndian", root.attrib
    arrays, end = {}, 0
    for array in root.iter("DataArray"):
        offset = int(array.get("offset"))
        size, = struct.unpack_from("<Q", data, offset)
        components = int(array.get("NumberOfComponents"))
        assert array.get("type") == "Float32"
        arrays[array.get("Name")] = (4 * components, data[offset + 8:offset + 8 + size])
        assert offset == end, f"{path}: {array.get('Name')} begins at {offset}, the one before ends at {end}"
        end = offset + 8 + size
    rest = data[end:]
    assert rest in (b"", b"\n</AppendedData>\n</VTKFile>\n"), f"{path}: {len(data)} bytes of arrays that take {end}"
    return root, root[0], arrays


def extent(element, name="Extent"):
    return tuple(int(i) for i in element.get(name).split())


def cells(name):
    """{array: {(z, y, x): bytes}} of all pieces."""
    root, image, _ = read(folder / f"{name}.pvti")
    assert root.get("type") == "PImageData" and extent(image, "WholeExtent") == (0, SIZE) * 3, image.attrib
    values = {array.get("Name"): {} for array in image.iter("PDataArray")}
    assert list(values) == ["density", "velocity", "pressure", "potential"], values
    for piece in image.iter("Piece"):
        _, part, arrays = read(folder / piece.get("Source"))
        x0, x1, y0, y1, z0, z1 = extent(piece)
        assert extent(part, "WholeExtent") == extent(part[0]) == extent(piece)
        places = [(z, y, x) for z in range(z0, z1) for y in range(y0, y1) for x in range(x0, x1)]
        for array, (width, data) in arrays.items():
            assert len(data) == width * len(places), f"{array}: {len(data)} bytes"
            for i, place in enumerate(places):
                assert place not in values[array], f"{place} twice"
                values[array][place] = data[width * i:width * (i + 1)]
    assert all(len(of) == SIZE**3 for of in values.values())
    return values


shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
expected = None
for ranks, grid in ((1, "1"), (4, "d2h2"), (4, "d4"), (2, "w2")):
    done = run(ranks, grid, f"on_{grid}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = cells(f"on_{grid}")
    expected = expected or found
    assert found == expected, f"split {grid}: other values than on one rank"
(folder / "full_1.vti").symlink_to("/dev/full")
done = run(2, "d2", "full")
assert done.returncode != 0 and "full_1.vti" in done.stderr and "No space left" in done.stderr, done.stderr
print("pictures are whole")
