#include <aloni/nn/plan/representatives.hpp>

#include <aloni/core/comm/all_reduce_traffic.hpp>
#include <aloni/nn/detail/block_range.hpp>
#include <aloni/nn/plan/detail/reduction_members.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

namespace aloni::nn {

namespace {

using detail::block_range;
using halo::Range;
using views::Box;
using views::Dim;
using views::Distribution;
using views::num_dims;
using views::position;
using views::ProcessGrid;

Index length(const Range& r) { return std::max<Index>(0, r.hi - r.lo); }
Index overlap_of(const Range& a, const Range& b) { return length({std::max(a.lo, b.lo), std::min(a.hi, b.hi)}); }

/// Numbers equal values from 0.
template <class Value>
class Numbers {
 public:
  int of(const Value& value) { return known_.try_emplace(value, static_cast<int>(known_.size())).first->second; }

 private:
  std::map<Value, int> known_;
};

class RepresentativeFinder {
 public:
  RepresentativeFinder(const NetworkDescription& network, const NetworkPlan& layers, const MachineDescription& machine)
      : network_(network),
        layers_(layers),
        machine_(machine),
        classes_(static_cast<std::size_t>(layers.input.ranks()), 0),
        nodes_matter_(machine.shared_memory && !machine.nodes.empty()) {}

  Representatives find() {
    add_lengths(layers_.input);
    add_company();
    for (std::size_t i = 0; i < layers_.layers.size(); ++i) {
      const LayerPlan& layer = layers_.layers[i];
      if (!layer.blocks.are_products) {
        separate([](int r) { return r; });  // all ranks differ
        break;
      }
      for (std::size_t d = 0; d < num_dims; ++d)
        add_classes(layer.output.grid(), d, layer.blocks.dimensions[d].classes);
      add_nodes(layer.blocks);
      add_first_copies(layer.output);
      for (std::size_t k = 0; k < layer.inputs.size(); ++k) add_input(layer, k);
      add_statistics(network_.layers[i].operation, layer);
    }
    Representatives found;
    found.members.resize(static_cast<std::size_t>(number_));
    for (std::size_t r = 0; r < classes_.size(); ++r)
      found.members[static_cast<std::size_t>(classes_[r])].push_back(static_cast<int>(r));
    for (const std::vector<int>& members : found.members) found.ranks.push_back(members.front());
    return found;
  }

 private:
  int ranks() const { return static_cast<int>(classes_.size()); }

  /// Ranks with different values have different representatives.
  template <class ValueOf>
  void separate(const ValueOf& value_of) {
    std::map<std::pair<int, int>, int> next;
    for (int r = 0; r < ranks(); ++r) {
      int& mine = classes_[static_cast<std::size_t>(r)];
      mine = next.try_emplace({mine, value_of(r)}, static_cast<int>(next.size())).first->second;
    }
    number_ = static_cast<int>(next.size());
  }

  /// `classes`: of each coordinate of dimension d.
  void add_classes(const ProcessGrid& grid, std::size_t d, const std::vector<int>& classes) {
    if (std::ranges::all_of(classes, [](int c) { return c == 0; })) return;
    int stride = 1;
    for (std::size_t i = d + 1; i < num_dims; ++i) stride *= grid.blocks[i];
    if (!seen_classes_.emplace(stride, classes).second) return;
    separate([&](int r) { return classes[static_cast<std::size_t>(r / stride % grid.blocks[d])]; });
  }

  /// How much each block owns.
  void add_lengths(const Distribution& distribution) {
    for (const Dim d : views::all_dims) {
      if (distribution.grid()[d] == 1 || distribution.replicated(d)) continue;
      Numbers<Index> numbers;
      std::vector<int> classes;
      for (int c = 0; c < distribution.grid()[d]; ++c)
        classes.push_back(numbers.of(length(block_range(distribution, d, c))));
      add_classes(distribution.grid(), position(d), classes);
    }
  }

  /// Whether a rank shares memory with any other. Buffers may then lie in shared memory.
  void add_company() {
    if (!nodes_matter_) return;
    std::map<int, int> ranks_of_node;
    for (const int node : machine_.nodes) ++ranks_of_node[node];
    separate([&](int r) { return ranks_of_node[machine_.nodes[static_cast<std::size_t>(r)]] > 1 ? 1 : 0; });
  }

  /// Which neighbours share memory with a rank.
  void add_nodes(const LayerBlocks& blocks) {
    if (!nodes_matter_) return;
    std::array<std::vector<std::vector<int>>, num_dims> neighbours;
    for (std::size_t d = 0; d < num_dims; ++d) neighbours[d] = blocks.dimensions[d].neighbours;
    if (std::ranges::all_of(neighbours, [](const auto& lists) { return lists.empty(); })) return;
    if (!seen_neighbours_.emplace(blocks.grid.blocks, std::move(neighbours)).second) return;
    Numbers<std::vector<bool>> numbers;
    separate([&](int r) {
      std::vector<bool> shares;
      for (const int peer : blocks.neighbours(r)) shares.push_back(machine_.share_memory(r, peer));
      return numbers.of(shares);
    });
  }

  void add_first_copies(const Distribution& distribution) {
    std::array<bool, num_dims> replicated{};
    for (const Dim d : views::all_dims) replicated[position(d)] = distribution.replicated(d);
    if (!seen_copies_.emplace(distribution.grid().blocks, replicated).second) return;
    separate([&](int r) { return distribution.is_first_copy(r) ? 1 : 0; });
  }

  /// The transfers between a layer and the producer of one input. Messages between equal distributions follow from the
  /// classes of the layer.
  void add_input(const LayerPlan& layer, std::size_t input) {
    const LayerInput& in = layer.inputs[input];
    const Distribution& from = layers_.output_of(in.source);
    if (in.distribution != layer.input) add_lengths(in.distribution);
    if (in.distribution == from) return;
    if (in.distribution.grid() == from.grid()) {
      add_transfers_in_grid(layer, input, from);
    } else {
      add_transfers_between_grids(layer, input, from);
    }
  }

  /// The size of a message is a product over dimensions: the overlaps of coordinates in both passes.
  void add_transfers_in_grid(const LayerPlan& layer, std::size_t input, const Distribution& from) {
    const Distribution& to = layer.inputs[input].distribution;
    LayerBlocks blocks{.grid = from.grid()};
    for (const Dim d : views::all_dims) {
      const int number = from.grid()[d];
      if (number == 1) continue;
      const std::vector<Range> needed = needed_ranges(layer, input, d);
      const auto needed_of = [&](int c) { return needed[static_cast<std::size_t>(c)]; };
      const bool all_own = !from.replicated(d) && from.borders(d) == to.borders(d) &&
                           layer.blocks.dimensions[position(d)].needed.empty();
      if (all_own) continue;  // the lengths are known
      LayerBlocks::Dimension& dimension = blocks.dimensions[position(d)];
      dimension.neighbours.resize(static_cast<std::size_t>(number));
      dimension.classes.clear();
      Numbers<std::vector<Index>> numbers;
      for (int c = 0; c < number; ++c) {
        std::vector<Index> description;
        for (int other = 0; other < number; ++other) {
          // Of a replicated dimension a rank reads its own copy.
          const bool reads = !from.replicated(d) || c == other;
          const std::array<Index, 4> moved{reads ? overlap_of(needed_of(c), block_range(from, d, other)) : 0,
                                           reads ? overlap_of(needed_of(other), block_range(from, d, c)) : 0,
                                           overlap_of(block_range(to, d, other), block_range(from, d, c)),
                                           overlap_of(block_range(to, d, c), block_range(from, d, other))};
          if (c != other && std::ranges::all_of(moved, [](Index n) { return n == 0; })) continue;
          dimension.neighbours[static_cast<std::size_t>(c)].push_back(other);
          description.push_back(other - c);
          description.insert(description.end(), moved.begin(), moved.end());
        }
        dimension.classes.push_back(numbers.of(description));
      }
      add_classes(from.grid(), position(d), dimension.classes);
    }
    add_nodes(blocks);
  }

  /// Few layers change the grid: sizes of their messages are computed for each rank.
  void add_transfers_between_grids(const LayerPlan& layer, std::size_t input, const Distribution& from) {
    const LayerInput& in = layer.inputs[input];
    Numbers<std::vector<Index>> numbers;
    separate([&](int r) {
      std::vector<Index> description;
      describe(
          from, [&](int p) { return layer.needed_of(in, p); }, readers_of(layer, input, from.owned(r)), r, description);
      describe(
          in.distribution, [&](int p) { return from.owned(p); }, from.owners(in.distribution.owned(r)), r, description);
      return numbers.of(description);
    });
  }

  /// Sizes of the messages of a redistribution, and whether their peers share memory with the rank.
  /// `readers`: ranks that may need cells of the rank.
  void describe(const Distribution& source, const halo::NeededBox& needed, const std::vector<int>& readers, int rank,
                std::vector<Index>& description) const {
    const Box own = source.owned(rank), box = needed(rank);
    const auto mine = source.grid().coordinate(rank);
    const int first = rank - rank % source.grid().size();
    // Messages stay within the replica. A rank reads its own copy of a replicated dimension.
    const auto may_be_peer = [&](int peer) {
      if (peer == rank || peer < first || peer >= first + source.grid().size()) return false;
      const auto theirs = source.grid().coordinate(peer);
      return std::ranges::all_of(
          views::all_dims, [&](Dim d) { return !source.replicated(d) || theirs[position(d)] == mine[position(d)]; });
    };
    const auto add = [&](const std::vector<int>& peers, const auto& common) {
      std::vector<Index> sizes;
      for (const int peer : peers) {
        if (!may_be_peer(peer)) continue;
        const Index elements = common(peer);
        if (elements > 0) sizes.push_back(2 * elements + (machine_.share_memory(rank, peer) ? 1 : 0));
      }
      std::ranges::sort(sizes);
      description.push_back(static_cast<Index>(sizes.size()));
      description.insert(description.end(), sizes.begin(), sizes.end());
    };
    add(readers, [&](int peer) { return intersect(needed(peer), own).size(); });
    add(source.owners(box), [&](int peer) { return intersect(box, source.owned(peer)).size(); });
    description.push_back(intersect(box, own).size());
  }

  /// Group normalisation: how many groups the ranks of a block have, and whether they have them alone.
  void add_groups(const GroupNorm& op, const LayerPlan& layer) {
    Numbers<std::pair<Index, bool>> numbers;
    std::vector<int> classes;
    for (int c = 0; c < layer.input.grid()[Dim::channel]; ++c) {
      const detail::LinkedBlocks linked = detail::linked_blocks(op, layer, c);  // channels vary fastest
      classes.push_back(numbers.of({length(linked.channels), linked.end - linked.first > 1}));
    }
    add_classes(layer.input.grid(), position(Dim::channel), classes);
  }

  /// The ranks that add sums differ for some operations: one may be alone, or have no data.
  void add_statistics(const Operation& operation, const LayerPlan& layer) {
    if (const auto* gn = std::get_if<GroupNorm>(&operation)) return add_groups(*gn, layer);
    const auto* bn = std::get_if<BatchNorm>(&operation);
    if (bn == nullptr || bn->scope != StatisticsScope::neighbours) return;
    if (!seen_neighbour_statistics_.emplace(layer.input.grid().blocks, bn->ranks, has_data_of_each(layer)).second)
      return;
    std::vector<int> values(classes_.size(), -1);
    for (int r = 0; r < ranks(); ++r) {
      if (values[static_cast<std::size_t>(r)] >= 0) continue;
      const std::vector<int> members = detail::members_of_sums(operation, layer, r);
      const int value = (members.size() > 1 ? 1 : 0) + (detail::count_of(*bn, layer, members) > 0 ? 2 : 0);
      for (const int m : members) values[static_cast<std::size_t>(m)] = value;
    }
    separate([&](int r) { return values[static_cast<std::size_t>(r)]; });
  }

  std::vector<bool> has_data_of_each(const LayerPlan& layer) const {
    std::vector<bool> has_data;
    for (int r = 0; r < ranks(); ++r) has_data.push_back(!layer.input.owned(r).empty());
    return has_data;
  }

  const NetworkDescription& network_;
  const NetworkPlan& layers_;
  const MachineDescription& machine_;
  std::vector<int> classes_;  ///< per rank, numbered in the order of their lowest ranks
  int number_ = 1;            ///< of classes
  bool nodes_matter_;
  // Most layers of a network repeat these.
  using Blocks = std::array<int, num_dims>;
  std::set<std::pair<int, std::vector<int>>> seen_classes_;
  std::set<std::pair<Blocks, std::array<std::vector<std::vector<int>>, num_dims>>> seen_neighbours_;
  std::set<std::pair<Blocks, std::array<bool, num_dims>>> seen_copies_;
  std::set<std::tuple<Blocks, int, std::vector<bool>>> seen_neighbour_statistics_;
};

}  // namespace

Representatives find_representatives(const NetworkDescription& network, const NetworkPlan& layers,
                                     const MachineDescription& machine) {
  return RepresentativeFinder(network, layers, machine).find();
}

// --- reductions ---

class ReductionCosts::Cache {
 public:
  Cache(const NetworkDescription& network, const NetworkPlan& layers, const MachineDescription& machine)
      : network_(network), layers_(layers), machine_(machine) {}

  std::vector<ReductionCost> of(const StepPlan& plan, const std::vector<int>& ranks) {
    // Many reductions are equal: layers and buckets of one size.
    std::map<std::tuple<const Groups*, Index, int, bool>, Index> reductions;
    ReductionCost regions;  // equal on all ranks
    bool partial = false;
    for (const PlanNode& node : plan.nodes) {
      const auto* work = std::get_if<ReductionWork>(&node.work);
      if (work == nullptr) continue;
      ++reductions[{&groups_of(node, *work), work->travelling_elements(), static_cast<int>(bytes_of(work->type)),
                    work->segment >= 0}];
      partial = partial || work->partial;
      const NodeCost cost = cost_of_regions(plan, node);
      regions.all += cost;
      if (work->segment >= 0) regions.gradients += cost;
    }
    std::vector<ReductionCost> costs(ranks.size(), regions);
    for (const auto& [reduction, times] : reductions) {
      const auto& [groups, elements, element_bytes, of_gradients] = reduction;
      std::vector<const std::vector<comm::AllReduceTraffic>*> traffic(topologies_.size(), nullptr);
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        const auto rank = static_cast<std::size_t>(ranks[i]);
        const auto topology = static_cast<std::size_t>(groups->topology[rank]);
        if (traffic[topology] == nullptr) traffic[topology] = &traffic_of(topology, elements, element_bytes);
        const comm::AllReduceTraffic& t = (*traffic[topology])[static_cast<std::size_t>(groups->position[rank])];
        const NodeCost cost{.flops = static_cast<double>(times * t.elements_combined),
                            .bytes_sent = times * t.elements_sent * element_bytes,
                            .bytes_received = times * t.elements_received * element_bytes,
                            .messages_sent = times * t.messages_sent,
                            .messages_received = times * t.messages_received};
        costs[i].all += cost;
        if (of_gradients) costs[i].gradients += cost;
      }
    }
    for (std::size_t i = 0; partial && i < ranks.size(); ++i) {
      const NodeCost words = words_of_a_round(ranks[i], plan.ranks);
      costs[i].all += words;
      costs[i].gradients += words;
    }
    return costs;
  }

 private:
  /// All ranks, divided into the groups that add sums.
  struct Groups {
    std::vector<int> position;  ///< of each rank in its group
    std::vector<int> topology;  ///< of each rank: how its group lies on the nodes
  };
  using Topology = std::vector<std::vector<int>>;

  const Groups& groups_of(const PlanNode& node, const ReductionWork& work) {
    const int ranks = layers_.input.ranks();
    if (work.segment >= 0 || node.layer < 0) {  // gradients; the loss
      const int blocks = work.members.size() > 1 ? work.members[1] - work.members[0] : ranks;
      return groups({blocks}, [&](int r) { return detail::members_of_gradients(blocks, ranks, r); });
    }
    const auto layer = static_cast<std::size_t>(node.layer);
    const Operation& operation = network_.layers[layer].operation;
    const LayerPlan& plan = layers_.layers[layer];
    // The rest of members_of_sums()'s arguments, and borders between blocks of channels that divide groups.
    std::vector<int> key{0, 0, 0};
    const bool splits_channels = plan.input.grid()[Dim::channel] > 1;
    if (const auto* bn = std::get_if<BatchNorm>(&operation)) key = {1 + static_cast<int>(bn->scope), bn->ranks, 0};
    if (const auto* gn = std::get_if<GroupNorm>(&operation); gn != nullptr && splits_channels)
      key = {-1, static_cast<int>(gn->groups), static_cast<int>(plan.input.extents()[Dim::channel])};
    if (std::holds_alternative<LayerNorm>(operation)) key = {-2, 0, 0};
    key.insert(key.end(), plan.input.grid().blocks.begin(), plan.input.grid().blocks.end());
    return groups(std::move(key), [&](int r) { return detail::members_of_sums(operation, plan, r); });
  }

  const Groups& groups(std::vector<int> key, const std::function<std::vector<int>(int)>& members_of) {
    const auto [place, added] = groups_.try_emplace(std::move(key));
    Groups& groups = place->second;
    if (!added) return groups;
    const auto ranks = static_cast<std::size_t>(layers_.input.ranks());
    groups.position.assign(ranks, -1);
    groups.topology.assign(ranks, -1);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (groups.position[r] >= 0) continue;
      const std::vector<int> members = members_of(static_cast<int>(r));
      const int topology = numbers_.of(detail::positions_by_node(members, machine_));
      if (static_cast<std::size_t>(topology) == topologies_.size())
        topologies_.push_back(detail::positions_by_node(members, machine_));
      for (std::size_t i = 0; i < members.size(); ++i) {
        groups.position[static_cast<std::size_t>(members[i])] = static_cast<int>(i);
        groups.topology[static_cast<std::size_t>(members[i])] = topology;
      }
    }
    return groups;
  }

  const std::vector<comm::AllReduceTraffic>& traffic_of(std::size_t topology, Index elements, int element_bytes) {
    const auto [place, added] = traffic_.try_emplace({topology, elements, element_bytes});
    if (added)
      place->second = comm::all_reduce_traffic(topologies_[topology], machine_.shared_memory, elements, element_bytes,
                                               machine_.tuning);
    return place->second;
  }

  const NetworkDescription& network_;
  const NetworkPlan& layers_;
  const MachineDescription& machine_;
  std::map<std::vector<int>, Groups> groups_;
  Numbers<Topology> numbers_;
  std::vector<Topology> topologies_;
  std::map<std::tuple<std::size_t, Index, int>, std::vector<comm::AllReduceTraffic>> traffic_;
};

ReductionCosts::ReductionCosts(const NetworkDescription& network, const NetworkPlan& layers,
                               const MachineDescription& machine)
    : cache_(std::make_unique<Cache>(network, layers, machine)) {}
ReductionCosts::~ReductionCosts() = default;

std::vector<ReductionCost> ReductionCosts::of(const StepPlan& plan, const std::vector<int>& ranks) {
  return cache_->of(plan, ranks);
}

}  // namespace aloni::nn
