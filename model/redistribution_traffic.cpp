#include <aloni/model/redistribution_traffic.hpp>

#include <aloni/views/even_blocks.hpp>

#include <algorithm>
#include <cstddef>

namespace aloni::model {

using views::num_dims;

namespace {

bool is_replicated(const BlockLayout& layout, std::size_t d) { return layout.replicates_space && d >= 1 && d <= 3; }

bool has_own_borders(const BlockLayout& layout, std::size_t d) { return d == 4 && !layout.channel_borders.empty(); }

/// First element of a block, or the end of the last one.
Index border(const BlockLayout& layout, std::size_t d, int block) {
  if (has_own_borders(layout, d)) return layout.channel_borders[static_cast<std::size_t>(block)];
  return views::even_border(layout.extents.values[d], layout.grid.blocks[d], block);
}

struct Share {
  double elements = 0, messages = 0;

  Share operator*(const Share& other) const { return {elements * other.elements, messages * other.messages}; }
  Share& operator+=(const Share& other) {
    elements += other.elements;
    messages += other.messages;
    return *this;
  }
};

/// The elements of a box by the ranks that own them in a layout. `reader`: it takes replicated values from itself.
class Owners {
 public:
  using Box = std::array<halo::Range, num_dims>;

  Owners(const BlockLayout& layout, const Box& box, int reader)
      : layout_(layout), box_(box), reader_(layout.grid.coordinate(reader)) {
    for (std::size_t d = num_dims; d-- > 0;) sizes_[d] = sizes_[d + 1] * layout.grid.blocks[d];
  }

  /// The share of ranks [first, last) of one replica.
  Share of(int first, int last) const { return of_brick(0, first, last); }

 private:
  /// Of the ranks [first, last) among those with given coordinates before dimension d.
  Share of_brick(std::size_t d, int first, int last) const {
    if (first >= last) return {};
    if (d == num_dims) return {1, 1};
    const int size = sizes_[d + 1];
    const int begin = first / size, end = last / size;  // coordinates whose ranks may be all in the range
    if (begin == end) return of_blocks(d, begin, begin + 1) * of_brick(d + 1, first % size, last % size);
    Share sum;
    const int whole = begin + (first % size > 0 ? 1 : 0);
    if (whole > begin) sum += of_blocks(d, begin, whole) * of_brick(d + 1, first % size, size);
    if (whole < end) sum += of_blocks(d, whole, end) * of_brick(d + 1, 0, size);
    if (last % size > 0) sum += of_blocks(d, end, end + 1) * of_brick(d + 1, 0, last % size);
    return sum;
  }

  /// Elements of dimension d in blocks [first, last), and the number of blocks that have any.
  Share of_blocks(std::size_t d, int first, int last) const {
    if (is_replicated(layout_, d)) {
      const bool is_own = first <= reader_[d] && reader_[d] < last;
      return is_own ? Share{static_cast<double>(box_[d].hi - box_[d].lo), 1} : Share{};
    }
    const Index lo = std::max(box_[d].lo, border(layout_, d, first)),
                hi = std::min(box_[d].hi, border(layout_, d, last));
    if (lo >= hi) return {};
    return {static_cast<double>(hi - lo), static_cast<double>(blocks_with(d, first, last, lo, hi))};
  }

  int blocks_with(std::size_t d, int first, int last, Index lo, Index hi) const {
    if (has_own_borders(layout_, d)) {
      int count = 0;
      for (int b = first; b < last; ++b)
        count += std::max(lo, border(layout_, d, b)) < std::min(hi, border(layout_, d, b + 1)) ? 1 : 0;
      return count;
    }
    const Index extent = layout_.extents.values[d];
    const int blocks = layout_.grid.blocks[d];
    return views::even_block_of(extent, blocks, hi - 1) - views::even_block_of(extent, blocks, lo) + 1;
  }

  const BlockLayout& layout_;
  const Box& box_;
  std::array<int, num_dims> reader_;
  std::array<int, num_dims + 1> sizes_{0, 0, 0, 0, 0, 1};  ///< ranks with equal coordinates before a dimension
};

}  // namespace

std::array<halo::Range, num_dims> BlockLayout::owned(int rank) const {
  const auto coordinate = grid.coordinate(rank);
  std::array<halo::Range, num_dims> box;
  for (std::size_t d = 0; d < num_dims; ++d) {
    box[d] = is_replicated(*this, d)
                 ? halo::Range{0, extents.values[d]}
                 : halo::Range{border(*this, d, coordinate[d]), border(*this, d, coordinate[d] + 1)};
  }
  return box;
}

RedistributionTraffic received_traffic(const BlockLayout& from, const BlockLayout& to, int rank,
                                       const std::vector<RankRange>& company) {
  const auto box = to.owned(rank);
  if (std::ranges::any_of(box, [](const halo::Range& range) { return range.empty(); })) return {};
  // Messages stay in the replica of the rank.
  const int size = from.grid.size(), mine = rank % size;
  const int replica = rank - mine;
  const Owners owners(from, box, rank);
  const Share self = owners.of(mine, mine + 1), all = owners.of(0, size);
  Share node;
  for (const RankRange& range : company)
    node += owners.of(std::max(0, range.first - replica), std::min(size, range.last - replica));
  return {.self = self.elements,
          .node = node.elements - self.elements,
          .node_messages = node.messages - self.messages,
          .far = all.elements - node.elements,
          .far_messages = all.messages - node.messages};
}

}  // namespace aloni::model
