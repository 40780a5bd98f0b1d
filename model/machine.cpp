#include <aloni/model/machine.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/communication.hpp>
#include <aloni/model/kernel_times.hpp>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace aloni::model {

std::string_view name(LinkKind kind) {
  constexpr std::array<std::string_view, link_kinds> names{"self", "shared_memory", "within_node", "between_nodes"};
  return names[static_cast<std::size_t>(kind)];
}

MachineDescription description_of(const Machine& machine, int ranks, const std::vector<int>& rank_of) {
  constexpr const char* operation = "aloni::model::description_of";
  const int most = machine.most_nodes * machine.ranks_per_node;
  if (ranks < 1 || (most > 0 && ranks > most)) {
    throw InvalidArgument(
        operation, "ranks", std::to_string(ranks),
        most > 0 ? "1 to " + std::to_string(most) + ", the ranks of the machine " + machine.name : "at least 1");
  }
  MachineDescription description = machine.planning;
  if (description.nodes.empty()) {
    description.nodes = machine_of_nodes(ranks, ranks > machine.ranks_per_node ? machine.ranks_per_node : 0).nodes;
  } else if (static_cast<int>(description.nodes.size()) != ranks) {
    throw InvalidArgument(operation, "ranks", std::to_string(ranks),
                          std::to_string(description.nodes.size()) + ", whose nodes machine.planning names");
  } else if (number_of_nodes(description) == 1) {
    description.nodes.clear();
  }
  if (!rank_of.empty()) {
    std::vector<int> places(rank_of);
    std::ranges::sort(places);
    for (int r = 0; r < ranks; ++r) {
      if (static_cast<int>(places.size()) == ranks && places[static_cast<std::size_t>(r)] == r) continue;
      throw InvalidArgument(operation, "rank_of", std::to_string(rank_of.size()) + " places",
                            "each of the " + std::to_string(ranks) + " ranks once");
    }
    if (!description.nodes.empty()) {
      const std::vector<int> nodes = std::move(description.nodes);
      description.nodes.clear();
      for (const int place : rank_of) description.nodes.push_back(nodes[static_cast<std::size_t>(place)]);
    }
  }
  description.tuning = all_reduces_of(machine, description, ranks);
  if (const ConvolutionTable* table = convolutions_for(machine, ranks)) description.convolutions = table->measured;
  description.work_per_copied_byte = work_per_copied_byte(machine);
  return description;
}

WorkPerCopiedByte work_per_copied_byte(const Machine& machine) {
  const Processor& p = machine.processor;
  if (machine.planning.on_host || !(p.host_bandwidth > 0 && p.float32_flops > 0 && p.node_bandwidth > 0))
    return machine.planning.work_per_copied_byte;
  constexpr double much = 1e15;  // more than any cache holds
  const auto work = [&](KernelCall call) {
    return much /
           (p.host_bandwidth * roofline_seconds(machine, call, machine.ranks_per_node, machine.threads_per_rank));
  };
  const auto convolution = [&](nn::ElementType type) {
    return work({.kind = KernelKind::convolution_forward, .type = type, .flops = much});
  };
  return {.flops = convolution(nn::ElementType::float32),
          .flops_16_bit = convolution(nn::ElementType::bfloat16),
          .traffic = work({.bytes = much})};
}

LinkKind link_between(const MachineDescription& description, int a, int b) {
  if (a == b) return LinkKind::self;
  if (description.share_memory(a, b)) return LinkKind::shared_memory;
  const bool one_node = description.nodes.empty() || description.nodes[static_cast<std::size_t>(a)] ==
                                                         description.nodes[static_cast<std::size_t>(b)];
  return one_node ? LinkKind::within_node : LinkKind::between_nodes;
}

const KernelTable* table_for(const Machine& machine, int ranks_per_node, int threads_per_rank) {
  const auto found = std::ranges::find_if(machine.kernels, [&](const KernelTable& table) {
    return table.ranks_per_node == ranks_per_node && table.threads_per_rank == threads_per_rank;
  });
  return found == machine.kernels.end() ? nullptr : &*found;
}

KernelTable& own_kernels(Machine& machine) {
  for (KernelTable& table : machine.kernels)
    if (table.ranks_per_node == machine.ranks_per_node && table.threads_per_rank == machine.threads_per_rank)
      return table;
  machine.kernels.push_back({machine.ranks_per_node, machine.threads_per_rank, {}});
  return machine.kernels.back();
}

const ConvolutionTable* convolutions_for(const Machine& machine, int ranks) {
  const int per_node = std::min(ranks, machine.ranks_per_node);
  const ConvolutionTable* nearest = nullptr;
  for (const ConvolutionTable& table : machine.convolutions) {
    if (table.threads_per_rank != machine.threads_per_rank ||
        table.compute_capability != machine.planning.compute_capability)
      continue;
    const auto distance = [&](const ConvolutionTable& t) { return std::abs(t.ranks_per_node - per_node); };
    if (!nearest || distance(table) < distance(*nearest)) nearest = &table;
  }
  return nearest;
}

Machine generic_machine() {
  Machine machine{.name = "generic", .ranks_per_node = 2};
  machine.provenance = {{"all", "round figures for a core of a server of 2020; nothing is measured"}};
  machine.processor = {.name = "generic",
                       .cores_per_node = 2,
                       .float32_flops = 100e9,
                       .float64_flops = 50e9,
                       .bfloat16_flops = 100e9,
                       .core_bandwidth = 12e9,
                       .node_bandwidth = 20e9,
                       .core_cache_bytes = 1 << 20,
                       .node_cache_bytes = 32 << 20,
                       .core_cache_bandwidth = 80e9,
                       .node_cache_bandwidth = 30e9,
                       .kernel_seconds = 1e-6};
  machine.links = {
      {{0, 1 / 12e9, 0.2e-6}, {0.5e-6, 1 / 10e9, 0.5e-6}, {1e-6, 1 / 6e9, 0.5e-6}, {10e-6, 1 / 1e9, 1e-6}}};
  machine.combine_seconds_per_byte = 1 / 10e9;
  machine.exchange_seconds = 1e-6;
  return machine;
}

}  // namespace aloni::model
