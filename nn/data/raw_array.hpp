#pragma once
// A file of plain elements with a description in JSON beside it, as a SampleArray:
//
//   {"file": "density.raw", "type": "float32", "samples": 100, "extents": [512, 512, 18], "offset": 0,
//    "order": "channels last"}
//
// * file: path of the elements; a relative path starts at the folder of the description.
// * type: uint8, int8, int16, int32, int64, float32 or float64; little-endian.
// * extents: of one sample: [] (labels), [H, W], [H, W, C] or [D, H, W, C].
// * offset: position of the first element in bytes; 0 without this key. The file ends with the last element.
// * order: "channels last", the only order; may be left out.
#include <aloni/nn/data/sample_array.hpp>

#include <memory>
#include <string>

namespace aloni::nn {

/// `path`: the description. Nothing of the elements stays in memory.
/// Not collective. Throws FileError naming the path, the key, the value found and the expectation.
std::shared_ptr<const SampleArray> open_raw(const std::string& path);

}  // namespace aloni::nn
