#include <aloni/nn/plan/detail/verify_gradients.hpp>

#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/plan/detail/verify_fault.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

namespace {

using views::Box;

struct Summand {
  int rank;
  Box part, outputs;
};

}  // namespace

void check_gradients(const NetworkPlan& layers, std::span<const StepPlan> plans) {
  // By name of the tensor and lowest member of its sum.
  struct Tensor {
    int layer = 0;
    Box whole;
    std::vector<int> members;
    std::vector<Summand> summands;
    bool is_whole = false;   // each rank keeps all of it; otherwise `parts`
    std::vector<Box> parts;  // by which a member multiplies
  };
  std::map<std::pair<std::string, int>, Tensor> tensors;
  for (const StepPlan& plan : plans) {
    std::map<BufferId, std::vector<int>> members;
    for (const PlanNode& n : plan.nodes) {
      const auto* sum = std::get_if<ReductionWork>(&n.work);
      if (!sum || sum->segment < 0) continue;
      for (const BufferId b : sum->buffers) {
        if (members.contains(b)) refuse(plan, &n, buffer_of(plan, b).name + " is summed twice");
        members[b] = sum->members;
      }
    }
    for (BufferId g = 0; g < static_cast<BufferId>(plan.buffers.size()); ++g) {
      const PlanBuffer& b = buffer_of(plan, g);
      if (b.role != BufferRole::parameter_gradients || b.box.empty()) continue;
      const auto found = members.find(g);
      const std::vector<int> mine = found == members.end() ? std::vector{plan.rank} : found->second;
      Tensor& t = tensors[{b.name, mine.front()}];
      t.members = mine;
      t.whole = hull(t.whole, b.box);
      // A rank's parts of a split tensor need not fill the box that it keeps.
      const auto weights = std::ranges::find(plan.convolution_weights, g, &ConvolutionWeights::dw);
      if (weights == plan.convolution_weights.end() ||
          b.box != layers.layers[static_cast<std::size_t>(weights->layer)].weights_needed(plan.rank)) {
        t.is_whole = true;
      } else {
        for (const WeightPart& part : weights->parts)
          if (std::ranges::find(t.parts, part.box) == t.parts.end()) t.parts.push_back(part.box);
      }
      bool written = false;
      for (const PlanNode& n : plan.nodes) {
        const auto writes_it = [&](const PlanRegion& r) { return r.buffer == g; };
        if (n.kind() != NodeKind::kernel || n.accumulates() || std::ranges::none_of(n.writes, writes_it)) continue;
        written = true;
        t.layer = n.layer;
        for (const GradientSummand& s : n.summands)
          if (s.gradient == g) t.summands.push_back({plan.rank, s.part, s.outputs});
      }
      if (!written) refuse(plan, nullptr, b.name + " is not written, not even with zeros");
    }
  }
  for (const auto& [key, t] : tensors) {
    const Box outputs = views::whole(layers.layers[static_cast<std::size_t>(t.layer)].output.extents());
    std::vector<Box> parts = t.parts;
    for (const Summand& s : t.summands)
      if (std::ranges::find(parts, s.part) == parts.end()) parts.push_back(s.part);
    Index expected = 0, sum = 0;
    if (t.is_whole || t.members.size() == plans.size()) {
      expected = t.whole.size() * pixels(outputs);
    } else {
      for (const Box& p : parts) expected += p.size() * pixels(outputs);
    }
    for (std::size_t a = 0; a < t.summands.size(); ++a) {
      const Summand& s = t.summands[a];
      sum += s.part.size() * pixels(s.outputs);
      for (std::size_t b = 0; b < a; ++b) {
        const Summand& other = t.summands[b];
        const auto no_channels = [](const Box& box) { return with_channels(box, {0, 1}); };
        if (!intersect(s.part, other.part).empty() &&
            !intersect(no_channels(s.outputs), no_channels(other.outputs)).empty())
          throw Found{{key.first + " gets one summand twice", "", {other.rank, s.rank}}};
      }
    }
    if (sum != expected)
      throw Found{{key.first + " " + views::to_string(t.whole) + " lacks summands: " + std::to_string(sum) + " of " +
                       std::to_string(expected),
                   "", t.members}};
  }
}

}  // namespace aloni::nn::detail
