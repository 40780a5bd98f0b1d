#pragma once
// Small random step graphs, and a memory of hashes that tells whether their nodes ran in a right order.
#include <aloni/nn/step_graph.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn::test_step_graph {

using views::Box;

/// Addresses that identify different memory blocks.
inline constexpr std::array<char, 16> blocks{};

inline Access reads(int block, const Box& box) { return {&blocks[static_cast<std::size_t>(block)], box, false}; }
inline Access writes(int block, const Box& box) { return {&blocks[static_cast<std::size_t>(block)], box, true}; }
inline Box rows(Index low, Index high) { return {{0, 0, low, 0, 0}, {1, 1, high, 4, 1}}; }

inline StepNode kernel(std::string label, std::vector<Access> accesses) {
  return {std::move(label), NodeKind::kernel, std::move(accesses)};
}
inline StepNode transfer(std::string label, std::vector<Access> accesses) {
  return {std::move(label), NodeKind::transfer, std::move(accesses)};
}
inline StepNode collective(std::string label, std::vector<Access> accesses) {
  return {std::move(label), NodeKind::collective, std::move(accesses)};
}

using Lines = std::vector<std::string>;

inline Lines lines(const StepGraph& graph, const std::vector<StepAction>& actions) {
  Lines text;
  for (const StepAction& a : actions) {
    const char* const what = a.kind == StepActionKind::run     ? "run "
                             : a.kind == StepActionKind::start ? "start "
                                                               : "finish ";
    text.push_back(what + graph.nodes[static_cast<std::size_t>(a.node)].label);
  }
  return text;
}

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  /// In [low, high].
  int operator()(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(int n) { return (*this)(1, n) == 1; }

 private:
  std::mt19937_64 random_;
};

/// How much memory a node touches: few blocks and large boxes make a chain; many blocks and small boxes leave nodes
/// independent.
struct Density {
  int blocks, largest_extent, most_accesses;
};

inline Density random_density(Dice& dice) { return {dice(1, 12), dice(1, 3), dice(1, 4)}; }

/// An access within [-1,3) in height and width, sometimes empty or without memory.
inline Access random_access(Dice& dice, const Density& density) {
  Access a{&blocks[static_cast<std::size_t>(dice(0, density.blocks - 1))],
           {{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}},
           dice.one_in(2)};
  for (const std::size_t d : {2u, 3u}) {
    const int extent = dice.one_in(20) ? 0 : dice(1, density.largest_extent);
    a.box.lo[d] = dice(-1, 3 - extent);
    a.box.hi[d] = a.box.lo[d] + extent;
  }
  if (dice.one_in(20)) a.memory = nullptr;
  return a;
}

inline StepNode random_node(Dice& dice, const Density& density, NodeKind kind) {
  StepNode node{"", kind, {}};
  for (int n = dice(0, density.most_accesses); n > 0; --n) node.accesses.push_back(random_access(dice, density));
  return node;
}

inline StepGraph random_graph(Dice& dice) {
  const Density density = random_density(dice);
  const int kernels_in_ten = dice(1, 9);
  StepGraph graph;
  for (int n = dice(1, 24); n > 0; --n) {
    const NodeKind kind = dice(1, 10) <= kernels_in_ten ? NodeKind::kernel
                          : dice.one_in(2)              ? NodeKind::transfer
                                                        : NodeKind::collective;
    graph.nodes.push_back(random_node(dice, density, kind));
    graph.nodes.back().label = std::to_string(graph.nodes.size() - 1);
  }
  return graph;
}

using Cell = std::pair<const void*, std::array<Index, views::num_dims>>;

inline std::vector<Cell> cells(const Access& access) {
  std::vector<Cell> all;
  if (access.memory == nullptr) return all;
  const Box& b = access.box;
  std::array<Index, views::num_dims> i{};
  for (i[0] = b.lo[0]; i[0] < b.hi[0]; ++i[0])
    for (i[1] = b.lo[1]; i[1] < b.hi[1]; ++i[1])
      for (i[2] = b.lo[2]; i[2] < b.hi[2]; ++i[2])
        for (i[3] = b.lo[3]; i[3] < b.hi[3]; ++i[3])
          for (i[4] = b.lo[4]; i[4] < b.hi[4]; ++i[4]) all.push_back({access.memory, i});
  return all;
}

inline std::vector<Cell> cells(const StepNode& node, bool written) {
  std::vector<Cell> all;
  for (const Access& a : node.accesses) {
    if (a.writes != written) continue;
    const auto more = cells(a);
    all.insert(all.end(), more.begin(), more.end());
  }
  std::ranges::sort(all);
  const auto [from, to] = std::ranges::unique(all);
  all.erase(from, to);
  return all;
}

inline std::vector<ScheduleOptions> other_orders(Dice& dice) {
  return {{.kernels_ahead = dice(1, 3)}, {.seed = static_cast<std::uint64_t>(dice(1, 1 << 30))}};
}

/// Memory whose cells hold hashes of all data that went into them. A node may also read the cells that it writes,
/// like a sum in place.
class HashedMemory {
 public:
  /// Hash of all cells that the node reads or writes, or only of cells that it reads and does not write.
  std::uint64_t read(const StepNode& node, bool unwritten_only = false) const {
    std::uint64_t hash = 1;
    const auto written = cells(node, true);
    for (const Cell& c : cells(node, false))
      if (!unwritten_only || !std::ranges::binary_search(written, c)) hash = mix(hash, value(c));
    if (unwritten_only) return hash;
    for (const Cell& c : written) hash = mix(hash, value(c));
    return hash;
  }
  /// The hash depends on the node, on the data that it read, and on the cell.
  void write(const StepNode& node, std::uint64_t number, std::uint64_t read) {
    for (const Cell& c : cells(node, true)) values_[c] = mix(mix(read, number), position(c));
  }
  friend bool operator==(const HashedMemory&, const HashedMemory&) = default;

 private:
  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    a = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    return a ^ (a >> 29);
  }
  static std::uint64_t position(const Cell& c) {
    auto hash = static_cast<std::uint64_t>(static_cast<const char*>(c.first) - blocks.data());
    for (const Index i : c.second) hash = mix(hash, static_cast<std::uint64_t>(i));
    return hash;
  }
  std::uint64_t value(const Cell& c) const {
    const auto place = values_.find(c);
    return place == values_.end() ? position(c) : place->second;
  }

  std::map<Cell, std::uint64_t> values_;
};

/// What a step has computed: the memory, and what each node has read, because some nodes write nothing. Other ranks may
/// read until a communication finishes: `last_read` is what they read then, without the cells that it writes.
struct HashedResult {
  HashedMemory memory;
  std::map<int, std::uint64_t> read = {}, last_read = {};

  friend bool operator==(const HashedResult&, const HashedResult&) = default;
};

/// Runs an action. Communication reads at its start, and writes at its finish; in between it may write anything, so it
/// writes rubbish.
inline void act(const StepGraph& graph, const StepAction& action, HashedResult& result) {
  constexpr std::uint64_t rubbish = 0xbeef;
  const StepNode& node = graph.nodes[static_cast<std::size_t>(action.node)];
  if (action.kind == StepActionKind::finish) {
    result.last_read[action.node] = result.memory.read(node, true);
  } else {
    result.read[action.node] = result.memory.read(node);
  }
  result.memory.write(node, static_cast<std::uint64_t>(action.node),
                      action.kind == StepActionKind::start ? rubbish : result.read[action.node]);
}

/// One of up to four streams for each action.
inline std::vector<int> random_streams(Dice& dice, std::size_t actions) {
  const int streams = dice(1, 4);
  std::vector<int> stream_of;
  for (std::size_t a = 0; a < actions; ++a) stream_of.push_back(dice(0, streams - 1));
  return stream_of;
}

/// Memory after the nodes have run in the order of the list.
inline HashedMemory one_after_the_other(const StepGraph& graph) {
  HashedMemory memory;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) memory.write(graph.nodes[i], i, memory.read(graph.nodes[i]));
  return memory;
}

}  // namespace aloni::nn::test_step_graph
