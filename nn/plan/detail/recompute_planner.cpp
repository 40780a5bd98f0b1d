#include <aloni/nn/plan/detail/recompute_planner.hpp>

#include <aloni/nn/operation.hpp>

#include <algorithm>
#include <ranges>
#include <string>
#include <utility>
#include <variant>

namespace aloni::nn::detail {

/// The output of a layer is kept if its buffer belongs to the rest of the step too: a layer outside the block reads or
/// overwrites it, or it is the output of the network.
bool RecomputePlanner::keeps_output(const RecomputedBlock& block, int layer) const {
  const auto inside = [&](int i) { return i >= block.first && i <= block.last; };
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) {
    if (layers_[static_cast<std::size_t>(i)].y != layers_[static_cast<std::size_t>(layer)].y) continue;
    const auto& readers = plan_.readers_of(i);
    if (!inside(i) || readers.empty() || !std::ranges::all_of(readers, inside)) return true;
    if (properties_of(network_.layers[static_cast<std::size_t>(i)].operation).reduces_space) return true;
  }
  return false;
}

bool RecomputePlanner::reads_input(int layer) const {
  const auto l = static_cast<std::size_t>(layer);
  return repeated_[l] ||
         (layers_[l].wants_gradient && properties_of(network_.layers[l].operation).backward_reads_input);
}

/// A layer runs again if its output is dropped, and the backward pass of the block or a layer that runs again reads it.
void RecomputePlanner::find_repeated(const RecomputedBlock& block) {
  repeated_.assign(layers_.size(), false);
  for (int i = block.last; i >= block.first; --i) {
    const auto l = static_cast<std::size_t>(i);
    if (keeps_output(block, i)) continue;
    const auto& readers = plan_.readers_of(i);
    repeated_[l] = std::ranges::any_of(readers, [&](int reader) { return reads_input(reader); }) ||
                   (layers_[l].wants_gradient && properties_of(network_.layers[l].operation).backward_reads_output);
  }
}

void RecomputePlanner::add(const RecomputedBlock& block) {
  find_repeated(block);
  // Without the gate the repetition would begin as early as its inputs allow, and its memory would be in use longer.
  const auto nodes = std::views::reverse(builder_.plan().nodes);
  const auto kernel = std::ranges::find(nodes, NodeKind::kernel, &PlanNode::kind);
  if (kernel != nodes.end()) {
    if (gate_ == no_buffer) {
      gate_ = builder_.add_array("again", BufferRole::workspace, ElementType::int32, 1);
      builder_.at(gate_).by_kernels = true;  // it stands for the order alone
    }
    kernel->writes.push_back(builder_.whole(gate_));
  }
  for (int i = block.first; i <= block.last; ++i) {
    const auto l = static_cast<std::size_t>(i);
    const OperationProperties properties = properties_of(network_.layers[l].operation);
    builder_.begin("again " + network_.layers[l].name, i, StepPhase::backward);
    for (std::size_t k = 0; k < layers_[l].fetches.size(); ++k) {
      const LayerInput& input = plan_.layers[l].inputs[k];
      // Ghosts in the producer's buffer are lost with the rest of it.
      const bool lost =
          input.mode == InputMode::separate || (input.source >= 0 && repeated_[static_cast<std::size_t>(input.source)]);
      if (properties.concatenates ? repeated_[l] : lost && reads_input(i)) repeat(layers_[l].fetches[k]);
    }
    if (repeated_[l]) repeat(layers_[l].kernels);
  }
}

void RecomputePlanner::repeat(PlannedNodes nodes) {
  for (int n = nodes.begin; n < nodes.end; ++n) repeat(n);
}

/// Sums over ranks are still there, with the values that they are made of.
void RecomputePlanner::repeat(int node) {
  PlanNode again = builder_.plan().nodes[static_cast<std::size_t>(node)];
  if (std::holds_alternative<ReductionWork>(again.work)) return;
  if (auto* const norm = std::get_if<NormalisationWork>(&again.work)) {
    if (norm->stage != NormalisationStage::forward) return;
    norm->updates_running = false;
    const auto is_running = [&](const PlanRegion& r) { return r.buffer == norm->running; };
    std::erase_if(again.reads, is_running);
    std::erase_if(again.writes, is_running);
  }
  const std::size_t colon = again.label.find(": ");
  const std::string what = colon == std::string::npos ? "" : again.label.substr(colon + 2);
  again.reads.push_back(builder_.whole(gate_));
  PlanNode& added = std::holds_alternative<TransferWork>(again.work)
                        ? builder_.transfer(what, std::get<TransferWork>(std::move(again.work)), std::move(again.reads),
                                            std::move(again.writes))
                        : builder_.add(what, std::move(again.work), std::move(again.reads), std::move(again.writes));
  added.repeats = node;
}

}  // namespace aloni::nn::detail
