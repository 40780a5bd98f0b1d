"""The format .npy without NumPy. The tests in this folder share it."""
import ast
import struct


def npy(shape, descr, elements):
    """The bytes of a file."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + elements


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def read_floats(path):
    """Shape and values of a file of float32."""
    data = path.read_bytes()
    end = 10 + struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:end].decode())
    assert data[:8] == b"\x93NUMPY\x01\x00" and header["descr"] == "<f4" and not header["fortran_order"]
    return header["shape"], struct.unpack(f"<{(len(data) - end) // 4}f", data[end:])
