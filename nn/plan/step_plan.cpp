#include <aloni/nn/plan/step_plan.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace aloni::nn {

const char* name(ElementType type) {
  constexpr std::array names{"float", "double", "bfloat16", "float16", "int32"};
  return names[static_cast<std::size_t>(type)];
}

const char* name(BufferRole role) {
  constexpr std::array names{
      "input",         "activation", "gradient",  "ghosts",   "partial_sums", "parameters", "parameter_gradients",
      "gradient_sums", "optimiser",  "workspace", "messages", "offloaded"};
  return names[static_cast<std::size_t>(role)];
}

const char* name(StepPhase phase) {
  constexpr std::array names{"forward", "loss", "backward", "update"};
  return names[static_cast<std::size_t>(phase)];
}

const char* kind(const Work& work) {
  constexpr std::array names{
      "convolution", "filter_gradient", "weights", "bias",      "bias_gradient", "rounding", "pooling",
      "resampling",  "normalisation",   "mean",    "dense",     "pointwise",     "dropout",  "loss",
      "metrics",     "accumulation",    "norms",   "optimiser", "offload",       "transfer", "reduction"};
  static_assert(names.size() == std::variant_size_v<Work>);
  return names[work.index()];
}

namespace {

/// One function per kind of work, so that a new kind must say it.
struct ChangingArguments {
  // Their kernels get views and numbers of the plan alone. Labels and targets are in buffers.
  std::string operator()(const ConvolutionWork&) const { return {}; }
  std::string operator()(const FilterGradientWork&) const { return {}; }
  std::string operator()(const WeightsWork&) const { return {}; }
  std::string operator()(const BiasWork&) const { return {}; }
  std::string operator()(const BiasGradientWork&) const { return {}; }
  std::string operator()(const RoundingWork&) const { return {}; }
  std::string operator()(const PoolingWork&) const { return {}; }
  std::string operator()(const ResamplingWork&) const { return {}; }
  std::string operator()(const NormalisationWork&) const { return {}; }
  std::string operator()(const GlobalAverageWork&) const { return {}; }
  std::string operator()(const DenseWork&) const { return {}; }
  std::string operator()(const PointwiseWork&) const { return {}; }
  std::string operator()(const MetricsWork&) const { return {}; }
  std::string operator()(const OffloadWork&) const { return {}; }
  // The host gives them to the kernels.
  std::string operator()(const LossWork& work) const { return work.scales_loss ? "the loss scale" : ""; }
  std::string operator()(const DropoutWork&) const { return "the number of the step, for masks of dropout"; }
  std::string operator()(const OptimiserWork&) const { return "the options of the optimiser"; }
  std::string operator()(const NormWork& work) const {
    return work.stage == NormStage::factors ? "the options of the optimiser" : "";
  }
  std::string operator()(const AccumulationWork&) const { return "the numbers of samples of the micro-batches"; }
  // They have no kernels.
  std::string operator()(const TransferWork&) const { return {}; }
  std::string operator()(const ReductionWork&) const { return {}; }
};

}  // namespace

std::string changing_arguments(const Work& work) { return std::visit(ChangingArguments{}, work); }

bool is_border(const Work& work) {
  const auto* const region = std::get_if<ConvolutionWork>(&work);
  return region && region->border;
}

bool is_copy(const Work& work) { return std::holds_alternative<OffloadWork>(work); }

std::string implementations(const Work& work) {
  const std::vector<ConvolutionCall>* calls = nullptr;
  if (const auto* region = std::get_if<ConvolutionWork>(&work)) calls = &region->calls;
  if (const auto* gradient = std::get_if<FilterGradientWork>(&work)) calls = &gradient->calls;
  std::set<std::string> names;
  if (calls)
    for (const ConvolutionCall& call : *calls)
      if (call.computes)
        names.insert(to_string(local::ConvolutionImplementation{call.backend, call.engine}) +
                     (call.tf32 ? " in TF32" : ""));
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

NodeKind PlanNode::kind() const {
  if (std::holds_alternative<TransferWork>(work)) return NodeKind::transfer;
  return std::holds_alternative<ReductionWork>(work) ? NodeKind::collective : NodeKind::kernel;
}

bool PlanNode::sums_gradients() const {
  const auto* sum = std::get_if<ReductionWork>(&work);
  return sum && sum->segment >= 0;
}

bool PlanNode::accumulates() const { return std::holds_alternative<AccumulationWork>(work); }

BufferId StepPlan::find(const std::string& name) const {
  const auto found = std::ranges::find(buffers, name, &PlanBuffer::name);
  if (found == buffers.end())
    throw InvalidArgument("aloni::nn::StepPlan::find", "name", '"' + name + '"', "the name of a buffer of the plan");
  return static_cast<BufferId>(found - buffers.begin());
}

std::vector<Access> accesses_of(const StepPlan& plan, const PlanNode& node) {
  std::vector<Access> accesses;
  const auto add = [&](const PlanRegion& r, bool writes) {
    const PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(r.buffer)];
    const PlanBuffer& root = plan.buffers[static_cast<std::size_t>(plan.root(r.buffer))];
    accesses.push_back({&root, buffer.other_indices ? root.box : r.box, writes});
  };
  for (const PlanRegion& r : node.reads) add(r, false);
  for (const PlanRegion& r : node.writes) add(r, true);
  return accesses;
}

StepGraph graph_of(const StepPlan& plan) {
  StepGraph graph;
  for (const PlanNode& node : plan.nodes)
    graph.nodes.push_back({.label = node.label,
                           .kind = node.kind(),
                           .accesses = accesses_of(plan, node),
                           .border = is_border(node.work),
                           .copies = is_copy(node.work),
                           .changing_arguments = changing_arguments(node.work)});
  return graph;
}

}  // namespace aloni::nn
