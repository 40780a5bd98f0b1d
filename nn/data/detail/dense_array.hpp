#pragma once
// Samples that lie one after another, each dense and channels last, in a file or in memory. Private to nn/data.
#include <aloni/nn/data/detail/stored_bytes.hpp>
#include <aloni/nn/data/sample_array.hpp>

#include <memory>
#include <string>
#include <vector>

namespace aloni::nn::detail {

/// `bytes` from `offset` on as samples. The last sample ends at the last byte.
/// Throws FileError with `operation` if the samples need fewer or more bytes than there are, and for absurd or empty
/// extents. Allocates nothing.
std::shared_ptr<const SampleArray> dense_array(const char* operation, std::shared_ptr<const StoredBytes> bytes,
                                               std::uint64_t offset, Index samples, StoredType type,
                                               const views::Extents& extents);

struct SamplesAndExtents {
  Index samples = 0;
  views::Extents extents;
};

/// The meaning of the shape in a file, samples first: N (labels), N,H,W, N,H,W,C or N,D,H,W,C.
/// Throws FileError with `operation` and `path` for other numbers of dimensions.
SamplesAndExtents samples_of_shape(const char* operation, const std::string& path, const std::vector<Index>& shape);

}  // namespace aloni::nn::detail
