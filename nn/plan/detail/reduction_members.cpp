#include <aloni/nn/plan/detail/reduction_members.hpp>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

namespace aloni::nn::detail {

using views::Box;
using views::Dim;

namespace {

const std::vector<Dim> pixels_only{Dim::depth, Dim::height, Dim::width};
const std::vector<Dim> pixels_and_channels{Dim::depth, Dim::height, Dim::width, Dim::channel};
const std::vector<Dim> samples_and_pixels{Dim::sample, Dim::depth, Dim::height, Dim::width};

std::vector<int> members_of(const BatchNorm& op, const LayerPlan& plan, int rank) {
  if (op.scope == StatisticsScope::local) return {rank};
  if (op.scope == StatisticsScope::spatial) return plan.input.group(rank, pixels_only);
  std::vector<int> members = plan.input.group(rank, samples_and_pixels);
  if (op.scope != StatisticsScope::neighbours) return members;
  const auto place = std::ranges::find(members, rank) - members.begin();
  const auto first = place / op.ranks * op.ranks;
  const auto last = std::min<std::ptrdiff_t>(first + op.ranks, std::ssize(members));
  return {members.begin() + first, members.begin() + last};
}

/// The pixels of the samples of the rank, and the channels of its groups.
std::vector<int> members_of(const GroupNorm& op, const LayerPlan& plan, int rank) {
  const LinkedBlocks blocks = linked_blocks(op, plan, rank);
  std::vector<int> members = plan.input.group(rank, pixels_and_channels);
  std::erase_if(members, [&](int r) {
    const int block = plan.input.grid().coordinate(r)[views::position(Dim::channel)];
    return block < blocks.first || block >= blocks.end;
  });
  return members;
}

}  // namespace

LinkedBlocks linked_blocks(const GroupNorm& op, const LayerPlan& plan, int rank) {
  const std::vector<Index>& borders = plan.input.borders(Dim::channel);
  const Index width = plan.input.extents()[Dim::channel] / op.groups;
  const int mine = plan.input.grid().coordinate(rank)[views::position(Dim::channel)];
  const auto border = [&](int block) { return borders[static_cast<std::size_t>(block)]; };
  const auto cuts_a_group = [&](int block) { return border(block) % width != 0; };
  LinkedBlocks blocks{mine, mine + 1, {}};
  while (cuts_a_group(blocks.first)) --blocks.first;
  while (cuts_a_group(blocks.end)) ++blocks.end;
  blocks.channels = {border(blocks.first), border(blocks.end)};
  return blocks;
}

std::vector<int> members_of_sums(const Operation& operation, const LayerPlan& plan, int rank) {
  if (const auto* bn = std::get_if<BatchNorm>(&operation)) return members_of(*bn, plan, rank);
  if (const auto* gn = std::get_if<GroupNorm>(&operation)) return members_of(*gn, plan, rank);
  if (std::holds_alternative<LayerNorm>(operation)) return plan.input.group(rank, {Dim::channel});
  if (std::holds_alternative<GlobalAveragePooling>(operation)) return plan.input.group(rank, pixels_only);
  return {rank};
}

Index count_of(const BatchNorm& op, const LayerPlan& plan, const std::vector<int>& members) {
  if (op.scope == StatisticsScope::local || op.scope == StatisticsScope::neighbours) {
    Index count = 0;
    for (const int r : members) {
      const Box box = plan.input.owned(r);
      if (!box.empty()) count += box.size() / box.extent(Dim::channel);
    }
    return count;
  }
  // The members have equal channels, and all pixels: of all samples, or of their own.
  const Box mine = plan.input.owned(members.front());
  if (mine.extent(Dim::channel) == 0) return 0;
  const auto& e = plan.input.extents();
  const Index samples = op.scope == StatisticsScope::all ? e[Dim::sample] : mine.extent(Dim::sample);
  return samples * e[Dim::depth] * e[Dim::height] * e[Dim::width];
}

std::vector<int> members_of_gradients(int blocks, int ranks, int rank) {
  std::vector<int> members;
  for (int r = rank % blocks; r < ranks; r += blocks) members.push_back(r);
  return members;
}

std::vector<std::vector<int>> positions_by_node(const std::vector<int>& members, const MachineDescription& machine) {
  std::vector<std::vector<int>> nodes;
  if (machine.shared_memory && machine.nodes.empty()) nodes.resize(1);
  std::vector<std::pair<int, std::size_t>> found;  // node of the machine and its place in `nodes`, ascending
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int position = static_cast<int>(i);
    if (!machine.shared_memory) {
      nodes.push_back({position});
    } else if (machine.nodes.empty()) {
      nodes[0].push_back(position);
    } else {
      const int node = machine.nodes[static_cast<std::size_t>(members[i])];
      auto place = std::ranges::lower_bound(found, node, {}, &std::pair<int, std::size_t>::first);
      if (place == found.end() || place->first != node) {
        place = found.insert(place, {node, nodes.size()});
        nodes.emplace_back();
      }
      nodes[place->second].push_back(position);
    }
  }
  return nodes;
}

}  // namespace aloni::nn::detail
