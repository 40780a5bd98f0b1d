#include <aloni/nn/plan/memory.hpp>

#include <aloni/nn/plan/cost.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <variant>

namespace aloni::nn {

namespace {

/// Packed messages of a node, in bytes; 0 for nodes that are no transfers.
Index message_bytes(const StepPlan& plan, const PlanNode& node, const MachineDescription& machine) {
  const auto* transfer = std::get_if<TransferWork>(&node.work);
  return transfer == nullptr ? 0 : packed_bytes(plan, *transfer, machine);
}

/// Whether the buffer is a gradient of parameters whose memory other buffers use before and after it.
bool is_lent(const StepPlan& plan, const PlanBuffer& buffer) {
  return lends_gradient_memory(plan) && buffer.role == BufferRole::parameter_gradients;
}

}  // namespace

int MemoryOverNodes::peak_node() const {
  return at_nodes.empty() ? -1 : static_cast<int>(std::ranges::max_element(at_nodes) - at_nodes.begin());
}

MemoryOverNodes memory_over_nodes(const StepPlan& plan, const MachineDescription& machine) {
  MemoryOverNodes use;
  std::vector<Index> changes(plan.nodes.size() + 1, 0);  // from the node before
  for (const PlanBuffer& buffer : plan.buffers) {
    if (buffer.alias != no_buffer || buffer.adopted || buffer.on_host()) continue;
    if (has_own_memory(buffer) && !is_lent(plan, buffer)) {
      use.always += buffer.bytes();
    } else if (buffer.first >= 0) {
      changes[static_cast<std::size_t>(buffer.first)] += buffer.bytes();
      changes[static_cast<std::size_t>(buffer.last) + 1] -= buffer.bytes();
      for (const NodeRange& unused : buffer.unused) {
        changes[static_cast<std::size_t>(unused.first)] -= buffer.bytes();
        changes[static_cast<std::size_t>(unused.last) + 1] += buffer.bytes();
      }
    }
  }
  for (const PlanNode& node : plan.nodes) use.always += message_bytes(plan, node, machine);
  use.at_nodes.resize(plan.nodes.size());
  std::partial_sum(changes.begin(), changes.end() - 1, use.at_nodes.begin());
  return use;
}

PlanMemoryUse memory_of(const StepPlan& plan, const MachineDescription& machine) {
  PlanMemoryUse use;
  for (const PlanBuffer& buffer : plan.buffers)
    if (buffer.alias == no_buffer && !buffer.adopted)
      use.by_role[static_cast<std::size_t>(buffer.role)] += buffer.bytes();
  for (const PlanNode& node : plan.nodes)
    use.by_role[static_cast<std::size_t>(BufferRole::messages)] += message_bytes(plan, node, machine);
  use.separate = std::accumulate(use.by_role.begin(), use.by_role.end(), Index{0}) - use.of(BufferRole::offloaded);
  const MemoryOverNodes over_nodes = memory_over_nodes(plan, machine);
  const MemoryLayout layout = lay_out_memory({&plan}, machine);
  use.peak = over_nodes.always + layout.bytes();
  use.host = layout.host_bytes;
  for (const PlanBuffer& buffer : plan.buffers)
    if (is_lent(plan, buffer)) use.peak += buffer.bytes();
  use.peak_node = over_nodes.peak_node();
  return use;
}

Index bytes_of(const std::vector<const StepPlan*>& plans, const MemoryLayout& layout,
               const MachineDescription& machine) {
  std::map<std::string_view, Index> separate;
  for (const StepPlan* plan : plans)
    for (const PlanBuffer& buffer : plan->buffers)
      if (buffer.alias == no_buffer && !layout.places.contains(buffer.name) && !is_learned(buffer) && !buffer.adopted)
        separate[buffer.name] = std::max(separate[buffer.name], buffer.bytes());
  Index sum = layout.bytes();
  for (const auto& [name, bytes] : separate) sum += bytes;
  for (const PlanNode& node : plans.front()->nodes) sum += message_bytes(*plans.front(), node, machine);
  return sum;
}

std::vector<Index> memory_by_layer(const StepPlan& plan, const std::vector<std::string>& layer_names,
                                   const MachineDescription& machine) {
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < layer_names.size(); ++i) places[layer_names[i]] = i;
  const std::size_t others = layer_names.size();
  // The longest name counts: "conv1_a_y" belongs to the layer conv1_a, not to conv1.
  const auto layer_of = [&](std::string_view buffer) {
    for (std::size_t end = buffer.size(); end-- > 0;) {
      if (buffer[end] != '_' && buffer[end] != '.') continue;
      if (const auto found = places.find(buffer.substr(0, end)); found != places.end()) return found->second;
    }
    return others;
  };
  std::vector<Index> bytes(others + 1, 0);
  for (const PlanBuffer& buffer : plan.buffers)
    if (buffer.alias == no_buffer && !buffer.adopted && !buffer.on_host())
      bytes[layer_of(buffer.name)] += buffer.bytes();
  for (const PlanNode& node : plan.nodes) {
    const bool of_layer = node.layer >= 0 && static_cast<std::size_t>(node.layer) < others;
    bytes[of_layer ? static_cast<std::size_t>(node.layer) : others] += message_bytes(plan, node, machine);
  }
  return bytes;
}

}  // namespace aloni::nn
