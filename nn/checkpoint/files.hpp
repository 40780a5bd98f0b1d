#pragma once
// The files of a checkpoint, written by one rank at a time without communication. CheckpointWriter (writer.hpp) runs
// these functions on all ranks in the right order:
//
//   begin_folder(files, "run1", 1200);                                 // one rank, before all others
//   RankPart part = copy_part(tensors, rank, 4);                       // each rank; then the tensors may change
//   write_part(files, "run1/step-000000001200", part);                 // each rank, in a thread
//   finish_folder(files, "run1", manifest);                            // one rank, with the merged parts of all ranks
//   remove_older(files, "run1", 1200, 3);
//
// A checkpoint is whole once its manifest has its name: the manifest comes last, and everything else is durable before.
// Functions throw FileError. None is collective.
#include <aloni/core/io/file_system.hpp>
#include <aloni/nn/checkpoint/manifest.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::nn::checkpoint {

inline constexpr const char* manifest_name = "manifest.json";

/// "step-000000001200".
std::string folder_name(std::int64_t step);
/// The step of a folder's name; none if the folder is no checkpoint.
std::optional<std::int64_t> step_of(std::string_view folder);
/// The steps of the checkpoints in a directory, also of unfinished ones. Descending.
std::vector<std::int64_t> steps_in(io::FileSystem& files, const std::string& directory);

/// A tensor in host memory that a checkpoint saves.
struct TensorSource {
  std::string name;
  ElementType type = ElementType::float32;
  views::Extents extents;
  views::Box kept;                   ///< the box of the tensor that `data` contains, dense
  std::vector<views::Box> own = {};  ///< disjoint boxes within `kept`; of all ranks together, they cover the tensor
  int blocks = 1;  ///< ranks that are equal modulo this number have equal `own`, and divide the writing
  const std::byte* data = nullptr;
};

/// The blocks that one rank writes. Their checksums are 0 before write_part().
struct RankPart {
  Manifest blocks;
  std::string file;
  std::vector<std::byte> bytes;
};

/// Largest block: a checksum covers at most so many bytes, and the ranks divide the writing by blocks.
inline constexpr Index block_bytes = Index{4} << 20;

/// Copies the blocks that this rank writes. Ranks with equal `own` pass equal lists of these tensors.
/// @pre 0 ≤ rank < ranks
RankPart copy_part(std::span<const TensorSource> tensors, int rank, int ranks, Index most_block_bytes = block_bytes);

/// Bytes of that copy. TensorSource::data is not used. @pre as copy_part()
Index part_bytes(std::span<const TensorSource> tensors, int rank, int ranks, Index most_block_bytes = block_bytes);

/// Makes an empty folder for a checkpoint, and removes an unfinished or refused one of the same step.
void begin_folder(io::FileSystem& files, const std::string& directory, std::int64_t step);
/// Computes the checksums and writes the data file. On return it is durable. No blocks: no file.
void write_part(io::FileSystem& files, const std::string& folder, RankPart& part);
/// Writes the manifest, and thereby completes the checkpoint.
void finish_folder(io::FileSystem& files, const std::string& directory, const Manifest& manifest);
/// Removes the folder of an unfinished checkpoint as far as possible.
void abandon_folder(io::FileSystem& files, const std::string& directory, std::int64_t step) noexcept;
/// Removes all checkpoints before `step`, apart from the newest keep - 1 of them. @pre keep ≥ 1, the checkpoint of
/// `step` is whole
void remove_older(io::FileSystem& files, const std::string& directory, std::int64_t step, int keep);

}  // namespace aloni::nn::checkpoint
