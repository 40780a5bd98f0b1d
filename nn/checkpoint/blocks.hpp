#pragma once
// Which rank writes which boxes, and copies between boxes. Pure arithmetic.
#include <aloni/core/index.hpp>
#include <aloni/views/box.hpp>

#include <cstddef>
#include <vector>

namespace aloni::nn::checkpoint {

/// Splits a box into pieces of at most `most_bytes` bytes, and at least one element. Pieces of a dense box, channels
/// last, are contiguous in it. @pre element_bytes ≥ 1, most_bytes ≥ 1
std::vector<views::Box> split_box(const views::Box& box, Index element_bytes, Index most_bytes);

/// The writer of each piece, so that each of `writers` ranks writes about the same number of bytes: the largest piece
/// first, each to the writer with the fewest bytes. Equal on all ranks. @pre writers ≥ 1, bytes ≥ 0
std::vector<int> assign_blocks(const std::vector<Index>& bytes, int writers);

/// Copies the elements of `part` between two dense tensors, channels last, over the boxes `from_box` and `to_box`.
/// @pre both boxes contain `part`
void copy_box(const views::Box& part, const views::Box& from_box, const std::byte* from, const views::Box& to_box,
              std::byte* to, Index element_bytes);

}  // namespace aloni::nn::checkpoint
