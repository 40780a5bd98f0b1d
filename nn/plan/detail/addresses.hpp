#pragma once
// Addresses of the regions of a plan: two regions share memory if their ranges overlap. Pure arithmetic on the plan.
#include <aloni/nn/plan/isolated_node.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

/// Calls f(region) for each region of memory that node `n` uses: those of the node, and the filters that the first
/// convolution of a pass puts in the order of its kernels. The node before it, WeightsWork, stands for these filters,
/// and uses only those that it copies.
template <class F>
void for_each_region(const StepPlan& plan, int n, const F& f) {
  const PlanNode& node = plan.nodes[static_cast<std::size_t>(n)];
  const auto weights_of = [&](int weights) -> const ConvolutionWeights& {
    return plan.convolution_weights[static_cast<std::size_t>(weights)];
  };
  if (const auto* weights = std::get_if<WeightsWork>(&node.work);
      weights && std::ranges::none_of(weights_of(weights->weights).parts, &WeightPart::copied))
    return;
  for (const auto* regions : {&node.reads, &node.writes})
    for (const PlanRegion& region : *regions) f(region);
  if (const auto* work = std::get_if<ConvolutionWork>(&node.work); work && orders_filters(plan, n)) {
    const ConvolutionWeights& weights = weights_of(work->weights);
    for (std::size_t part = 0; part < weights.parts.size(); ++part) {
      const bool is_used = std::ranges::any_of(work->calls, [&](const ConvolutionCall& call) {
        return call.computes && call.part == static_cast<int>(part);
      });
      if (is_used && !weights.parts[part].copied) f(PlanRegion{weights.w, weights.parts[part].box});
    }
  }
}

/// Bytes [first, end) of the memory of a plan.
struct AddressRange {
  Index first = 0, end = 0;

  Index bytes() const { return std::max<Index>(0, end - first); }
};

/// Addresses for all buffers of a plan: those of its layout, then gradients of parameters, and others behind them.
class Addresses {
 public:
  Addresses(const StepPlan& plan, const MemoryLayout& layout) : plan_(plan), first_(plan.buffers.size(), 0) {
    Index next = layout.bytes();
    const Index host = std::exchange(next, next + layout.host_bytes);
    std::vector<Index> segments;
    for (const GradientMemory& segment : plan.gradient_memory) {
      segments.push_back(next);
      next += segment.bytes;
    }
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      const PlanBuffer& buffer = plan.buffers[b];
      if (buffer.alias != no_buffer) continue;
      if (const auto place = layout.places.find(buffer.name); place != layout.places.end()) {
        const int segment = place->second.segment;
        const MemoryKind memory = place->second.memory;
        first_[b] = place->second.offset + (segment >= 0 ? segments.at(static_cast<std::size_t>(segment))
                                            : memory == MemoryKind::host   ? host
                                            : memory == MemoryKind::shared ? layout.private_bytes
                                                                           : 0);
      } else {
        first_[b] = next;
        next += buffer.bytes();
      }
    }
  }
  /// From the first to the last element of the region; empty for memory of kernels.
  AddressRange of(const PlanRegion& r) const {
    const PlanBuffer& buffer = plan_.buffers[static_cast<std::size_t>(r.buffer)];
    const Index start = first_[static_cast<std::size_t>(plan_.root(r.buffer))];
    if (buffer.by_kernels || r.box.empty()) return {};
    Index first = 0, last = 0;
    for (std::size_t d = 0; d < r.box.lo.size(); ++d) {
      const Index extent = buffer.box.hi[d] - buffer.box.lo[d];
      first = first * extent + r.box.lo[d] - buffer.box.lo[d];
      last = last * extent + r.box.hi[d] - 1 - buffer.box.lo[d];
    }
    const Index size = bytes_of(buffer.type);
    return {start + first * size, start + (last + 1) * size};
  }

 private:
  const StepPlan& plan_;
  std::vector<Index> first_;  ///< by root
};

}  // namespace aloni::nn::detail
