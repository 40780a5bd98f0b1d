#pragma once
// The IDX format of MNIST: magic number (two zero bytes, element type, number of dimensions), 32-bit big-endian
// extents, elements. Only unsigned bytes (type 0x08) are supported. Files may be gzip-compressed.
#include <cstdint>
#include <string>
#include <vector>

namespace aloni::nn {

struct IdxArray {
  std::vector<std::int64_t> extents;
  std::vector<std::uint8_t> values;
};

/// Reads `path`. Throws FileError naming the path and the defect (missing, truncated, trailing bytes, magic number);
/// Unsupported for a gzip file if the build has no zlib.
IdxArray read_idx(const std::string& path);

}  // namespace aloni::nn
