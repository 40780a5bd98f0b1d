#include <aloni/model/rank_placement.hpp>

#include <aloni/halo/placement/placement.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <variant>

namespace aloni::model {

namespace {

using views::Dim;

/// Ranks that share a block of samples. They have consecutive numbers.
int ranks_of_a_sample(const views::ProcessGrid& grid) { return grid.size() / grid[Dim::sample]; }

/// The least number of consecutive ranks, from rank 0 on, that fill whole nodes and exchange values with each other
/// only; all ranks if that is not possible. Splits with equal blocks are nested, so a redistribution stays within the
/// larger one of two groups. traffic_of() checks that.
int ranks_of_a_period(const nn::NetworkPlan& layers, const Machine& machine) {
  const int ranks = layers.input.ranks();
  if (!machine.planning.nodes.empty()) return ranks;  // nodes of a job are in any order
  Index period = machine.ranks_per_node;
  const auto include = [&](const views::Distribution& d) {
    if (period <= ranks) period = std::lcm(period, Index{ranks_of_a_sample(d.grid())});
  };
  include(layers.input);
  for (const nn::LayerPlan& layer : layers.layers) {
    include(layer.input);
    include(layer.output);
  }
  return period <= ranks && ranks % period == 0 ? static_cast<int>(period) : ranks;
}

/// The grid of the ranks [0, period) in the layer that splits samples most, or one of another size.
views::ProcessGrid grid_of(const nn::NetworkPlan& layers, int period) {
  views::ProcessGrid grid;
  for (const nn::LayerPlan& layer : layers.layers)
    if (ranks_of_a_sample(layer.output.grid()) > ranks_of_a_sample(grid)) grid = layer.output.grid();
  if (grid.size() > period) grid[Dim::sample] = std::max(1, period / ranks_of_a_sample(grid));
  return grid;
}

/// The bytes that ranks [0, period) send to each other in a step. Empty if they send to others. A sum over some ranks
/// counts as a ring.
std::optional<halo::TrafficMatrix> traffic_of(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                                              const MachineDescription& machine, nn::StepKind kind,
                                              const nn::StepOptions& step, int period) {
  halo::TrafficMatrix traffic;
  traffic.grid = grid_of(layers, period);
  for (int rank = 0; rank < period; ++rank) {
    const nn::StepPlan plan = nn::plan_step(network, layers, rank, kind, machine, step);
    std::map<int, double> bytes;
    for (const nn::PlanNode& node : plan.nodes) {
      if (const auto* transfer = std::get_if<nn::TransferWork>(&node.work)) {
        for (const nn::TransferItemPlan& item : transfer->items) {
          const auto element = nn::bytes_of(plan.buffers[static_cast<std::size_t>(item.source)].type);
          for (const halo::Message& m : transfer->adjoint ? item.plan.receives : item.plan.sends)
            bytes[m.peer] += static_cast<double>(m.elements) * static_cast<double>(element);
        }
      } else if (const auto* sum = std::get_if<nn::ReductionWork>(&node.work)) {
        const std::vector<int>& members = sum->members;
        const auto p = static_cast<double>(members.size());
        if (members.size() < 2 || static_cast<int>(members.size()) == plan.ranks || members.back() >= period) continue;
        const auto mine = std::ranges::find(members, rank);
        const int next = mine + 1 == members.end() ? members.front() : *(mine + 1);
        bytes[next] += 2 * (p - 1) / p * static_cast<double>(sum->elements) * static_cast<double>(bytes_of(sum->type));
      }
    }
    if (!bytes.empty() && bytes.rbegin()->first >= period) return std::nullopt;
    auto& sends = traffic.sends.emplace_back();
    for (const auto& [to, sent] : bytes) sends.push_back({to, sent});
  }
  return traffic;
}

double bytes_between_nodes(const halo::TrafficMatrix& traffic, const std::vector<int>& node_of) {
  double bytes = 0;
  for (std::size_t i = 0; i < traffic.sends.size(); ++i)
    for (const halo::TrafficMatrix::Share& s : traffic.sends[i])
      if (node_of[i] != node_of[static_cast<std::size_t>(s.to)]) bytes += s.bytes;
  return bytes;
}

/// The same ranks on nodes of the same sizes, as far as possible in their own order: the node of rank 0 is the first of
/// its size, and the ranks of a node ascend. Nodes of one size are alike, and so are the places on a node.
std::vector<int> in_order(const std::vector<int>& rank_of, const std::vector<int>& nodes) {
  std::map<int, std::vector<int>> places;  // of each node, ascending
  for (std::size_t r = 0; r < nodes.size(); ++r) places[nodes[r]].push_back(static_cast<int>(r));
  std::vector<int> unused;  // nodes in the order of their lowest ranks
  for (const int node : nodes)
    if (std::ranges::find(unused, node) == unused.end()) unused.push_back(node);
  std::map<int, int> renamed;
  std::map<int, std::size_t> taken;
  std::vector<int> ordered;
  for (const int place : rank_of) {
    const int node = nodes[static_cast<std::size_t>(place)];
    if (!renamed.contains(node)) {
      const auto same_size =
          std::ranges::find_if(unused, [&](int n) { return places.at(n).size() == places.at(node).size(); });
      renamed[node] = *same_size;
      unused.erase(same_size);
    }
    const int now = renamed.at(node);
    ordered.push_back(places.at(now)[taken[now]++]);
  }
  return ordered;
}

}  // namespace

RankPlacement place_ranks_of_step(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                                  const Machine& machine, nn::StepKind kind, const nn::StepOptions& step) {
  const int ranks = layers.input.ranks();
  const MachineDescription description = description_of(machine, ranks);
  const LinkCosts& far = machine.link(LinkKind::between_nodes);
  if (description.nodes.empty()) return {.reason = "all ranks are on one node"};
  if (far.seconds_per_byte <= 0) return {.reason = "the time of a byte between nodes is not known"};
  const int period = ranks_of_a_period(layers, machine);
  const std::vector<int> nodes(description.nodes.begin(), description.nodes.begin() + period);
  if (std::ranges::all_of(nodes, [&](int node) { return node == nodes.front(); }))
    return {.reason = "messages stay within nodes"};
  if (period > most_placed_ranks)
    return {.reason = std::to_string(period) + " ranks exchange values, and groups of at most " +
                      std::to_string(most_placed_ranks) + " are placed"};
  const auto traffic = traffic_of(network, layers, description, kind, step, period);
  if (!traffic) return {.reason = "groups of ranks exchange values with other groups"};

  RankPlacement placed;
  const double groups = static_cast<double>(ranks) / period;
  placed.bytes_in_order = placed.bytes_between_nodes = groups * bytes_between_nodes(*traffic, nodes);
  if (placed.bytes_in_order == 0) {
    placed.reason = "messages stay within nodes";
    return placed;
  }
  const LinkCosts& near = machine.link(description.shared_memory ? LinkKind::shared_memory : LinkKind::within_node);
  halo::SquareMatrix seconds_per_byte(period);
  for (int a = 0; a < period; ++a) {
    for (int b = 0; b < period; ++b) {
      const bool one_node = nodes[static_cast<std::size_t>(a)] == nodes[static_cast<std::size_t>(b)];
      // The ranks of a node share its link.
      seconds_per_byte(a, b) = one_node ? near.seconds_per_byte : far.seconds_per_byte * machine.ranks_per_node;
    }
  }
  constexpr std::int64_t work = 5'000'000;  // some 10 ms; the start with bricks is the best in most cases
  const std::vector<int> order = in_order(place(*traffic, seconds_per_byte, {.work = work}).rank_of, nodes);
  std::vector<int> placed_nodes;
  for (const int place : order) placed_nodes.push_back(nodes[static_cast<std::size_t>(place)]);
  const double bytes = groups * bytes_between_nodes(*traffic, placed_nodes);
  if (bytes >= placed.bytes_in_order || order.front() != 0) {
    placed.reason = "no other order sends fewer bytes between nodes";
    return placed;
  }
  placed.bytes_between_nodes = bytes;
  for (int first = 0; first < ranks; first += period)
    for (const int place : order) placed.rank_of.push_back(first + place);
  return placed;
}

}  // namespace aloni::model
