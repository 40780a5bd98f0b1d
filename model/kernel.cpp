#include <aloni/model/kernel.hpp>

#include <aloni/nn/local/convolution_choice.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/isolated_node.hpp>
#include <aloni/nn/plan/process_memory.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <type_traits>
#include <utility>

namespace aloni::model {

namespace {

using nn::BufferId;
using nn::PlanNode;
using nn::StepPlan;
using views::Box;

/// Kernels of KernelKind::pointwise with about the same work per element, but for its arithmetic.
enum class PointwiseGroup : std::uint8_t {
  bias,
  bias_gradient,
  rounding,
  copy,
  add,
  forward,
  backward,
  dropout,
  loss,
  metrics
};
constexpr int pointwise_groups = 10;
constexpr int pooling_functions = 7;  // average and maximum, each forward and backward; three stages of the global one
constexpr int normalisation_stages = 6, dense_passes = 3;

constexpr std::array<std::string_view, kernel_kinds> kernel_kind_names{
    "convolution_forward", "convolution_data", "convolution_filter", "dense",     "pooling",
    "resampling",          "normalisation",    "pointwise",          "optimiser", "copy"};

const nn::PlanBuffer& buffer_of(const StepPlan& plan, BufferId b) { return plan.buffers[static_cast<std::size_t>(b)]; }

/// Besides the backends: the matrix products of oneDNN's backend, which are a kernel of their own.
constexpr int products = static_cast<int>(nn::local::ConvolutionBackend::cudnn);
constexpr int convolution_implementations = products + 1;

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

/// Elements of the box without a gap between them in the memory of its buffer.
double run_of(const StepPlan& plan, const nn::PlanRegion& region) {
  return real(nn::run_bytes(region.box, buffer_of(plan, region.buffer).box, 1));
}

/// The share of the products of a convolution whose input exists. flops() counts those with padding too, which kernels
/// leave out: with 3 × 3 taps on 2 × 2 pixels only 4 of 9.
double share_inside(const nn::local::ConvolutionProblem& p) {
  double share = 1;
  for (std::size_t s = 0; s < 3; ++s) {
    Index inside = 0;
    for (Index tap = 0; tap < p.kernel[s]; ++tap) {
      // Outputs o with 0 ≤ o * stride + shift < input.
      const Index shift = p.offset[s] + tap * p.dilation[s], stride = p.stride[s];
      const Index first = shift >= 0 ? 0 : (stride - 1 - shift) / stride;
      const Index end = p.input[s] > shift ? (p.input[s] - shift - 1) / stride + 1 : 0;
      inside += std::max<Index>(0, std::min(end, p.output[s]) - first);
    }
    if (p.output[s] > 0) share *= real(inside) / (real(p.kernel[s]) * real(p.output[s]));
  }
  return share;
}

/// The share of vectors of 16 elements that `n` elements fill.
double filled(Index n) { return real(n) / (16 * std::ceil(real(n) / 16)); }

/// `n` rounded up to whole vectors of 8 elements.
double rounded(Index n) { return 8 * std::ceil(real(n) / 8); }

/// Products of a convolution that has this number of values along its sums, and of elements in its vectors, for each
/// output and tap. Kernels whose vectors run over filters, or over the taps of a row and channels, multiply whole
/// vectors.
double padded_work(const nn::local::ConvolutionProblem& p, Index summed, double vectors) {
  return real(p.samples) * real(p.groups) * product(p.output) * product(p.kernel) * real(summed) * vectors;
}

/// One feature per value of a category: 1 for the value itself. A number for a category would have an order.
void append_category(std::vector<double>& features, int value, int values) {
  for (int v = 0; v < values; ++v) features.push_back(v == value ? 1 : 0);
}

/// A convolution that multiplies one weight part with one box. `orders`: it puts the filters in its own order first.
KernelCall convolution_call(const StepPlan& plan, KernelKind kind, const nn::ConvolutionCall& call, BufferId source,
                            BufferId target, bool orders) {
  const nn::local::ConvolutionProblem& p = call.problem;
  const Operand from = operand_of(plan, source, call.source), to = operand_of(plan, target, call.target);
  const nn::ElementType type = buffer_of(plan, source).type;
  const double weights = real(p.channels_per_group()) * real(p.filters) * product(p.kernel) * real(nn::bytes_of(type));
  const double inside = share_inside(p);
  KernelCall result{.kind = kind,
                    .type = type,
                    .flops = nn::local::flops(p),
                    .bytes = from.bytes + to.bytes + (orders ? 3 : 1) * weights};
  result.features = {
      real(p.samples),
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
      orders ? 1.0 : 0.0,
      filled(p.channels_per_group()),
      filled(p.filters_per_group()),
      filled(p.output[2]),
      inside,
      result.flops * inside,
      padded_work(p, p.channels_per_group(), rounded(p.filters_per_group())) * inside,
      padded_work(p, p.filters_per_group(), rounded(p.kernel[2] * p.channels_per_group())) / real(p.kernel[2]),
      real(p.kernel[2] * p.channels_per_group()),
      real(p.samples) * real(p.output[0]) * real(p.output[1]) * real(p.kernel[0]) * real(p.kernel[1])};
  const bool multiplies = kind == KernelKind::convolution_filter &&
                          call.backend == nn::local::ConvolutionBackend::onednn &&
                          nn::local::multiplies_for_filters(p, type);
  append_category(result.features, multiplies ? products : static_cast<int>(call.backend) - 1,
                  convolution_implementations);
  result.features.push_back(result.flops);
  result.features.push_back(result.bytes);
  return result;
}

/// The boxes of the calls that compute, and their problems.
template <class Work>
void append_calls(std::string& text, const StepPlan& plan, const Work& work, BufferId source, BufferId target) {
  for (const nn::ConvolutionCall& call : work.calls) {
    text += call.computes ? " call " : " zero";
    if (call.computes) {
      text += to_string(nn::local::ConvolutionImplementation{call.backend, call.engine});
      text += call.tf32 ? " tf32 " : " ";
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
  static double row(const Box& region) { return real(region.extent(views::Dim::channel)); }
  /// The shortest run of the regions, but for those that are small beside the largest one. With short runs a kernel
  /// takes its time per run, and not per element.
  double run() const {
    double largest = 0, shortest = 0;
    for (const auto& regions : {node.reads, node.writes})
      for (const nn::PlanRegion& r : regions) largest = std::max(largest, number_of(r.box));
    for (const auto& regions : {node.reads, node.writes})
      for (const nn::PlanRegion& r : regions) {
        if (r.box.empty() || 4 * number_of(r.box) < largest) continue;
        const double length = run_of(plan, r);
        shortest = shortest == 0 ? length : std::min(shortest, length);
      }
    return shortest;
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
    const bool orders = nn::orders_filters(plan, static_cast<int>(position));
    flag("filters_ready", !orders);
    append_calls(problem.key, plan, w, w.source, w.target);
    const KernelKind kind = w.gathers ? KernelKind::convolution_forward : KernelKind::convolution_data;
    std::set<int> ordered;  // parts whose filters a call before has put in order
    for (const nn::ConvolutionCall& call : w.calls) {
      if (!call.computes) continue;
      const bool orders_part = orders && ordered.insert(call.part).second;
      problem.calls.push_back(convolution_call(plan, kind, call, w.source, w.target, orders_part));
    }
  }
  void add(const nn::FilterGradientWork& w) {
    flag("transposed", w.transposed);
    flag("bias", w.db != nn::no_buffer);
    flag("zeroes", w.zeroes_weights);
    append_calls(problem.key, plan, w, w.x, w.dy);
    for (const nn::ConvolutionCall& call : w.calls)
      if (call.computes)
        problem.calls.push_back(convolution_call(plan, KernelKind::convolution_filter, call, w.x, w.dy, false));
  }
  void add(const nn::WeightsWork& w) {
    const nn::ConvolutionWeights& weights = plan.convolution_weights[static_cast<std::size_t>(w.weights)];
    double bytes = 0, boxes = 0, run = 0;  // of the parts that are copied
    for (const nn::WeightPart& part : weights.parts) {
      flag("copied", part.copied);
      append_region(problem.key, plan, weights.w, part.box);
      if (!part.copied) continue;
      bytes += 2 * operand_of(plan, weights.w, part.box).bytes;
      boxes += 1;
      const double length = run_of(plan, {weights.w, part.box});
      run = run == 0 ? length : std::min(run, length);
    }
    if (boxes > 0) copy(type(weights.w), bytes, boxes, run);
  }
  /// Kernels that visit elements once.
  void copy(nn::ElementType t, double bytes, double boxes, double run) {
    problem.calls.push_back({KernelKind::copy, t, {boxes, run, bytes}, 0, bytes});
  }
  void pointwise(nn::ElementType t, PointwiseGroup group, double elements, double inputs, double row = 1) {
    std::vector<double> features;
    append_category(features, static_cast<int>(group), pointwise_groups);
    features.insert(features.end(), {elements, inputs, row, run()});
    visit(KernelKind::pointwise, t, std::move(features), flops());
  }
  void add(const nn::BiasWork& w) {
    pointwise(type(w.target), PointwiseGroup::bias, number_of(w.region), 1, row(w.region));
  }
  void add(const nn::BiasGradientWork& w) {
    flag("counts", w.contributes);
    pointwise(type(w.dy), PointwiseGroup::bias_gradient, number_of(w.region), 1, row(w.region));
  }
  void add(const nn::RoundingWork& w) { pointwise(type(w.target), PointwiseGroup::rounding, number_of(w.region), 1); }

  /// `rest`: the extents of the output, and the numbers of elements of the window and of the stride.
  void pooling(nn::ElementType t, int function, Index samples, Index channels, std::array<double, 5> rest) {
    std::vector<double> features;
    append_category(features, function, pooling_functions);
    features.insert(features.end(), {real(samples), real(channels), filled(channels)});
    features.insert(features.end(), rest.begin(), rest.end());
    features.push_back(run());
    visit(KernelKind::pooling, t, std::move(features), flops());
  }
  void add(const nn::PoolingWork& w) {
    flag("backward", w.backward);
    flag("maximum", w.kind == nn::PoolingKind::max);
    flag("relu", w.relu && !w.backward);
    flag("in_domain", w.divisor == nn::local::AverageDivisor::in_domain);
    problem.key += ' ' + to_string(w.problem);
    const nn::local::PoolingProblem& p = w.problem;
    pooling(type(w.source), (w.kind == nn::PoolingKind::max ? 2 : 0) + (w.backward ? 1 : 0), p.samples, p.channels,
            {real(p.output[0]), real(p.output[1]), real(p.output[2]), product(p.window), product(p.stride)});
  }
  void add(const nn::GlobalAverageWork& w) {
    number("stage", static_cast<Index>(w.stage));
    const Box& box = w.stage == nn::GlobalAverageStage::backward ? w.to : w.from;
    const Index samples = box.extent(views::Dim::sample), channels = box.extent(views::Dim::channel);
    const double pixels = number_of(box) / std::max(1.0, real(samples) * real(channels));
    pooling(type(w.source), 4 + static_cast<int>(w.stage), samples, channels, {1, 1, 1, pixels, 1});
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
    flag("summand", w.summand != nn::no_buffer);
    flag("sum_relu", w.sum_relu);
    flag("trains", w.trains);
    flag("splits_cells", w.splits_cells);
    number("groups", w.groups);
    const double channels = real(w.region.extent(views::Dim::channel));
    std::vector<double> features{static_cast<double>(w.kind)};
    append_category(features, static_cast<int>(w.stage), normalisation_stages);
    features.insert(features.end(), {w.relu || w.sum_relu ? 1.0 : 0.0, w.summand != nn::no_buffer ? 1.0 : 0.0,
                                     w.trains ? 1.0 : 0.0, channels, filled(w.region.extent(views::Dim::channel)),
                                     number_of(w.region) / std::max(1.0, channels), run()});
    visit(KernelKind::normalisation, type(w.x), std::move(features), flops());
  }
  void add(const nn::DenseWork& w) {
    number("pass", static_cast<Index>(w.pass));
    flag("counts", w.contributes);
    std::vector<double> features;
    append_category(features, static_cast<int>(w.pass), dense_passes);
    features.insert(features.end(),
                    {real(w.samples), real(w.inputs), real(w.features), filled(w.inputs), filled(w.features)});
    visit(KernelKind::dense, type(w.w), std::move(features), flops());
  }
  void add(const nn::PointwiseWork& w) {
    number("function", static_cast<Index>(w.function));
    PointwiseGroup group = w.function == nn::PointwiseFunction::copy ? PointwiseGroup::copy : PointwiseGroup::add;
    if (w.function == nn::PointwiseFunction::layer) group = PointwiseGroup::forward;
    if (w.function == nn::PointwiseFunction::layer_gradient) group = PointwiseGroup::backward;
    pointwise(type(w.output.buffer), group, number_of(w.output.box), static_cast<double>(w.inputs.size()));
  }
  void add(const nn::DropoutWork& w) { pointwise(type(w.source), PointwiseGroup::dropout, number_of(w.region), 1); }
  void add(const nn::LossWork& w) {
    number("stage", static_cast<Index>(w.stage));
    number("loss", static_cast<Index>(w.loss));
    flag("gradient", w.gradient != nn::no_buffer);
    pointwise(type(w.output), PointwiseGroup::loss, number_of(w.region), 1, row(w.region));
  }
  void add(const nn::MetricsWork& w) {
    number("loss", static_cast<Index>(w.loss));
    pointwise(type(w.output), PointwiseGroup::metrics, number_of(w.region), 1, row(w.region));
  }
  void add(const nn::NormWork& w) {
    number("stage", static_cast<Index>(w.stage));
    visit(KernelKind::optimiser, w.tensors.empty() ? nn::ElementType::float64 : type(w.tensors.front().gradient),
          {10.0 + static_cast<double>(w.stage), real(w.elements), static_cast<double>(w.tensors.size())}, flops());
  }
  void add(const nn::AccumulationWork& w) {
    const nn::NodeCost cost = nn::cost(plan, node);
    copy(w.gradients.empty() ? nn::ElementType::float32 : type(w.gradients.front()),
         real(cost.bytes_read + cost.bytes_written), 1, real(w.elements));
  }
  void add(const nn::OptimiserWork& w) {
    number("optimiser", static_cast<Index>(w.kind));
    flag("factors", w.factors != nn::no_buffer);
    visit(KernelKind::optimiser, w.tensors.empty() ? nn::ElementType::float32 : type(w.tensors.front().value),
          {static_cast<double>(w.kind), real(w.elements), static_cast<double>(w.tensors.size())}, flops());
  }
  // Communication has no kernel problem: see the precondition.
  /// Of a host. On a device the link to host memory decides (step_walk.cpp).
  void add(const nn::OffloadWork& w) {
    flag("back", w.back);
    copy(type(w.buffer), 2 * real(buffer_of(plan, w.buffer).bytes()), 1, number_of(buffer_of(plan, w.buffer).box));
  }
  void add(const nn::TransferWork&) {}
  void add(const nn::ReductionWork&) {}
};

const std::vector<std::string_view> convolution_features{
    "samples",      "channels",     "filters",        "groups",          "output_depth",   "output_height",
    "output_width", "kernel_depth", "kernel_height",  "kernel_width",    "stride",         "dilation",
    "input_gaps",   "output_gaps",  "orders_filters", "channels_filled", "filters_filled", "width_filled",
    "inside",       "flops_inside", "filter_vectors", "row_vectors",     "row_values",     "rows",
    "reference",    "direct",       "onednn",         "kokkos_kernels",  "cudnn",          "products",
    "flops",        "bytes"};

/// Behind the features of each kind: bytes that were last used so far back, and the other fields of nn::Reuse.
constexpr std::array<std::string_view, nn::reuse_distances.size() + 2> reuse_features{
    "far_1_MiB", "far_4_MiB", "far_16_MiB", "far_64_MiB", "code_bytes", "step_bytes"};

using FeatureNames = std::array<std::vector<std::string_view>, kernel_kinds>;
FeatureNames with_reuse(FeatureNames names) {
  for (auto& of_kind : names) of_kind.insert(of_kind.end(), reuse_features.begin(), reuse_features.end());
  return names;
}

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
  static const FeatureNames names = with_reuse({{
      convolution_features,
      convolution_features,
      convolution_features,
      {"forward", "parameters", "data", "samples", "inputs", "features", "inputs_filled", "features_filled", "flops",
       "bytes"},
      {"average", "average_backward", "maximum", "maximum_backward", "global_sums", "global_mean", "global_backward",
       "samples", "channels", "channels_filled", "output_depth", "output_height", "output_width", "window", "stride",
       "run", "flops", "bytes"},
      {"backward", "rule", "samples", "channels", "inputs", "outputs", "flops", "bytes"},
      {"kind", "statistics", "squares", "forward", "gradient_sums", "scale_gradients", "backward", "relu", "summand",
       "trains", "channels", "channels_filled", "elements_per_channel", "run", "flops", "bytes"},
      {"bias", "bias_gradient", "rounding", "copy", "add", "forward", "backward", "dropout", "loss", "metrics",
       "elements", "inputs", "row", "run", "flops", "bytes"},
      {"optimiser", "elements", "tensors", "flops", "bytes"},
      {"boxes", "run", "bytes"},
  }});
  return names[static_cast<std::size_t>(kind)];
}

void set_reuse(KernelProblem& problem, const nn::Reuse& reuse) {
  const double bytes = problem.bytes();
  for (KernelCall& call : problem.calls) {
    const double share = bytes > 0 ? call.bytes / bytes : 0;
    auto feature =
        std::ranges::transform(reuse.far_bytes, call.features.end() - std::ssize(reuse_features), [share](double far) {
          return share * far;
        }).out;
    *feature++ = reuse.code_bytes;
    *feature = reuse.step_bytes;
  }
}

KernelProblem kernel_of(const StepPlan& plan, const PlanNode& node, const nn::Reuse& reuse) {
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
  for (KernelCall& call : maker.problem.calls) call.features.resize(call.features.size() + reuse_features.size());
  set_reuse(maker.problem, reuse);
  return maker.problem;
}

}  // namespace aloni::model
