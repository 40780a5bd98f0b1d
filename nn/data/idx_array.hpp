#pragma once
// An IDX file (nn/data/idx.hpp) as a SampleArray of bytes.
#include <aloni/nn/data/sample_array.hpp>

#include <memory>
#include <string>

namespace aloni::nn {

/// Dimensions of the file: N (labels), N,H,W, N,H,W,C or N,D,H,W,C. Of a plain file nothing stays in memory. A gzip
/// file is inflated, and is whole in memory of this rank: compressed bytes cannot be read from the middle.
/// Not collective. Throws FileError naming the path and the defect, Unsupported for a gzip file without zlib.
std::shared_ptr<const SampleArray> open_idx(const std::string& path);

}  // namespace aloni::nn
