#pragma once
// The .npy format of NumPy, versions 1 to 3, as a SampleArray: samples first, C order, little-endian elements.
// Source: NumPy Enhancement Proposal 1, "A simple file format for NumPy arrays".
//
//   numpy.save("images.npy", images)     # images.shape = (samples, height, width, channels), dtype float32
#include <aloni/nn/data/sample_array.hpp>

#include <memory>
#include <string>

namespace aloni::nn {

/// Shapes: N (labels), N,H,W, N,H,W,C or N,D,H,W,C. Types: u1, i1, i2, i4, i8, f4, f8. Reads the header only; nothing
/// of the elements stays in memory.
/// Not collective. Throws FileError naming the path, the field, the value found and the expectation: a damaged header,
/// Fortran order, another type, byte order or number of dimensions, and a size of the file that differs from the shape.
std::shared_ptr<const SampleArray> open_npy(const std::string& path);

}  // namespace aloni::nn
