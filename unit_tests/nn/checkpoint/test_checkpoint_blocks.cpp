// Division of the writing among ranks, and copies between boxes.
#include "support/random_cases.hpp"

#include <aloni/nn/checkpoint/blocks.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

namespace aloni::nn::checkpoint {
namespace test_checkpoint_blocks {

using views::Box;

TEST(CheckpointBlocks, SplitABoxIntoContiguousPieces) {
  std::mt19937 chance(7);
  for (int trial = 0; trial < 300; ++trial) {
    Box box;
    for (int d = 0; d < views::num_dims; ++d) {
      box.lo[d] = chance() % 4;
      box.hi[d] = box.lo[d] + 1 + chance() % 4;
    }
    const Index most = 1 + chance() % 200;
    Index next = 0;  // position in the dense box
    for (const Box& piece : split_box(box, 4, most)) {
      ASSERT_TRUE(piece.size() == 1 || piece.size() * 4 <= most);
      // The first and the last element of a contiguous piece are its size apart.
      Index first = 0, last = 0;
      for (int d = 0; d < views::num_dims; ++d) {
        first = first * (box.hi[d] - box.lo[d]) + piece.lo[d] - box.lo[d];
        last = last * (box.hi[d] - box.lo[d]) + piece.hi[d] - 1 - box.lo[d];
      }
      ASSERT_EQ(first, next);
      ASSERT_EQ(last - first + 1, piece.size());
      next += piece.size();
    }
    ASSERT_EQ(next, box.size());
  }
  EXPECT_TRUE(split_box(Box{}, 4, 100).empty());
}

TEST(CheckpointBlocks, AreDividedEvenly) {
  std::mt19937 chance(8);
  for (int writers = 1; writers <= 64; writers *= 2) {
    std::vector<Index> bytes(300);
    for (Index& b : bytes) b = 1 + chance() % 1000;
    std::vector<Index> load(static_cast<std::size_t>(writers), 0);
    const auto result = assign_blocks(bytes, writers);
    for (std::size_t i = 0; i < bytes.size(); ++i) load.at(static_cast<std::size_t>(result[i])) += bytes[i];
    const Index total = std::accumulate(bytes.begin(), bytes.end(), Index{0});
    // The bound of Graham, 1969: 4/3 of the best division.
    EXPECT_LE(3 * *std::ranges::max_element(load), 4 * std::max<Index>(total / writers + 1, 1000)) << writers;
  }
  EXPECT_THAT(assign_blocks({5, 0, 3, 3}, 2), testing::ElementsAre(0, 0, 1, 1));
}

TEST(CheckpointBlocks, AreCopiedBetweenBoxes) {
  const Box a{{1, 0, 2, 0, 0}, {3, 1, 6, 2, 3}}, b{{0, 0, 3, 0, 1}, {3, 1, 5, 2, 5}}, part = views::intersect(a, b);
  const auto position = [](const Box& box, Index n, Index h, Index w, Index c) {
    return static_cast<std::size_t>((((n - box.lo[0]) * (box.hi[2] - box.lo[2]) + h - box.lo[2]) * 2 + w) *
                                        (box.hi[4] - box.lo[4]) +
                                    c - box.lo[4]);
  };
  std::vector<float> from(static_cast<std::size_t>(a.size())), to(static_cast<std::size_t>(b.size()), -1);
  std::iota(from.begin(), from.end(), 0.0f);
  std::vector<float> expected = to;
  for (Index n = part.lo[0]; n < part.hi[0]; ++n)
    for (Index h = part.lo[2]; h < part.hi[2]; ++h)
      for (Index w = 0; w < 2; ++w)
        for (Index c = part.lo[4]; c < part.hi[4]; ++c)
          expected[position(b, n, h, w, c)] = from[position(a, n, h, w, c)];
  copy_box(part, a, std::as_bytes(std::span(from)).data(), b, std::as_writable_bytes(std::span(to)).data(), 4);
  EXPECT_EQ(to, expected);
}

}  // namespace test_checkpoint_blocks
}  // namespace aloni::nn::checkpoint
