#include <aloni/model/kernel.hpp>

#include <aloni/nn/operation.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/isolated_node.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <type_traits>
#include <utility>

namespace aloni::model {

namespace {

using nn::BufferId;
using nn::PlanNode;
using nn::StepPlan;
using views::Box;

constexpr std::array<std::string_view, kernel_kinds> kernel_kind_names{
    "convolution_forward", "convolution_data", "convolution_filter", "dense",     "pooling",
    "resampling",          "normalisation",    "pointwise",          "optimiser", "copy"};

const nn::PlanBuffer& buffer_of(const StepPlan& plan, BufferId b) { return plan.buffers[static_cast<std::size_t>(b)]; }

double real(Index n) { return static_cast<double>(n); }
double number_of(const Box& box) { return box.empty() ? 0 : real(box.size()); }
double product(const std::array<Index, 3>& n) { return real(n[0]) * real(n[1]) * real(n[2]); }

void append(std::string& text, Index n) { text += std::to_string(n); }

/// "4x1x16x16x64"; the extents alone, since times do not depend on positions.
void append(std::string& text, const Box& box) {
  for (std::size_t i = 0; i < box.lo.size(); ++i) {
    if (i > 0) text += 'x';
    append(text, std::max<Index>(0, box.hi[i] - box.lo[i]));
  }
}

/// " float32 4x1x16x16x64 of 4x1x18x18x64": the second box is that of the memory, which decides the strides.
void append_region(std::string& text, const StepPlan& plan, BufferId b, const Box& box) {
  const nn::PlanBuffer& buffer = buffer_of(plan, b);
  text += ' ';
  text += nn::name(buffer.type);
  text += ' ';
  append(text, box);
  if (box == buffer.box) return;
  text += " of ";
  append(text, buffer.box);
}

/// Bytes of the box, and whether it is one dense run of its buffer.
struct Operand {
  double bytes = 0;
  bool dense = true;
};
Operand operand_of(const StepPlan& plan, BufferId b, const Box& box) {
  const nn::PlanBuffer& buffer = buffer_of(plan, b);
  Operand operand{number_of(box) * real(nn::bytes_of(buffer.type))};
  bool one_before = true;  // all dimensions outside of this one have extent 1
  for (std::size_t i = 0; i < box.lo.size(); ++i) {
    const bool whole = box.lo[i] == buffer.box.lo[i] && box.hi[i] == buffer.box.hi[i];
    if (!whole && !one_before) operand.dense = false;
    one_before = one_before && box.hi[i] - box.lo[i] == 1;
  }
  return operand;
}

/// A convolution that multiplies one weight part with one box.
KernelCall convolution_call(const StepPlan& plan, KernelKind kind, const nn::ConvolutionCall& call, BufferId source,
                            BufferId target) {
  const nn::local::ConvolutionProblem& p = call.problem;
  const Operand from = operand_of(plan, source, call.source), to = operand_of(plan, target, call.target);
  const nn::ElementType type = buffer_of(plan, source).type;
  const double weights = real(p.channels_per_group()) * real(p.filters) * product(p.kernel) * real(nn::bytes_of(type));
  KernelCall result{.kind = kind, .type = type, .flops = nn::local::flops(p), .bytes = from.bytes + to.bytes + weights};
  result.features = {real(p.samples),
                     real(p.channels_per_group()),
                     real(p.filters_per_group()),
                     real(p.groups),
                     real(p.output[0]),
                     real(p.output[1]),
                     real(p.output[2]),
                     real(p.kernel[0]),
                     real(p.kernel[1]),
                     real(p.kernel[2]),
                     product(p.stride),
                     product(p.dilation),
                     from.dense ? 0.0 : 1.0,
                     to.dense ? 0.0 : 1.0,
                     static_cast<double>(call.backend),
                     result.flops,
                     result.bytes};
  return result;
}

/// The boxes of the calls that compute, and their problems.
template <class Work>
void append_calls(std::string& text, const StepPlan& plan, const Work& work, BufferId source, BufferId target) {
  for (const nn::ConvolutionCall& call : work.calls) {
    text += call.computes ? " call " : " zero";
    if (call.computes) {
      text += nn::local::name(call.backend);
      text += ' ';
      text += to_string(call.problem);
    }
    append_region(text, plan, source, call.source);
    append_region(text, plan, target, call.target);
  }
}

// One function per kind of work adds its calls, and to the key the facts that its regions do not tell.

struct Maker {
  const StepPlan& plan;
  const PlanNode& node;
  KernelProblem problem = {};

  void number(std::string_view what, Index value) {
    problem.key += ' ';
    problem.key += what;
    append(problem.key, value);
  }
  void flag(std::string_view what, bool value) {
    if (!value) return;
    problem.key += ' ';
    problem.key += what;
  }

  /// A kernel that visits the regions of its node once.
  void visit(KernelKind kind, nn::ElementType type, std::vector<double> features, double flops) {
    const nn::NodeCost regions = cost_of_regions(plan, node);
    const double bytes = real(regions.bytes_read) + real(regions.bytes_written);
    features.push_back(flops);
    features.push_back(bytes);
    problem.calls.push_back({kind, type, std::move(features), flops, bytes});
  }
  double flops() const { return nn::cost(plan, node).flops; }
  nn::ElementType type(BufferId b) const {
    return b == nn::no_buffer ? nn::ElementType::float32 : buffer_of(plan, b).type;
  }

  void add(const nn::ConvolutionWork& w) {
    flag("backward", w.backward);
    flag("gathers", w.gathers);
    flag("relu", w.relu);
    flag("bias", w.bias != nn::no_buffer);
    flag("copy", w.copy != nn::no_buffer);
    // The first node of a pass also puts the filters in the order of the kernels.
    const auto position = &node - plan.nodes.data();
    flag("filters_ready", !nn::orders_filters(plan, static_cast<int>(position)));
    append_calls(problem.key, plan, w, w.source, w.target);
    const KernelKind kind = w.gathers ? KernelKind::convolution_forward : KernelKind::convolution_data;
    for (const nn::ConvolutionCall& call : w.calls)
      if (call.computes) problem.calls.push_back(convolution_call(plan, kind, call, w.source, w.target));
  }
  void add(const nn::FilterGradientWork& w) {
    flag("transposed", w.transposed);
    flag("bias", w.db != nn::no_buffer);
    flag("zeroes", w.zeroes_weights);
    append_calls(problem.key, plan, w, w.x, w.dy);
    for (const nn::ConvolutionCall& call : w.calls)
      if (call.computes)
        problem.calls.push_back(convolution_call(plan, KernelKind::convolution_filter, call, w.x, w.dy));
  }
  void add(const nn::WeightsWork& w) {
    const nn::ConvolutionWeights& weights = plan.convolution_weights[static_cast<std::size_t>(w.weights)];
    double bytes = 0;
    for (const nn::WeightPart& part : weights.parts) {
      flag("copied", part.copied);
      append_region(problem.key, plan, weights.w, part.box);
      bytes += 2 * operand_of(plan, weights.w, part.box).bytes;
    }
    copy(type(weights.w), bytes, static_cast<double>(weights.parts.size()));
  }
  /// Kernels that visit elements once.
  void copy(nn::ElementType t, double bytes, double boxes) {
    problem.calls.push_back({KernelKind::copy, t, {boxes, bytes}, 0, bytes});
  }
  void pointwise(nn::ElementType t, double function, double elements, double inputs) {
    visit(KernelKind::pointwise, t, {function, elements, inputs}, flops());
  }
  void add(const nn::BiasWork& w) { pointwise(type(w.target), 1, number_of(w.region), 1); }
  void add(const nn::BiasGradientWork& w) {
    flag("counts", w.counts);
    pointwise(type(w.dy), 2, number_of(w.region), 1);
  }
  void add(const nn::RoundingWork& w) { pointwise(type(w.target), 3, number_of(w.region), 1); }

  void add(const nn::PoolingWork& w) {
    flag("backward", w.backward);
    flag("maximum", w.kind == nn::PoolingKind::max);
    flag("in_domain", w.divisor == nn::local::AverageDivisor::in_domain);
    problem.key += ' ' + to_string(w.problem);
    const nn::local::PoolingProblem& p = w.problem;
    visit(KernelKind::pooling, type(w.source),
          {w.backward ? 1.0 : 0.0, w.kind == nn::PoolingKind::max ? 1.0 : 0.0, real(p.samples), real(p.channels),
           real(p.output[0]), real(p.output[1]), real(p.output[2]), product(p.window), product(p.stride)},
          flops());
  }
  void add(const nn::GlobalAverageWork& w) {
    number("stage", static_cast<Index>(w.stage));
    const Box& pixels = w.stage == nn::GlobalAverageStage::backward ? w.to : w.from;
    visit(KernelKind::pooling, type(w.source),
          {2.0 + static_cast<double>(w.stage), 0, real(pixels.extent(views::Dim::sample)),
           real(pixels.extent(views::Dim::channel)), 1, 1, 1,
           number_of(pixels) /
               std::max(1.0, real(pixels.extent(views::Dim::sample)) * real(pixels.extent(views::Dim::channel))),
           1},
          flops());
  }
  void add(const nn::ResamplingWork& w) {
    flag("backward", w.backward);
    flag("maximum", w.maximum);
    const nn::local::ResamplingProblem& p = w.problem;
    problem.key += ' ' + to_string(p);
    visit(KernelKind::resampling, type(w.source),
          {w.backward ? 1.0 : 0.0, static_cast<double>(p.map[0].rule), real(p.samples), real(p.channels),
           product(p.input), product(p.output)},
          flops());
  }
  void add(const nn::NormalisationWork& w) {
    number("kind", static_cast<Index>(w.kind));
    number("stage", static_cast<Index>(w.stage));
    flag("relu", w.relu);
    flag("trains", w.trains);
    flag("splits_cells", w.splits_cells);
    number("groups", w.groups);
    const double channels = real(w.region.extent(views::Dim::channel));
    visit(KernelKind::normalisation, type(w.x),
          {static_cast<double>(w.kind), static_cast<double>(w.stage), w.relu ? 1.0 : 0.0, w.trains ? 1.0 : 0.0,
           channels, number_of(w.region) / std::max(1.0, channels)},
          flops());
  }
  void add(const nn::DenseWork& w) {
    number("pass", static_cast<Index>(w.pass));
    flag("counts", w.counts);
    visit(KernelKind::dense, type(w.w),
          {static_cast<double>(w.pass), real(w.samples), real(w.inputs), real(w.features)}, flops());
  }
  void add(const nn::PointwiseWork& w) {
    number("function", static_cast<Index>(w.function));
    double code = 4 + static_cast<double>(w.function);
    if (w.function == nn::PointwiseFunction::layer || w.function == nn::PointwiseFunction::layer_gradient) {
      number("operation", static_cast<Index>(w.operation.index()));
      code = 10 + 2 * static_cast<double>(w.operation.index()) +
             (w.function == nn::PointwiseFunction::layer_gradient ? 1 : 0);
    }
    pointwise(type(w.output.buffer), code, number_of(w.output.box), static_cast<double>(w.inputs.size()));
  }
  void add(const nn::DropoutWork& w) { pointwise(type(w.source), 8, number_of(w.region), 1); }
  void add(const nn::LossWork& w) {
    number("stage", static_cast<Index>(w.stage));
    number("loss", static_cast<Index>(w.loss));
    flag("gradient", w.gradient != nn::no_buffer);
    pointwise(type(w.output), 60 + 4 * static_cast<double>(w.loss) + static_cast<double>(w.stage), number_of(w.region),
              real(w.region.extent(views::Dim::channel)));
  }
  void add(const nn::MetricsWork& w) {
    number("loss", static_cast<Index>(w.loss));
    pointwise(type(w.output), 90 + static_cast<double>(w.loss), number_of(w.region),
              real(w.region.extent(views::Dim::channel)));
  }
  void add(const nn::NormWork& w) {
    number("stage", static_cast<Index>(w.stage));
    visit(KernelKind::optimiser, w.tensors.empty() ? nn::ElementType::float64 : type(w.tensors.front().gradient),
          {10.0 + static_cast<double>(w.stage), real(w.elements), static_cast<double>(w.tensors.size())}, flops());
  }
  void add(const nn::OptimiserWork& w) {
    number("optimiser", static_cast<Index>(w.kind));
    flag("factors", w.factors != nn::no_buffer);
    visit(KernelKind::optimiser, w.tensors.empty() ? nn::ElementType::float32 : type(w.tensors.front().value),
          {static_cast<double>(w.kind), real(w.elements), static_cast<double>(w.tensors.size())}, flops());
  }
  // Communication has no kernel problem: see the precondition.
  void add(const nn::TransferWork&) {}
  void add(const nn::ReductionWork&) {}
};

const std::vector<std::string_view> convolution_features{
    "samples",      "channels",     "filters",        "groups",       "output_depth", "output_height",
    "output_width", "kernel_depth", "kernel_height",  "kernel_width", "stride",       "dilation",
    "input_gaps",   "output_gaps",  "implementation", "flops",        "bytes"};

}  // namespace

std::string_view name(KernelKind kind) { return kernel_kind_names[static_cast<std::size_t>(kind)]; }

std::optional<KernelKind> kernel_kind_named(std::string_view name) {
  const auto found = std::ranges::find(kernel_kind_names, name);
  if (found == kernel_kind_names.end()) return std::nullopt;
  return static_cast<KernelKind>(found - kernel_kind_names.begin());
}

double KernelProblem::flops() const {
  return std::accumulate(calls.begin(), calls.end(), 0.0, [](double sum, const auto& c) { return sum + c.flops; });
}

double KernelProblem::bytes() const {
  return std::accumulate(calls.begin(), calls.end(), 0.0, [](double sum, const auto& c) { return sum + c.bytes; });
}

const std::vector<std::string_view>& feature_names(KernelKind kind) {
  static const std::array<std::vector<std::string_view>, kernel_kinds> names{{
      convolution_features,
      convolution_features,
      convolution_features,
      {"pass", "samples", "inputs", "features", "flops", "bytes"},
      {"pass", "maximum", "samples", "channels", "output_depth", "output_height", "output_width", "window", "stride",
       "flops", "bytes"},
      {"backward", "rule", "samples", "channels", "inputs", "outputs", "flops", "bytes"},
      {"kind", "stage", "relu", "trains", "channels", "elements_per_channel", "flops", "bytes"},
      {"function", "elements", "inputs", "flops", "bytes"},
      {"optimiser", "elements", "tensors", "flops", "bytes"},
      {"boxes", "bytes"},
  }};
  return names[static_cast<std::size_t>(kind)];
}

KernelProblem kernel_of(const StepPlan& plan, const PlanNode& node) {
  Maker maker{plan, node};
  maker.problem.key = kind(node.work);
  std::visit([&](const auto& work) { maker.add(work); }, node.work);
  // All regions of other work, in the order of the node. Those of convolutions are in their calls.
  if (!std::holds_alternative<nn::ConvolutionWork>(node.work) &&
      !std::holds_alternative<nn::FilterGradientWork>(node.work) &&
      !std::holds_alternative<nn::WeightsWork>(node.work) && !std::holds_alternative<nn::OptimiserWork>(node.work) &&
      !std::holds_alternative<nn::NormWork>(node.work)) {
    for (const nn::PlanRegion& r : node.reads) append_region(maker.problem.key, plan, r.buffer, r.box);
    for (const nn::PlanRegion& r : node.writes) append_region(maker.problem.key, plan, r.buffer, r.box);
  } else if (!maker.problem.calls.empty() && maker.problem.calls.front().kind == KernelKind::optimiser) {
    maker.problem.key += " elements " + std::to_string(static_cast<Index>(maker.problem.calls.front().features[1])) +
                         " tensors " + std::to_string(static_cast<Index>(maker.problem.calls.front().features[2]));
  }
  return maker.problem;
}

}  // namespace aloni::model
