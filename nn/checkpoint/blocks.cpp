#include <aloni/nn/checkpoint/blocks.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace aloni::nn::checkpoint {

using views::Box;

std::vector<Box> split_box(const Box& box, Index element_bytes, Index most_bytes) {
  if (box.empty()) return {};
  const Index bytes = box.size() * element_bytes;
  // The first dimension that can be divided: its parts are contiguous.
  std::size_t d = 0;
  while (d < views::num_dims && box.hi[d] - box.lo[d] == 1) ++d;
  if (bytes <= most_bytes || d == views::num_dims) return {box};
  const Index slices = box.hi[d] - box.lo[d], slice_bytes = bytes / slices;
  const Index slices_of_piece = std::max<Index>(1, most_bytes / slice_bytes);
  std::vector<Box> pieces;
  for (Index lo = box.lo[d]; lo < box.hi[d]; lo += slices_of_piece) {
    Box piece = box;
    piece.lo[d] = lo;
    piece.hi[d] = std::min(box.hi[d], lo + slices_of_piece);
    // A single slice may still be too large.
    const std::vector<Box> parts = split_box(piece, element_bytes, most_bytes);
    pieces.insert(pieces.end(), parts.begin(), parts.end());
  }
  return pieces;
}

std::vector<int> assign_blocks(const std::vector<Index>& bytes, int writers) {
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  using Load = std::pair<Index, int>;  // bytes, writer
  std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
  for (int w = 0; w < writers; ++w) least.push({0, w});
  std::vector<int> result(bytes.size(), 0);
  for (const std::size_t i : order) {
    const auto [load, writer] = least.top();
    least.pop();
    result[i] = writer;
    least.push({load + bytes[i], writer});
  }
  return result;
}

void copy_box(const Box& part, const Box& from_box, const std::byte* from, const Box& to_box, std::byte* to,
              Index element_bytes) {
  if (part.empty()) return;
  const auto position = [](const Box& box, const std::array<Index, views::num_dims>& i) {
    Index p = 0;
    for (std::size_t d = 0; d < views::num_dims; ++d) p = p * (box.hi[d] - box.lo[d]) + i[d] - box.lo[d];
    return p;
  };
  const auto row = static_cast<std::size_t>((part.hi[4] - part.lo[4]) * element_bytes);
  std::array<Index, views::num_dims> i = part.lo;
  for (i[0] = part.lo[0]; i[0] < part.hi[0]; ++i[0])
    for (i[1] = part.lo[1]; i[1] < part.hi[1]; ++i[1])
      for (i[2] = part.lo[2]; i[2] < part.hi[2]; ++i[2])
        for (i[3] = part.lo[3]; i[3] < part.hi[3]; ++i[3])
          std::memcpy(to + position(to_box, i) * element_bytes, from + position(from_box, i) * element_bytes, row);
}

}  // namespace aloni::nn::checkpoint
