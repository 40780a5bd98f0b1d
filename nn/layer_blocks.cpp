#include <aloni/nn/layer_blocks.hpp>

#include <aloni/nn/detail/block_range.hpp>
#include <aloni/nn/network_plan.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

namespace aloni::nn {

namespace {

using detail::block_range;
using halo::Range;
using views::Box;
using views::Dim;
using views::Distribution;
using views::position;

bool overlap(const Range& a, const Range& b) { return std::max(a.lo, b.lo) < std::min(a.hi, b.hi); }

Range hull(const Range& a, const Range& b) {
  if (a.empty() || b.empty()) return a.empty() ? b : a;
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi)};
}

/// One kind of box: the ranges of each coordinate. Where the box is empty, so is the range.
struct Kind {
  bool of_output = false;
  std::function<Box(int)> box;
  std::optional<int> rank = {};    ///< with a box that is not empty
  std::vector<Range> ranges = {};  ///< of one dimension
};

constexpr std::size_t needed_kind = 0, forward_kind = 1;  // positions in the list
std::vector<Kind> kinds_of(const LayerPlan& layer) {
  std::vector<Kind> kinds{{false, [&](int r) { return layer.input_needed(r); }},
                          {true, [&](int r) { return layer.forward_work(r); }},
                          {false, [&](int r) { return layer.input_needed_by_owned(r); }}};
  if (!layer.convolution) return kinds;
  kinds.push_back({false, [&](int r) { return layer.input_work(r); }});
  kinds.push_back({true, [&](int r) { return layer.output_work(r); }});
  kinds.push_back({true, [&](int r) { return layer.output_gradient_needed(r); }});
  return kinds;
}

class Finder {
 public:
  explicit Finder(const LayerPlan& layer) : layer_(layer), grid_(layer.output.grid()), kinds_(kinds_of(layer)) {}

  LayerBlocks find() {
    LayerBlocks blocks{.grid = grid_};
    for (const Dim d : views::all_dims) blocks.dimensions[position(d)] = find(d);
    if (!layer_.recomputed.empty() && !recomputes_products()) {
      blocks.are_products = false;
      blocks.representatives.resize(static_cast<std::size_t>(layer_.output.ranks()));
      std::iota(blocks.representatives.begin(), blocks.representatives.end(), 0);
      return blocks;
    }
    std::array<std::vector<int>, views::num_dims> first;
    for (std::size_t i = 0; i < first.size(); ++i) {
      const std::vector<int>& classes = blocks.dimensions[i].classes;
      int next = 0;
      for (std::size_t c = 0; c < classes.size(); ++c) {
        if (classes[c] < next) continue;
        first[i].push_back(static_cast<int>(c));
        ++next;
      }
    }
    blocks.representatives = grid_.ranks_of(first);
    return blocks;
  }

 private:
  LayerBlocks::Dimension find(Dim d) {
    LayerBlocks::Dimension found;
    const int blocks = grid_[d];
    found.classes.assign(static_cast<std::size_t>(blocks), 0);
    if (blocks == 1 && layer_.recomputed.empty()) return found;
    std::map<std::vector<Index>, int> classes;
    const auto class_of = [&](std::vector<Index> description) {
      return classes.try_emplace(std::move(description), static_cast<int>(classes.size())).first->second;
    };
    if (owns_all_it_needs(d)) {
      for (int c = 0; c < blocks; ++c) {
        const Range own = block_range(layer_.input, d, c);
        found.classes[static_cast<std::size_t>(c)] = class_of({own.hi - own.lo});
      }
      return found;
    }
    for (Kind& kind : kinds_) find_ranges(kind, d);
    if (!layer_.recomputed.empty()) recomputed_[position(d)] = kinds_[forward_kind].ranges;
    if (blocks == 1) return found;
    found.needed = kinds_[needed_kind].ranges;
    found.neighbours = neighbours(d);
    for (int c = 0; c < blocks; ++c)
      found.classes[static_cast<std::size_t>(c)] =
          class_of(description(d, c, found.neighbours[static_cast<std::size_t>(c)]));
    return found;
  }

  /// Whether all boxes are equal to the owned block in this dimension.
  bool owns_all_it_needs(Dim d) const {
    const bool identity = layer_.range_map ? (*layer_.range_map)[d].identity() : layer_.stencil[d].identity();
    return identity && layer_.recomputed.empty() && !(layer_.convolution && d == Dim::channel) &&
           !layer_.input.replicated(d) && !layer_.output.replicated(d) &&
           layer_.input.borders(d) == layer_.output.borders(d);
  }

  /// Boxes are products: each range shows in the box of a rank with this coordinate, if nothing else makes it empty.
  void find_ranges(Kind& kind, Dim d) {
    if (!kind.rank) {
      kind.rank = -1;
      for (int r = 0; r < grid_.size() && *kind.rank < 0; ++r)
        if (!kind.box(r).empty()) kind.rank = r;
    }
    kind.ranges.assign(static_cast<std::size_t>(grid_[d]), {});
    if (*kind.rank < 0) return;
    auto coordinate = grid_.coordinate(*kind.rank);
    for (int c = 0; c < grid_[d]; ++c) {
      coordinate[position(d)] = c;
      const Box box = kind.box(grid_.rank_of(coordinate));
      if (!box.empty()) kind.ranges[static_cast<std::size_t>(c)] = {box.lower(d), box.upper(d)};
    }
  }

  std::vector<std::vector<int>> neighbours(Dim d) const {
    const int blocks = grid_[d];
    std::vector<std::vector<int>> all(static_cast<std::size_t>(blocks));
    for (int c = 0; c < blocks; ++c) all[static_cast<std::size_t>(c)].push_back(c);
    for (const bool of_output : {false, true}) {
      const Distribution& owner = of_output ? layer_.output : layer_.input;
      if (owner.replicated(d)) continue;  // each coordinate owns all
      for (int c = 0; c < blocks; ++c) {
        Range range;  // planners also take hulls of boxes
        for (const Kind& kind : kinds_)
          if (kind.of_output == of_output) range = hull(range, kind.ranges[static_cast<std::size_t>(c)]);
        if (range.empty()) continue;
        for (int b = owner.block_of(d, range.lo); b <= owner.block_of(d, range.hi - 1); ++b) {
          all[static_cast<std::size_t>(c)].push_back(b);
          all[static_cast<std::size_t>(b)].push_back(c);
        }
      }
    }
    for (std::vector<int>& list : all) {
      std::ranges::sort(list);
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    return all;
  }

  /// All numbers that plans take from a coordinate, relative to its first input and its first output.
  std::vector<Index> description(Dim d, int c, const std::vector<int>& neighbours) const {
    const Index input = block_range(layer_.input, d, c).lo, output = block_range(layer_.output, d, c).lo;
    std::vector<Index> numbers;
    const auto add = [&](const Range& range, Index base) {
      numbers.push_back(range.empty() ? 0 : range.lo - base);
      numbers.push_back(range.empty() ? 0 : range.hi - range.lo);
    };
    for (const int other : neighbours) {
      numbers.push_back(other - c);
      add(block_range(layer_.input, d, other), input);
      add(block_range(layer_.output, d, other), output);
      for (const Kind& kind : kinds_)
        add(kind.ranges[static_cast<std::size_t>(other)], kind.of_output ? output : input);
    }
    if (d == Dim::channel) {
      if (layer_.convolution) describe_parts(c, input, output, numbers);
      return numbers;
    }
    // How windows lie. A window that is clipped at an end of the tensor shows in the ranges above.
    if (layer_.range_map) {
      const halo::RangeMap1D map = (*layer_.range_map)[d];
      const Range outputs =
          hull(block_range(layer_.output, d, c), kinds_[forward_kind].ranges[static_cast<std::size_t>(c)]);
      for (Index o = outputs.lo; o < outputs.hi; ++o) add(map.window(o), input);
    } else if (layer_.windowed) {
      const Index stride = layer_.stencil[d].stride;
      const bool transposed = layer_.convolution && layer_.convolution->transposed;
      numbers.push_back(transposed ? input * stride - output : output * stride - input);
    }
    return numbers;
  }

  /// What a convolution multiplies, and where its weights lie.
  void describe_parts(int c, Index input, Index output, std::vector<Index>& numbers) const {
    const views::Extents weights = layer_.weights();
    const Box kept = layer_.weights_needed(c);  // channels vary fastest: the rank with this coordinate, and others 0
    for (const ConvolutionPart& part : layer_.convolution->parts(c)) {
      const Box box = layer_.convolution->weights_of(part, weights);
      for (const Index number : {part.channels.lo - input, part.channels.hi - input, part.filters.lo - output,
                                 part.filters.hi - output, part.groups})
        numbers.push_back(number);
      for (const Dim d : {Dim::sample, Dim::channel}) {
        numbers.push_back(box.lower(d) - kept.lower(d));
        numbers.push_back(box.extent(d));
        numbers.push_back(kept.extent(d));
      }
    }
  }

  bool recomputes_products() const {
    for (int r = 0; r < layer_.output.ranks(); ++r) {
      const Box& box = layer_.recomputed[static_cast<std::size_t>(r)];
      const auto coordinate = grid_.coordinate(r);
      Box product;
      bool empty = false;
      for (const Dim d : views::all_dims) {
        const Range& range = recomputed_[position(d)][static_cast<std::size_t>(coordinate[position(d)])];
        product.set(d, range.lo, range.hi);
        empty = empty || range.empty();
      }
      if (empty ? !box.empty() : box != product) return false;
    }
    return true;
  }

  const LayerPlan& layer_;
  views::ProcessGrid grid_;
  std::vector<Kind> kinds_;
  std::array<std::vector<Range>, views::num_dims> recomputed_;
};

}  // namespace

LayerBlocks find_blocks(const LayerPlan& layer) { return Finder(layer).find(); }

std::vector<int> LayerBlocks::neighbours(int rank) const {
  const auto mine = grid.coordinate(rank);
  std::array<std::vector<int>, views::num_dims> coordinates;
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    const auto& lists = dimensions[i].neighbours;
    if (!are_products) {
      coordinates[i].resize(static_cast<std::size_t>(grid.blocks[i]));
      std::iota(coordinates[i].begin(), coordinates[i].end(), 0);
    } else if (lists.empty()) {
      coordinates[i] = {mine[i]};
    } else {
      coordinates[i] = lists[static_cast<std::size_t>(mine[i])];
    }
  }
  std::vector<int> ranks = grid.ranks_of(coordinates);
  for (int& r : ranks) r += rank - rank % grid.size();
  return ranks;
}

std::vector<Range> needed_ranges(const LayerPlan& layer, std::size_t input, Dim d) {
  const LayerInput& in = layer.inputs[input];
  std::vector<Range> ranges = layer.blocks.dimensions[position(d)].needed;
  if (ranges.empty())
    for (int c = 0; c < layer.input.grid()[d]; ++c) ranges.push_back(block_range(layer.input, d, c));
  if (d != Dim::channel || in.distribution.extents() == layer.input.extents()) return ranges;
  for (Range& range : ranges)
    range = {std::max<Index>(0, range.lo - in.channel_offset),
             std::min(in.distribution.extents()[d], range.hi - in.channel_offset)};
  return ranges;
}

namespace {

/// The coordinates that need an index of a range.
std::vector<int> readers_of(const LayerPlan& layer, std::size_t input, Dim d, const Range& range) {
  const LayerInput& in = layer.inputs[input];
  const bool own_channels = d == Dim::channel && in.distribution.extents() != layer.input.extents();
  std::vector<int> readers;
  if (layer.blocks.are_products && layer.blocks.dimensions[position(d)].needed.empty() && !own_channels) {
    if (range.empty()) return readers;
    for (int c = layer.input.block_of(d, range.lo); c <= layer.input.block_of(d, range.hi - 1); ++c)
      readers.push_back(c);
    return readers;
  }
  const std::vector<Range> ranges = needed_ranges(layer, input, d);
  for (std::size_t c = 0; c < ranges.size(); ++c)
    if (!layer.blocks.are_products || overlap(ranges[c], range)) readers.push_back(static_cast<int>(c));
  return readers;
}

}  // namespace

std::vector<int> readers_of(const LayerPlan& layer, std::size_t input, const Box& owned) {
  std::array<std::vector<int>, views::num_dims> coordinates;
  for (const Dim d : views::all_dims)
    coordinates[position(d)] = readers_of(layer, input, d, {owned.lower(d), owned.upper(d)});
  const views::ProcessGrid& grid = layer.input.grid();
  const std::vector<int> replica = grid.ranks_of(coordinates);
  std::vector<int> ranks;
  for (int first = 0; first < layer.input.ranks(); first += grid.size())
    for (const int r : replica) ranks.push_back(first + r);
  return ranks;
}

}  // namespace aloni::nn
