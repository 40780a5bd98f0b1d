#include <aloni/nn/plan/detail/layer_planner.hpp>

#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/local/channel_sums.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/plan/detail/reduction_members.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace aloni::nn::detail {

using views::Box;
using views::Dim;

namespace {

local::PoolingProblem pooling_problem(const LayerPlan& plan, const Box& x, const Box& y) {
  local::PoolingProblem p;
  p.samples = y.extent(Dim::sample);
  p.channels = y.extent(Dim::channel);
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    p.input[i] = x.extent(d);
    p.output[i] = y.extent(d);
    p.window[i] = plan.stencil[d].kernel;
    p.stride[i] = plan.stencil[d].stride;
    p.offset[i] = local::local_offset(y.lower(d), x.lower(d), plan.stencil[d].stride, plan.stencil[d].pad_low);
  }
  return p;
}

local::ResamplingProblem resampling_problem(const LayerPlan& plan, const Box& x, const Box& y) {
  local::ResamplingProblem p;
  p.samples = y.extent(Dim::sample);
  p.channels = y.extent(Dim::channel);
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    p.map[i] = (*plan.range_map)[d];
    p.input[i] = x.extent(d);
    p.output[i] = y.extent(d);
    p.input_lower[i] = x.lower(d);
    p.output_lower[i] = y.lower(d);
  }
  return p;
}

/// Of one sample.
Index pixels_of(const views::Extents& e) { return e[Dim::depth] * e[Dim::height] * e[Dim::width]; }

bool takes_maximum(const Operation& op) {
  if (const auto* p = std::get_if<Pooling>(&op)) return p->kind == PoolingKind::max;
  const auto* adaptive = std::get_if<AdaptivePooling>(&op);
  return adaptive != nullptr && adaptive->kind == PoolingKind::max;
}

}  // namespace

LayerPlanner::LayerPlanner(PlanBuilder& builder, const LayerDescription& description, const LayerPlan& plan, int layer,
                           LayerBuffers buffers)
    : builder_(builder),
      description_(description),
      plan_(plan),
      layer_(layer),
      buffers_(std::move(buffers)),
      work_(plan.forward_work(builder.rank())) {
  const OperationProperties properties = properties_of(description_.operation);
  pointwise_ = properties.pointwise.has_value();
  reads_input_ = properties.backward_reads_input;
  if (takes_maximum(description_.operation) && dx() != no_buffer) {
    argmax_ = builder_.add({.name = description_.name + "_argmax",
                            .role = BufferRole::workspace,
                            .type = ElementType::int32,
                            .owned = builder_[buffers_.y].owned,
                            .box = work_});
  }
  if (std::holds_alternative<Dense>(description_.operation) && builder_.activations() != builder_.parameters()) {
    const auto copy_of = [&](const char* what, BufferId b) {
      return builder_.add({.name = description_.name + what,
                           .role = BufferRole::workspace,
                           .type = builder_.parameters(),
                           .owned = builder_[b].owned,
                           .box = builder_[b].owned});
    };
    input_copy_ = copy_of("_input_copy", x());
    output_copy_ = copy_of("_output_copy", buffers_.y);
  }
  prepare_statistics();
}

void LayerPlanner::prepare_statistics() {
  const int rank = builder_.rank();
  const Box mine = plan_.input.owned(rank);
  const auto& e = plan_.input.extents();
  const auto add = [&](const char* what, Index elements) {
    return builder_.add_array(description_.name + what, BufferRole::workspace, ElementType::float64, elements);
  };
  members_ = members_of_sums(description_.operation, plan_, rank);
  if (const auto* bn = std::get_if<BatchNorm>(&description_.operation)) {
    const Index channels = mine.extent(Dim::channel);
    count_ = count_of(*bn, plan_, members_);
    const Index known = known_channels();
    sums_ = add("_sums", 2 * channels);
    new_sums_ = known > 0 ? add("_new_sums", 2 * (channels - known)) : sums_;
    statistics_ = add("_statistics", 2 * channels);
    const Index rows = mine.extent(Dim::sample) * mine.extent(Dim::depth) * mine.extent(Dim::height);
    const bool on_host = builder_.machine().on_host;
    // Two buffers: one would be in use from the forward to the backward pass.
    partial_ = add("_partial_sums", local::partial_sums(rows, channels - known, on_host));
    gradient_partial_ = add("_gradient_partial_sums", local::partial_sums(rows, channels, on_host));
    running_ = builder_.add({.name = description_.name + "_running",
                             .role = BufferRole::parameters,
                             .type = ElementType::float64,
                             .owned = flat(2 * e[Dim::channel]),
                             .box = flat(2 * e[Dim::channel]),
                             .persistent = true});
  } else if (const auto* gn = std::get_if<GroupNorm>(&description_.operation)) {
    const halo::Range channels = linked_blocks(*gn, plan_, rank).channels;
    group_channels_ = e[Dim::channel] / gn->groups;
    groups_ = (channels.hi - channels.lo) / group_channels_;
    first_channel_ = mine.lower(Dim::channel) - channels.lo;
    count_ = pixels_of(e) * group_channels_;
    sums_ = add("_sums", 2 * mine.extent(Dim::sample) * groups_);
    statistics_ = add("_statistics", 2 * mine.extent(Dim::sample) * mine.extent(Dim::channel));
    builder_.at(statistics_).by_kernels = true;
  } else if (std::holds_alternative<LayerNorm>(description_.operation)) {
    const Index cells = with_channels(mine, {0, 1}).size();
    count_ = e[Dim::channel];
    statistics_ = add("_statistics", 2 * cells);
    builder_.at(statistics_).by_kernels = true;
    if (splits_cells()) {
      sums_ = add("_sums", cells);
      squares_ = add("_squares", cells);
      if (dx() != no_buffer) gradient_sums_ = add("_gradient_sums", 2 * cells);
    }
  } else if (std::holds_alternative<GlobalAveragePooling>(description_.operation)) {
    const Box out = builder_[buffers_.y].owned;
    sums_ = builder_.add({.name = description_.name + "_sums",
                          .role = BufferRole::workspace,
                          .type = builder_.parameters(),
                          .owned = out,
                          .box = out});
  }
}

Index LayerPlanner::known_channels() const {
  return buffers_.known_sums == no_buffer ? 0 : builder_[buffers_.known_sums].box.size() / 2;
}

ReductionWork LayerPlanner::sum_of(BufferId b) const {
  return {.members = members_, .elements = builder_[b].box.size(), .type = builder_[b].type, .buffers = {b}};
}

void LayerPlanner::add_forward(bool trains) {
  if (pointwise_) return add_pointwise(false);
  std::visit(
      [&](const auto& op) {
        using Op = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, Pooling>) add_pooling(false);
        if constexpr (std::is_same_v<Op, AdaptivePooling> || std::is_same_v<Op, Upsampling>) add_resampling(false);
        if constexpr (std::is_same_v<Op, BatchNorm>) add_batch_norm_forward(trains);
        if constexpr (std::is_same_v<Op, GroupNorm>) add_group_norm_forward();
        if constexpr (std::is_same_v<Op, LayerNorm>) add_layer_norm_forward();
        if constexpr (std::is_same_v<Op, Dropout>) add_dropout_forward(trains);
        if constexpr (std::is_same_v<Op, Flatten>) add_flatten(false);
        if constexpr (std::is_same_v<Op, Dense>) add_dense_forward();
        if constexpr (std::is_same_v<Op, GlobalAveragePooling>) add_average_forward();
        if constexpr (std::is_same_v<Op, Add>) add_add_forward();
      },
      description_.operation);
}

void LayerPlanner::add_backward(const std::function<void()>& beside_sums) {
  if (pointwise_) return add_pointwise(true);
  std::visit(
      [&](const auto& op) {
        using Op = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, Pooling>) add_pooling(true);
        if constexpr (std::is_same_v<Op, AdaptivePooling> || std::is_same_v<Op, Upsampling>) add_resampling(true);
        if constexpr (std::is_same_v<Op, BatchNorm>) add_batch_norm_backward(beside_sums);
        if constexpr (std::is_same_v<Op, GroupNorm>) add_group_norm_backward(beside_sums);
        if constexpr (std::is_same_v<Op, LayerNorm>) add_layer_norm_backward(beside_sums);
        if constexpr (std::is_same_v<Op, Dropout>) add_dropout_backward();
        if constexpr (std::is_same_v<Op, Flatten>) add_flatten(true);
        if constexpr (std::is_same_v<Op, Dense>) add_dense_backward();
        if constexpr (std::is_same_v<Op, GlobalAveragePooling>) add_average_backward();
        if constexpr (std::is_same_v<Op, Add>) add_add_backward();
      },
      description_.operation);
}

// --- windows ---

/// `problem_of`: the problem for a box of x and a box of y.
template <class WindowWork, class ProblemOf>
void LayerPlanner::add_window(WindowWork work, const ProblemOf& problem_of) {
  work.argmax = argmax_;
  if (!work.backward) {
    if (work_.empty()) return;
    work.source = x();
    work.target = buffers_.y;
    work.from = builder_[x()].box;
    work.to = work_;
    work.problem = problem_of(plan_, work.from, work_);
    builder_.add("", work, {{x(), plan_.input_needed(builder_.rank())}}, {{buffers_.y, work_}, all(argmax_)});
    return;
  }
  const Box to = plan_.input_needed_by_owned(builder_.rank());
  if (dx() == no_buffer || to.empty()) return;
  work.source = buffers_.dy;
  work.target = dx();
  work.from = builder_[buffers_.dy].owned;
  work.to = to;
  work.problem = problem_of(plan_, to, builder_[buffers_.y].owned);
  builder_.add("", work, {owned(buffers_.dy), owned(argmax_)}, {{dx(), to}});
}

void LayerPlanner::add_pooling(bool backward) {
  const auto& op = std::get<Pooling>(description_.operation);
  add_window(
      PoolingWork{.backward = backward,
                  .kind = op.kind,
                  .relu = buffers_.holds_relu_before,
                  .divisor = op.count_include_pad ? local::AverageDivisor::window : local::AverageDivisor::in_domain},
      pooling_problem);
}

/// Each rank writes the gradients of all inputs that its outputs read; ghosts are added to their owners. For
/// up-sampling this moves one row of the coarse tensor; gathering would move several rows of the fine one.
void LayerPlanner::add_resampling(bool backward) {
  add_window(ResamplingWork{.backward = backward, .maximum = takes_maximum(description_.operation)},
             resampling_problem);
}

// --- normalisation ---

NormalisationWork LayerPlanner::normalisation(NormalisationStage stage) const {
  NormalisationWork work{.stage = stage,
                         .layer = layer_,
                         .count = count_,
                         .groups = groups_,
                         .group_channels = group_channels_,
                         .first_channel = first_channel_,
                         .is_first_copy = is_first_copy(),
                         .region = plan_.input.owned(builder_.rank()),
                         .x = x(),
                         .y = buffers_.y,
                         .dx = dx(),
                         .dy = buffers_.dy,
                         .gamma = parameter(0),
                         .beta = parameter(1),
                         .dgamma = gradient(0),
                         .dbeta = gradient(1),
                         .sums = sums_,
                         .statistics = statistics_,
                         .partial = partial_,
                         .running = running_};
  if (const auto* bn = std::get_if<BatchNorm>(&description_.operation)) {
    work.relu = buffers_.holds_relu;
    work.epsilon = bn->epsilon;
    work.momentum = bn->momentum;
    work.scope = bn->scope;
    work.scope_ranks = bn->ranks;
  } else if (const auto* gn = std::get_if<GroupNorm>(&description_.operation)) {
    work.kind = NormalisationKind::group;
    work.epsilon = gn->epsilon;
  } else {
    work.kind = NormalisationKind::layer;
    work.splits_cells = splits_cells();
    work.epsilon = std::get<LayerNorm>(description_.operation).epsilon;
  }
  return work;
}

void LayerPlanner::add_summands(PlanNode& node) const {
  const Box own = plan_.output.owned(builder_.rank());
  if (!is_first_copy() || own.empty()) return;
  for (const BufferId g : {gradient(0), gradient(1)})
    if (g != no_buffer) node.summands.push_back({g, channels_of(own), own});
}

void LayerPlanner::add_batch_norm_forward(bool trains) {
  NormalisationWork work = normalisation(NormalisationStage::statistics);
  work.trains = trains;
  work.sums = new_sums_;
  work.known_sums = buffers_.known_sums;
  const Box own = work.region;
  const bool computes = !trains || count_ > 0;  // else no rank of the group has data
  if (trains) {
    if (computes) {
      work.region = with_channels(own, {own.lower(Dim::channel) + known_channels(), own.upper(Dim::channel)});
      builder_.add("sums of this rank", work, {{x(), work.region}}, {all(new_sums_), all(statistics_), all(partial_)});
    }
    ReductionWork sum = sum_of(new_sums_);
    if (!computes) sum.elements = 0;
    builder_.reduction("sums over ranks", std::move(sum), {all(new_sums_)});
  }
  if (!computes) return;
  work.stage = NormalisationStage::forward;
  work.region = own;
  PlanBuilder::Regions reads{input(), all(work.gamma), all(work.beta), all(running_)};
  // y may have ghosts for the readers of a sum.
  PlanBuilder::Regions writes{{buffers_.y, work.region}, all(statistics_)};
  work.summand = buffers_.summand;
  work.sum_relu = buffers_.holds_sum_relu;
  if (work.summand != no_buffer) {
    work.summand_region = work.region;
    reads.push_back({work.summand, work.region});
  }
  if (trains) {
    reads.insert(reads.end(), {all(new_sums_), all(work.known_sums), all(statistics_)});
    writes.push_back(all(running_));
    if (work.known_sums != no_buffer) {
      work.all_sums = sums_;
      writes.push_back(all(sums_));
    }
  }
  builder_.add("normalise", work, std::move(reads), std::move(writes));
}

void LayerPlanner::add_batch_norm_backward(const std::function<void()>& beside_sums) {
  NormalisationWork work = normalisation(NormalisationStage::gradient_sums);
  work.partial = gradient_partial_;
  PlanBuilder::Regions reads{input(), owned(buffers_.dy)};
  if (count_ > 0) reads.push_back(all(statistics_));
  if (work.relu) reads.insert(reads.end(), {all(work.gamma), all(work.beta)});  // for the sign of y
  PlanBuilder::Regions writes{all(sums_), all(work.dgamma), all(work.dbeta)};
  if (count_ > 0) writes.push_back(all(gradient_partial_));
  add_summands(builder_.add("sums of this rank", work, std::move(reads), std::move(writes)));
  const bool computes = count_ > 0 && dx() != no_buffer;
  ReductionWork sum = sum_of(sums_);
  if (!computes) sum.elements = 0;
  builder_.reduction("sums over ranks", std::move(sum), {all(sums_)});
  beside_sums();
  if (!computes || builder_[dx()].owned.empty()) return;
  work.stage = NormalisationStage::backward;
  reads = {input(), owned(buffers_.dy), all(sums_), all(work.gamma), all(statistics_)};
  if (work.relu) reads.push_back(all(work.beta));
  if (const PlanRegion& summand = buffers_.gradient_summand; summand.buffer != no_buffer) {
    work.summand = summand.buffer;
    work.summand_region = summand.box;
    reads.push_back(summand);
  }
  builder_.add("data", work, std::move(reads), {owned(dx())});
}

/// The ranks that share samples and groups add the sums over their pixels and channels. A rank without pixels, or
/// without channels of one of the groups, contributes zeros.
void LayerPlanner::add_group_norm_forward() {
  NormalisationWork work = normalisation(NormalisationStage::statistics);
  builder_.add("sums of this rank", work, {owned(x())}, {all(sums_), all(statistics_)});
  builder_.reduction("sums over ranks", sum_of(sums_), {all(sums_)});
  work.stage = NormalisationStage::forward;
  builder_.add("normalise", work, {owned(x()), all(sums_), all(work.gamma), all(work.beta)},
               {owned(buffers_.y), all(statistics_)});
}

void LayerPlanner::add_group_norm_backward(const std::function<void()>& beside_sums) {
  NormalisationWork work = normalisation(NormalisationStage::gradient_sums);
  const bool learned = work.dgamma != no_buffer;
  if (dx() == no_buffer && !learned) return;
  builder_.add("sums of this rank", work, {owned(x()), owned(buffers_.dy), all(work.gamma), all(statistics_)},
               {all(sums_), all(statistics_)});
  if (dx() != no_buffer) builder_.reduction("sums over ranks", sum_of(sums_), {all(sums_)});
  beside_sums();
  if (learned) {
    work.stage = NormalisationStage::scale_gradients;
    add_summands(builder_.add("scale", work, {all(statistics_)}, {all(work.dgamma), all(work.dbeta)}));
  }
  if (dx() == no_buffer) return;
  work.stage = NormalisationStage::backward;
  builder_.add("data", work, {owned(x()), owned(buffers_.dy), all(work.gamma), all(sums_), all(statistics_)},
               {owned(dx()), all(statistics_)});
}

/// The rank that owns a pixel normalises it. Where several ranks own channels of a pixel, they first add its channels,
/// then the squares of the distances from the mean: sums of x² would lose the digits of values far from zero.
void LayerPlanner::add_layer_norm_forward() {
  NormalisationWork work = normalisation(NormalisationStage::forward);
  if (splits_cells()) {
    work.stage = NormalisationStage::statistics;
    builder_.add("sums of this rank", work, {owned(x())}, {all(sums_)});
    builder_.reduction("sums over ranks", sum_of(sums_), {all(sums_)});
    work.stage = NormalisationStage::squares;
    work.squares = squares_;
    builder_.add("squares of this rank", work, {owned(x()), all(sums_)}, {all(squares_), all(statistics_)});
    builder_.reduction("squares over ranks", sum_of(squares_), {all(squares_)});
    work.stage = NormalisationStage::forward;
    work.sums = squares_;
    builder_.add("normalise", work, {owned(x()), all(squares_), all(work.gamma), all(work.beta), all(statistics_)},
                 {owned(buffers_.y), all(statistics_)});
    return;
  }
  builder_.add("", work, {owned(x()), all(work.gamma), all(work.beta)}, {owned(buffers_.y), all(statistics_)});
}

void LayerPlanner::add_layer_norm_backward(const std::function<void()>& beside_sums) {
  NormalisationWork work = normalisation(NormalisationStage::gradient_sums);
  work.sums = gradient_sums_;
  if (gradient_sums_ != no_buffer) {
    builder_.add("sums of this rank", work, {owned(x()), owned(buffers_.dy), all(work.gamma), all(statistics_)},
                 {all(gradient_sums_)});
    builder_.reduction("sums over ranks", sum_of(gradient_sums_), {all(gradient_sums_)});
  }
  beside_sums();
  work.stage = NormalisationStage::scale_gradients;
  if (work.dgamma != no_buffer) {
    add_summands(builder_.add("scale", work, {owned(x()), owned(buffers_.dy), all(statistics_)},
                              {all(work.dgamma), all(work.dbeta)}));
  }
  if (dx() == no_buffer) return;
  work.stage = NormalisationStage::backward;
  builder_.add("data", work, {owned(x()), owned(buffers_.dy), all(work.gamma), all(gradient_sums_), all(statistics_)},
               {owned(dx())});
}

// --- the others ---

/// dx may be dy. Where the gradient depends on y only, y may be x.
void LayerPlanner::add_pointwise(bool backward) {
  const BufferId y = buffers_.y;
  if (!backward) {
    if (work_.empty()) return;
    builder_.add("", PointwiseWork{PointwiseFunction::layer, {{x(), work_}}, {y, work_}, description_.operation},
                 {{x(), work_}}, {{y, work_}});
    return;
  }
  if (!writes_dx()) return;
  const BufferId dy = buffers_.dy;
  const Box own = builder_[dx()].owned;
  const PlanRegion value{reads_input_ ? x() : y, own};
  builder_.add(
      "",
      PointwiseWork{
          PointwiseFunction::layer_gradient, {{value.buffer, own}, {dy, own}}, {dx(), own}, description_.operation},
      {value, owned(dy)}, {owned(dx())});
}

void LayerPlanner::add_dropout_forward(bool trains) {
  if (work_.empty()) return;
  const PlanRegion from{x(), work_}, to{buffers_.y, work_};
  if (!trains) {
    builder_.add("", PointwiseWork{PointwiseFunction::copy, {{x(), work_}}, {buffers_.y, work_}}, {from}, {to});
    return;
  }
  builder_.add("",
               DropoutWork{.layer = layer_,
                           .rate = std::get<Dropout>(description_.operation).rate,
                           .extents = plan_.output.extents(),
                           .source = x(),
                           .target = buffers_.y,
                           .region = work_},
               {from}, {to});
}

/// Makes the mask of the forward pass again.
void LayerPlanner::add_dropout_backward() {
  if (!writes_dx()) return;
  builder_.add("",
               DropoutWork{.layer = layer_,
                           .rate = std::get<Dropout>(description_.operation).rate,
                           .extents = plan_.output.extents(),
                           .source = buffers_.dy,
                           .target = dx(),
                           .region = builder_[dx()].owned},
               {owned(buffers_.dy)}, {owned(dx())});
}

/// The input has whole samples. The output has the same elements in the same order, with another shape.
void LayerPlanner::add_flatten(bool backward) {
  const BufferId from = backward ? buffers_.dy : x(), to = backward ? dx() : buffers_.y;
  if (to == no_buffer || builder_[to].owned.empty()) return;
  builder_.add("", PointwiseWork{PointwiseFunction::copy, {{from, builder_[from].owned}}, {to, builder_[to].owned}},
               {owned(from)}, {owned(to)});
}

void LayerPlanner::add_dense_forward() {
  const Box out = builder_[buffers_.y].owned;
  if (out.empty()) return;
  builder_.add("",
               DenseWork{.layer = layer_,
                         .samples = out.extent(Dim::sample),
                         .features = out.extent(Dim::channel),
                         .inputs = builder_[x()].owned.extent(Dim::channel),
                         .x = x(),
                         .y = buffers_.y,
                         .w = parameter(0),
                         .b = parameter(1),
                         .input_copy = input_copy_,
                         .output_copy = output_copy_},
               {owned(x()), all(parameter(0)), all(parameter(1))},
               {owned(buffers_.y), all(input_copy_), all(output_copy_)});
}

void LayerPlanner::add_dense_backward() {
  const Box out = builder_[buffers_.dy].owned;
  DenseWork work{.pass = DensePass::parameters,
                 .layer = layer_,
                 .contributes = is_first_copy() && !out.empty(),
                 .samples = out.extent(Dim::sample),
                 .features = plan_.output.extents()[Dim::channel],
                 .inputs = plan_.input.extents()[Dim::channel],
                 .x = x(),
                 .dx = dx(),
                 .dy = buffers_.dy,
                 .w = parameter(0),
                 .dw = gradient(0),
                 .db = gradient(1),
                 .input_copy = input_copy_,
                 .output_copy = output_copy_};
  PlanNode& node = builder_.add("weights", work, {owned(x()), owned(buffers_.dy)},
                                {all(work.dw), all(work.db), all(input_copy_), all(output_copy_)});
  if (work.contributes) {
    node.summands.push_back({work.dw, builder_[work.dw].box, out});
    if (work.db != no_buffer) node.summands.push_back({work.db, builder_[work.db].box, out});
  }
  if (!writes_dx()) return;
  work.pass = DensePass::data;
  builder_.add("data", work, {owned(buffers_.dy), all(work.w)}, {owned(dx()), all(input_copy_), all(output_copy_)});
}

/// Each rank sums its pixels. The ranks that share its samples add these sums, and each then has the mean.
void LayerPlanner::add_average_forward() {
  GlobalAverageWork work{.scale = 1.0 / static_cast<double>(pixels_of(plan_.input.extents())),
                         .source = x(),
                         .target = sums_,
                         .from = builder_[x()].owned,
                         .to = builder_[sums_].owned};
  const bool computes = !work.to.empty();
  if (computes) builder_.add("sums of this rank", work, {owned(x())}, {all(sums_)});
  builder_.reduction("sums over ranks", sum_of(sums_), {all(sums_)});
  if (!computes) return;
  work.stage = GlobalAverageStage::mean;
  work.source = sums_;
  work.target = buffers_.y;
  work.from = work.to;
  builder_.add("mean", work, {all(sums_)}, {owned(buffers_.y)});
}

void LayerPlanner::add_average_backward() {
  if (!writes_dx()) return;
  const GlobalAverageWork work{.stage = GlobalAverageStage::backward,
                               .scale = 1.0 / static_cast<double>(pixels_of(plan_.input.extents())),
                               .source = buffers_.dy,
                               .target = dx(),
                               .from = builder_[buffers_.dy].owned,
                               .to = builder_[dx()].owned};
  builder_.add("", work, {owned(buffers_.dy)}, {owned(dx())});
}

void LayerPlanner::add_add_forward() {
  if (work_.empty()) return;
  PointwiseWork work{PointwiseFunction::add, {}, {buffers_.y, work_}};
  PlanBuilder::Regions reads;
  for (const BufferId b : buffers_.x) {
    work.inputs.push_back({b, work_});
    reads.push_back({b, work_});
  }
  builder_.add("", std::move(work), std::move(reads), {{buffers_.y, work_}});
}

/// Most dx are dy itself. The others are copies, for layers that write their dy.
void LayerPlanner::add_add_backward() {
  for (const BufferId d : buffers_.dx) {
    const BufferId dy = buffers_.dy;
    if (d == no_buffer || d == dy || builder_[d].owned.empty()) continue;
    builder_.add("", PointwiseWork{PointwiseFunction::copy, {{dy, builder_[dy].owned}}, {d, builder_[d].owned}},
                 {owned(dy)}, {owned(d)});
  }
}

}  // namespace aloni::nn::detail
