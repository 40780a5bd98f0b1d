#pragma once
// Checks of the blocks in a manifest of unknown origin.
#include <aloni/nn/checkpoint/manifest.hpp>

#include <string>

namespace aloni::nn::checkpoint::detail {

/// Throws FileError with `path` unless names of tensors are unique, extents and boxes are within their bounds, files
/// have the names of data files, blocks have the size of their boxes, and no two blocks overlap, in their tensor or in
/// their file. `covers`: the blocks of each tensor must also contain all its elements.
void check_blocks(const Manifest& manifest, const std::string& path, bool covers);

}  // namespace aloni::nn::checkpoint::detail
