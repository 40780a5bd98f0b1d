#pragma once
// Checks of the blocks in a manifest of unknown origin.
#include <aloni/nn/checkpoint/manifest.hpp>

#include <string>

namespace aloni::nn::checkpoint::detail {

/// Throws FileError with `path` for any of these errors:
/// * two tensors with one name;
/// * extents or boxes beyond their bounds;
/// * a file that has not the name of a data file;
/// * a block whose size is not the size of its box;
/// * two blocks that overlap, in their tensor or in their file.
/// `covers`: the blocks of each tensor must also contain all its elements.
void check_blocks(const Manifest& manifest, const std::string& path, bool covers);

}  // namespace aloni::nn::checkpoint::detail
