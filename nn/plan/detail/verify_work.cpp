#include <aloni/nn/plan/detail/verify_work.hpp>

#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/plan/detail/reduction_members.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

namespace {

using views::Box;
using views::Dim;

/// One function per kind of work.
class WorkCheck {
 public:
  WorkCheck(const NetworkPlan& layers, const History& history)
      : layers_(layers), plan_(history.plan_), history_(history) {}

  void run(const PlanNode& n) const {
    std::visit([&](const auto& work) { check(n, work); }, n.work);
  }

 private:
  const PlanNode& node(int n) const { return history_.node(n); }
  const PlanBuffer& buffer(BufferId b) const { return history_.buffer(b); }

  void needs(const PlanNode& n, const std::vector<PlanRegion>& regions, BufferId b, const Box& box,
             const char* verb) const {
    if (b == no_buffer || box.empty()) return;
    std::vector<Box> named;
    for (const PlanRegion& r : regions)
      if (r.buffer == b) named.push_back(r.box);
    if (!covered(box, named))
      refuse(plan_, &n,
             std::string(verb) + " " + buffer(b).name + " " + views::to_string(box) + ", which the node does not name");
  }
  void reads(const PlanNode& n, BufferId b, const Box& box) const { needs(n, n.reads, b, box, "reads"); }
  void writes(const PlanNode& n, BufferId b, const Box& box) const { needs(n, n.writes, b, box, "writes"); }
  Box owned(BufferId b) const { return b == no_buffer ? Box{} : buffer(b).owned; }
  Box whole(BufferId b) const { return b == no_buffer ? Box{} : buffer(b).box; }

  void check_call(const PlanNode& n, const ConvolutionCall& call, const ConvolutionWeights& weights, const Box& x,
                  const Box& y) const {
    if (!call.computes) return;
    const LayerPlan& layer = layers_.layers[static_cast<std::size_t>(n.layer)];
    const ConvolutionPart& part = weights.parts[static_cast<std::size_t>(call.part)].part;
    if (call.problem != problem_of(layer, part, x, y))
      refuse(plan_, &n, "the problem of a kernel does not fit its boxes: " + to_string(call.problem));
    if (call.backend == local::ConvolutionBackend::automatic)
      refuse(plan_, &n, "the implementation of a kernel is not chosen");
    if (call.tf32 && call.backend != local::ConvolutionBackend::cudnn)
      refuse(plan_, &n, "multiplies in TF32 without cuDNN");
  }

  void check(const PlanNode& n, const ConvolutionWork& w) const {
    writes(n, w.target, w.region);
    reads(n, w.bias, whole(w.bias));
    check_filters(n, w.weights);
    const ConvolutionWeights& weights = plan_.convolution_weights[static_cast<std::size_t>(w.weights)];
    const LayerPlan& layer = layers_.layers[static_cast<std::size_t>(n.layer)];
    const Direction direction{layer, w.backward};
    std::vector<Box> computed;
    for (const ConvolutionCall& call : w.calls) {
      check_call(n, call, weights, w.backward ? call.target : call.source, w.backward ? call.source : call.target);
      computed.push_back(call.target);
      if (!contains(w.region, call.target)) refuse(plan_, &n, "computes outside its region");
      const ConvolutionPart& part = weights.parts[static_cast<std::size_t>(call.part)].part;
      Box needed = direction.needed_for(call.target, plan_.rank);
      if (needed.empty() && call.computes)
        refuse(plan_, &n, "a kernel computes " + views::to_string(call.target) + ", which no input reaches");
      // A border computes the cells again whose inputs are not in this memory.
      if (!call.computes && !intersect(needed, whole(w.source)).empty())
        refuse(plan_, &n, "no kernel computes " + views::to_string(call.target) + " from " + views::to_string(needed));
      if (needed.empty()) continue;
      needed = with_channels(needed, direction.source_channels(part));
      // What a kernel does not get it takes for padding. Stale ghosts are in memory but not read validly.
      if (!contains(call.source, intersect(needed, whole(w.source))))
        refuse(plan_, &n, "a kernel gets " + views::to_string(call.source) + " and needs " + views::to_string(needed));
    }
    if (!weights.parts.empty() && !covered(w.region, computed))
      refuse(plan_, &n, "leaves a part of " + views::to_string(w.region) + " without a value");
    for (const ConvolutionCall& call : w.calls) {
      const bool reads_any = std::ranges::any_of(n.reads, [&](const PlanRegion& r) { return r.buffer == w.source; });
      if (call.computes && !reads_any) refuse(plan_, &n, "does not name its source");
    }
  }
  void check(const PlanNode& n, const FilterGradientWork& w) const {
    const ConvolutionWeights& weights = plan_.convolution_weights[static_cast<std::size_t>(w.weights)];
    for (const ConvolutionCall& call : w.calls) {
      check_call(n, call, weights, call.source, call.target);
      if (!call.computes) continue;
      const LayerPlan& layer = layers_.layers[static_cast<std::size_t>(n.layer)];
      const auto& part = weights.parts[static_cast<std::size_t>(call.part)].part;
      reads(n, w.x, with_channels(layer.input_of(call.target, plan_.rank), part.channels));
      reads(n, w.dy, call.target);
    }
    writes(n, w.dw, whole(w.dw));
    writes(n, w.db, whole(w.db));
  }
  /// The weights are made ready in each phase: forward and backward are also steps of their own.
  void check_filters(const PlanNode& n, int weights) const {
    const BufferId filters = plan_.convolution_weights[static_cast<std::size_t>(weights)].filters;
    reads(n, filters, whole(filters));
    for (const WrittenCells& c : history_.cells_of(filters)) {
      const auto* work = c.writer == WrittenCells::initial ? nullptr : std::get_if<WeightsWork>(&node(c.writer).work);
      if (!work || work->weights != weights || node(c.writer).phase != n.phase)
        refuse(plan_, &n, "reads " + buffer(filters).name + ", which no node of its phase has made ready");
    }
  }
  void check(const PlanNode& n, const WeightsWork& w) const {
    const ConvolutionWeights& weights = plan_.convolution_weights[static_cast<std::size_t>(w.weights)];
    reads(n, weights.w, whole(weights.w));
    writes(n, weights.filters, whole(weights.filters));
  }
  void check(const PlanNode& n, const BiasWork& w) const {
    reads(n, w.bias, whole(w.bias));
    reads(n, w.target, w.region);
    writes(n, w.target, w.region);
  }
  void check(const PlanNode& n, const BiasGradientWork& w) const {
    reads(n, w.dy, w.region);
    writes(n, w.db, whole(w.db));
  }
  void check(const PlanNode& n, const RoundingWork& w) const {
    reads(n, w.sums, whole(w.sums));
    reads(n, w.bias, whole(w.bias));
    writes(n, w.target, w.region);
  }
  /// The inputs of a box of outputs of pooling or up-sampling.
  Box window(const PlanNode& n, const Box& outputs) const {
    if (outputs.empty()) return {};
    const LayerPlan& layer = layers_.layers[static_cast<std::size_t>(n.layer)];
    return intersect(layer.range_map ? layer.range_map->input_box(outputs) : layer.stencil.input_box(outputs),
                     views::whole(layer.input.extents()));
  }
  template <class WindowWork>
  void check_window(const PlanNode& n, const WindowWork& w) const {
    reads(n, w.source, w.backward ? w.from : window(n, w.to));
    writes(n, w.target, w.to);
    const Box x = w.backward ? w.to : w.from, needed = window(n, w.backward ? w.from : w.to);
    if (!contains(x, needed))
      refuse(plan_, &n, "a kernel gets " + views::to_string(x) + " and needs " + views::to_string(needed));
  }
  void check(const PlanNode& n, const PoolingWork& w) const {
    check_window(n, w);
    const int source = layers_.layers[static_cast<std::size_t>(n.layer)].inputs[0].source;
    const bool pooled = std::ranges::find(plan_.pooled_relus, source) != plan_.pooled_relus.end();
    if (w.relu != pooled || (w.relu && w.kind != PoolingKind::max))
      refuse(plan_, &n, "computes a ReLU that has nodes of its own, or leaves out one that has none");
    for (std::size_t i = 0; i < 3; ++i) {
      const Dim d = views::spatial_dims[i];
      const Box &x = w.backward ? w.to : w.from, &y = w.backward ? w.from : w.to;
      const halo::Stencil1D& s = layers_.layers[static_cast<std::size_t>(n.layer)].stencil[d];
      if (w.problem.input[i] != x.extent(d) || w.problem.output[i] != y.extent(d) ||
          w.problem.offset[i] != local::local_offset(y.lower(d), x.lower(d), s.stride, s.pad_low))
        refuse(plan_, &n, "the problem of a kernel does not fit its boxes: " + to_string(w.problem));
    }
  }
  void check(const PlanNode& n, const ResamplingWork& w) const {
    check_window(n, w);
    for (std::size_t i = 0; i < 3; ++i) {
      const Dim d = views::spatial_dims[i];
      const Box &x = w.backward ? w.to : w.from, &y = w.backward ? w.from : w.to;
      if (w.problem.input[i] != x.extent(d) || w.problem.output[i] != y.extent(d) ||
          w.problem.input_lower[i] != x.lower(d) || w.problem.output_lower[i] != y.lower(d))
        refuse(plan_, &n, "the problem of a kernel does not fit its boxes: " + to_string(w.problem));
    }
  }
  /// The ranks over which a normalisation sums, which must have each element of a mean once.
  std::vector<int> members_of(const PlanNode& n, const NormalisationWork& w) const {
    const LayerPlan& layer = layers_.layers[static_cast<std::size_t>(n.layer)];
    const Box mine = layer.input.owned(plan_.rank);
    switch (w.kind) {
      case NormalisationKind::group: {
        const GroupNorm op{.groups = layer.input.extents()[Dim::channel] / w.group_channels};
        const halo::Range channels = linked_blocks(op, layer, plan_.rank).channels;
        return members_over(n, layer, op, with_channels(mine, channels), w.count, w.groups * mine.extent(Dim::sample));
      }
      case NormalisationKind::layer: {
        const Index cells = mine.empty() ? 0 : mine.size() / mine.extent(Dim::channel);
        return members_over(n, layer, LayerNorm{}, with_channels(mine, all_channels(layer)), w.count, cells);
      }
      case NormalisationKind::batch:
        break;
    }
    return members_over(n, layer, BatchNorm{.scope = w.scope, .ranks = w.scope_ranks}, mine, w.count,
                        mine.extent(Dim::channel));
  }
  static halo::Range all_channels(const LayerPlan& layer) { return {0, layer.input.extents()[Dim::channel]}; }
  /// `channels`: a box with the channels of the means. `count`: the elements of a mean, by the plan; negative: not
  /// checked. `means`: their number.
  std::vector<int> members_over(const PlanNode& n, const LayerPlan& layer, const Operation& op, const Box& channels,
                                Index count, Index means) const {
    std::vector<int> members = members_of_sums(op, layer, plan_.rank);
    const Box mine = layer.input.owned(plan_.rank);
    std::vector<Box> parts;
    Index elements = 0;
    for (const int m : members) {
      const Box part = layer.input.owned(m);
      if (part.empty()) continue;
      if (!mine.empty() && (part.lower(Dim::channel) < channels.lower(Dim::channel) ||
                            part.upper(Dim::channel) > channels.upper(Dim::channel)))
        refuse(plan_, &n,
               "a sum over " + views::to_string(channels) + " includes other channels: " + views::to_string(part));
      for (const Box& other : parts)
        if (const Box twice = intersect(part, other); !twice.empty())
          refuse(plan_, &n, "a sum includes " + views::to_string(twice) + " twice");
      parts.push_back(part);
      elements += part.size();
    }
    if (count >= 0 && !mine.empty() && count * means != elements)
      refuse(plan_, &n,
             "a mean is over " + std::to_string(count) + " elements, and the ranks of its sum have " +
                 std::to_string(elements) + " for " + std::to_string(means) + " means");
    return members;
  }
  Makes stage_of_layer(const PlanNode& n, NormalisationStage stage) const {
    return [layer = n.layer, stage](const PlanNode& maker) {
      const auto* work = std::get_if<NormalisationWork>(&maker.work);
      return work && maker.layer == layer && work->stage == stage;
    };
  }

  /// The sum that a batch normalisation computes has no node of its own.
  void check_sum(const PlanNode& n, const NormalisationWork& w) const {
    reads(n, w.summand, w.summand_region);
    if (w.summand_region != w.region) refuse(plan_, &n, "adds other cells than it normalises");
    if (w.kind != NormalisationKind::batch || w.relu) refuse(plan_, &n, "a normalisation of this kind adds nothing");
    const auto& readers = layers_.readers_of(n.layer);
    for (const PlanNode& other : plan_.nodes)
      if (other.layer == readers[0] && other.phase == StepPhase::forward)
        refuse(plan_, &n, "computes the sum of " + other.label + " too");
  }

  /// The gradient of x by its other reader: that of the whole x, or the part of a concatenation that is x. A gradient
  /// that the node reads besides dy is this summand.
  void check_gradient_sum(const PlanNode& n, const NormalisationWork& w) const {
    for (const PlanRegion& r : n.reads)
      if (plan_.buffers[static_cast<std::size_t>(r.buffer)].role == BufferRole::gradient && r.buffer != w.dy &&
          r.buffer != w.summand)
        refuse(plan_, &n, "does not add the gradient that it reads");
    if (w.summand == no_buffer) return;
    reads(n, w.summand, w.summand_region);
    if (w.kind != NormalisationKind::batch) refuse(plan_, &n, "a normalisation of this kind adds nothing");
    Box expected = w.region;
    const int source = layers_.layers[static_cast<std::size_t>(n.layer)].inputs[0].source;
    for (const int other : layers_.readers_of(source)) {
      if (plan_.gradients[static_cast<std::size_t>(other)] != w.summand) continue;
      const auto& inputs = layers_.layers[static_cast<std::size_t>(other)].inputs;
      expected = shift_channels(w.region, std::ranges::find(inputs, source, &LayerInput::source)->channel_offset);
    }
    if (w.summand_region != expected)
      refuse(plan_, &n,
             "adds " + views::to_string(w.summand_region) + " of a gradient instead of " + views::to_string(expected));
  }

  /// The gradient goes through a ReLU exactly where the forward pass has computed one.
  void check_relu(const PlanNode& n, const NormalisationWork& w) const {
    for (const PlanNode& other : plan_.nodes) {
      const auto* forward = std::get_if<NormalisationWork>(&other.work);
      if (forward && forward->stage == NormalisationStage::forward && other.layer == n.layer && forward->relu != w.relu)
        refuse(plan_, &n, "the gradient and " + other.label + " differ in the ReLU");
    }
    if (!w.relu) return;
    reads(n, w.gamma, whole(w.gamma));
    reads(n, w.beta, whole(w.beta));
  }

  /// Known sums are those of the first channels of x, which another normalisation has summed over the same ranks. It
  /// reads the first input of the concatenation that is x.
  void check_known_sums(const PlanNode& n, const NormalisationWork& w) const {
    reads(n, w.known_sums, whole(w.known_sums));
    writes(n, w.all_sums, whole(w.all_sums));
    const std::vector<int> members = members_of(n, w);
    const auto has_them = [&](const PlanNode& maker) {
      const auto* work = std::get_if<NormalisationWork>(&maker.work);
      const bool has_all = work && work->kind == NormalisationKind::batch && w.kind == NormalisationKind::batch &&
                           (work->stage == NormalisationStage::statistics ? work->known_sums == no_buffer
                                                                          : work->all_sums == w.known_sums);
      return has_all && reads_first_channels(n, maker, members) && members_of(maker, *work) == members &&
             whole(w.known_sums).size() == 2 * work->region.extent(Dim::channel);
    };
    for (const WrittenCells& c : history_.cells_of(w.known_sums)) {
      const auto* joined =
          c.writer == WrittenCells::initial ? nullptr : std::get_if<NormalisationWork>(&node(c.writer).work);
      if (!joined || joined->all_sums == no_buffer)
        history_.check_summed(&n, w.known_sums, members, has_them);
      else if (!has_them(node(c.writer)))
        refuse(plan_, &n, "uses " + buffer(w.known_sums).name + ", which is not the sum of the right values");
    }
  }
  /// Whether the layer of `other` reads the first input of the concatenation that `n` reads, with the same elements on
  /// each of these ranks.
  bool reads_first_channels(const PlanNode& n, const PlanNode& other, const std::vector<int>& ranks) const {
    const LayerPlan &all = layers_.layers[static_cast<std::size_t>(n.layer)],
                    &some = layers_.layers[static_cast<std::size_t>(other.layer)];
    const int joined = all.inputs[0].source;
    if (joined < 0 || layers_.layers[static_cast<std::size_t>(joined)].inputs[0].source != some.inputs[0].source)
      return false;
    const Index channels = some.input.extents()[Dim::channel];
    const auto& inputs = layers_.layers[static_cast<std::size_t>(joined)].inputs;
    if (inputs.size() < 2 || inputs[1].channel_offset != channels) return false;
    return std::ranges::all_of(ranks, [&](int r) {
      const Box box = all.input.owned(r), first = some.input.owned(r);
      return first == with_channels(box, {0, channels}) || (first.empty() && box.empty());
    });
  }

  void check(const PlanNode& n, const NormalisationWork& w) const {
    Box mine = layers_.layers[static_cast<std::size_t>(n.layer)].input.owned(plan_.rank);
    if (w.stage == NormalisationStage::statistics && w.known_sums != no_buffer)
      mine = with_channels(mine, {mine.lower(Dim::channel) + whole(w.known_sums).size() / 2, mine.upper(Dim::channel)});
    if (w.layer != n.layer || (w.region != mine && !(w.region.empty() && mine.empty())))
      refuse(plan_, &n, "normalises " + views::to_string(w.region) + " and owns " + views::to_string(mine));
    switch (w.stage) {
      case NormalisationStage::statistics:
        reads(n, w.x, w.region);
        return writes(n, w.sums, whole(w.sums));
      case NormalisationStage::squares:
        reads(n, w.x, w.region);
        reads(n, w.sums, whole(w.sums));
        history_.check_summed(&n, w.sums, members_of(n, w), stage_of_layer(n, NormalisationStage::statistics));
        return writes(n, w.squares, whole(w.squares));
      case NormalisationStage::forward:
        reads(n, w.x, w.region);
        if (w.trains) reads(n, w.sums, whole(w.sums));
        if (w.trains && w.sums != no_buffer)
          history_.check_summed(
              &n, w.sums, members_of(n, w),
              stage_of_layer(n, w.splits_cells ? NormalisationStage::squares : NormalisationStage::statistics));
        reads(n, w.gamma, whole(w.gamma));
        if (w.known_sums != no_buffer) check_known_sums(n, w);
        if (w.kind == NormalisationKind::batch && w.trains && w.updates_running) writes(n, w.running, whole(w.running));
        if (w.summand != no_buffer) check_sum(n, w);
        if (w.sum_relu && w.summand == no_buffer) refuse(plan_, &n, "has the ReLU of a sum without the sum");
        return writes(n, w.y, w.region);
      case NormalisationStage::gradient_sums:
      case NormalisationStage::scale_gradients:
        if (w.stage == NormalisationStage::gradient_sums) reads(n, w.dy, w.region);
        if (w.kind == NormalisationKind::batch || w.stage == NormalisationStage::scale_gradients)
          writes(n, w.dgamma, whole(w.dgamma));
        return check_relu(n, w);
      case NormalisationStage::backward:
        break;
    }
    check_relu(n, w);
    check_gradient_sum(n, w);
    reads(n, w.x, w.region);
    reads(n, w.dy, w.region);
    reads(n, w.sums, whole(w.sums));
    if (w.sums != no_buffer)
      history_.check_summed(&n, w.sums, members_of(n, w), stage_of_layer(n, NormalisationStage::gradient_sums));
    writes(n, w.dx, w.region);
  }
  void check(const PlanNode& n, const GlobalAverageWork& w) const {
    reads(n, w.source, w.from);
    writes(n, w.target, w.to);
    const LayerPlan& layer = layers_.layers[static_cast<std::size_t>(n.layer)];
    const Box mine = layer.input.owned(plan_.rank), all = views::whole(layer.input.extents());
    if (w.scale != 1 / static_cast<double>(all.extent(Dim::depth) * all.extent(Dim::height) * all.extent(Dim::width)))
      refuse(plan_, &n, "the mean is over another number of pixels than the input has");
    if (w.stage == GlobalAverageStage::sums && w.from != mine && !(w.from.empty() && mine.empty()))
      refuse(plan_, &n, "sums " + views::to_string(w.from) + " and owns " + views::to_string(mine));
    if (w.stage != GlobalAverageStage::mean) return;
    history_.check_summed(&n, w.source, members_over(n, layer, GlobalAveragePooling{}, mine, -1, 0),
                          [&](const PlanNode& maker) {
                            const auto* work = std::get_if<GlobalAverageWork>(&maker.work);
                            return work && maker.layer == n.layer && work->stage == GlobalAverageStage::sums;
                          });
  }
  void check(const PlanNode& n, const DenseWork& w) const {
    if (w.pass != DensePass::data) reads(n, w.x, owned(w.x));
    switch (w.pass) {
      case DensePass::forward:
        reads(n, w.w, whole(w.w));
        return writes(n, w.y, owned(w.y));
      case DensePass::parameters:
        reads(n, w.dy, owned(w.dy));
        return writes(n, w.dw, whole(w.dw));
      case DensePass::data:
        break;
    }
    reads(n, w.dy, owned(w.dy));
    writes(n, w.dx, owned(w.dx));
  }
  void check(const PlanNode& n, const PointwiseWork& w) const {
    for (const PointwiseInput& in : w.inputs) {
      reads(n, in.buffer, in.box);
      if (in.box.size() != w.output.box.size()) refuse(plan_, &n, "inputs and output differ in size");
    }
    writes(n, w.output.buffer, w.output.box);
    const bool sums_gradients = n.phase == StepPhase::backward && n.repeats < 0;
    if (sums_gradients && w.function == PointwiseFunction::add && w.inputs[0].buffer != w.output.buffer)
      refuse(plan_, &n, "writes a sum of gradients to " + buffer(w.output.buffer).name);
  }
  void check(const PlanNode& n, const DropoutWork& w) const {
    reads(n, w.source, w.region);
    writes(n, w.target, w.region);
    const LayerPlan& layer = layers_.layers[static_cast<std::size_t>(n.layer)];
    if (w.layer != n.layer || w.extents != layer.output.extents())
      refuse(plan_, &n, "the mask belongs to another tensor");
  }
  void check(const PlanNode& n, const LossWork& w) const {
    reads(n, w.output, w.region);
    reads(n, w.targets, whole(w.targets));
    if (w.stage == LossStage::sums) return writes(n, w.global, whole(w.global));
    writes(n, w.gradient, w.region);
    writes(n, w.sums, whole(w.sums));
    if (w.stage == LossStage::whole) return;
    reads(n, w.global, whole(w.global));
    history_.check_summed(&n, w.global, history_.all_ranks(), [](const PlanNode& maker) {
      const auto* work = std::get_if<LossWork>(&maker.work);
      return work && work->stage == LossStage::sums;
    });
  }
  void check(const PlanNode& n, const MetricsWork& w) const {
    const views::Distribution& output = layers_.layers.back().output;
    reads(n, w.output, w.region);
    reads(n, w.targets, whole(w.targets));
    writes(n, w.sums, whole(w.sums));
    if (w.region != output.owned(plan_.rank)) refuse(plan_, &n, "the metrics are those of other samples");
    if (w.is_first_copy != output.is_first_copy(plan_.rank))
      refuse(plan_, &n,
             w.is_first_copy ? "counts samples that another rank counts" : "counts samples that no rank counts");
  }
  void check(const PlanNode& n, const NormWork& w) const {
    if (w.stage == NormStage::squares) {
      for (const UpdatedTensor& t : w.tensors) {
        reads(n, t.value, whole(t.value));
        reads(n, t.gradient, whole(t.gradient));
      }
      return writes(n, w.chunks, whole(w.chunks));
    }
    const Makes squares = [](const PlanNode& maker) {
      const auto* work = std::get_if<NormWork>(&maker.work);
      return work && work->stage == NormStage::squares;
    };
    reads(n, w.whole_sums, whole(w.whole_sums));
    reads(n, w.block_sums, whole(w.block_sums));
    history_.check_summed(&n, w.whole_sums, {plan_.rank}, squares);
    if (w.block_sums != no_buffer) history_.check_summed(&n, w.block_sums, history_.all_ranks(), squares);
    writes(n, w.factors, whole(w.factors));
  }
  void check(const PlanNode& n, const AccumulationWork& w) const {
    for (const auto* buffers : {&w.gradients, &w.sums}) {
      for (const BufferId b : *buffers) {
        reads(n, b, whole(b));
        writes(n, b, whole(b));
      }
    }
  }
  void check(const PlanNode& n, const OptimiserWork& w) const { reads(n, w.factors, whole(w.factors)); }
  void check(const PlanNode& n, const OffloadWork& w) const {
    const PlanBuffer &moved = buffer(w.buffer), &kept = buffer(w.host);
    if (moved.alias != no_buffer || moved.on_host() || !kept.on_host())
      refuse(plan_, &n, "copies between " + moved.name + " and " + kept.name);
    if (moved.box != kept.box || moved.type != kept.type)
      refuse(plan_, &n, "copies between buffers that differ in their boxes or types");
    if (n.phase != (w.back ? StepPhase::backward : StepPhase::forward)) refuse(plan_, &n, "copies in the wrong phase");
    reads(n, w.back ? w.host : w.buffer, moved.box);
    writes(n, w.back ? w.buffer : w.host, moved.box);
  }
  void check(const PlanNode& n, const ReductionWork& w) const {
    Index elements = 0;
    for (const BufferId b : w.buffers) {
      reads(n, b, whole(b));
      writes(n, b, whole(b));
      elements += buffer(b).box.size();
      // The sums of the loss travel behind the gradients, in their type.
      if (buffer(b).type != w.type && !(w.with_loss && b == w.buffers.back()))
        refuse(plan_, &n,
               std::string("adds ") + buffer(b).name + " as " + nn::name(w.type) + ", and it is " +
                   nn::name(buffer(b).type));
    }
    if (w.plan.algorithm == comm::AllReduceAlgorithm::automatic || w.plan.part_elements < 1)
      refuse(plan_, &n, "the algorithm of a sum is not chosen");
    if (w.segment < 0 && elements != w.elements)
      refuse(plan_, &n, "sums another number of elements than its buffers have");
    if (std::ranges::find(w.members, plan_.rank) == w.members.end()) refuse(plan_, &n, "the rank is not a member");
    if (w.partial && (w.segment != 0 || w.first != 0 || std::ssize(w.members) != plan_.ranks))
      refuse(plan_, &n, "a partial all-reduce does not sum the whole gradients of all ranks");
  }
  /// An adjoint transfer adds each value that it reads to one owner.
  void check_added_once(const PlanNode& n, const TransferItemPlan& item) const {
    std::vector<Box> moved;
    Index sum = 0, expected = 0;
    const auto add = [&](const halo::Move& m) {
      moved.push_back(shift_channels(m.destination, item.destination_channels));
      sum += moved.back().size();
    };
    for (const halo::Message& m : item.plan.receives) std::ranges::for_each(m.moves, add);
    std::ranges::for_each(item.plan.local, add);
    for (const PlanRegion& r : n.reads) {
      if (r.buffer != item.destination) continue;
      expected += r.box.size();
      if (!covered(r.box, moved))
        refuse(plan_, &n,
               "a part of " + buffer(r.buffer).name + " " + views::to_string(r.box) + " is not added to its owner");
    }
    if (sum != expected)
      refuse(plan_, &n, "a part of " + buffer(item.destination).name + " is added to its owner twice");
  }
  void check(const PlanNode& n, const TransferWork& w) const {
    std::map<BufferId, std::vector<Box>> filled;
    for (const TransferItemPlan& item : w.items) {
      if (w.adjoint) check_added_once(n, item);
      if (!contains(whole(item.source), item.source_box) || !contains(whole(item.destination), item.destination_box))
        refuse(plan_, &n, "a transfer between boxes outside the memory of its buffers");
      const auto source = [&](const halo::Move& m) {
        const Box box = shift_channels(m.source, item.source_channels);
        if (!contains(item.source_box, box)) refuse(plan_, &n, "moves from outside the source's box");
        w.adjoint ? writes(n, item.source, box) : reads(n, item.source, box);
      };
      const auto destination = [&](const halo::Move& m) {
        const Box box = shift_channels(m.destination, item.destination_channels);
        if (!contains(item.destination_box, box)) refuse(plan_, &n, "moves to outside the destination's box");
        w.adjoint ? reads(n, item.destination, box) : writes(n, item.destination, box);
        if (!w.adjoint) filled[item.destination].push_back(box);
      };
      for (const halo::Message& m : item.plan.sends) std::ranges::for_each(m.moves, source);
      for (const halo::Message& m : item.plan.receives) std::ranges::for_each(m.moves, destination);
      for (const halo::Move& m : item.plan.local) {
        source(m);
        destination(m);
      }
      for (const Box& fill : item.plan.fills) filled[item.destination].push_back(fill);
      if (w.adjoint) filled[item.source].push_back(item.source_box);  // overwritten as a whole
    }
    for (const PlanRegion& r : n.writes)
      if (!covered(r.box, filled[r.buffer]))
        refuse(plan_, &n, "nothing fills a part of " + buffer(r.buffer).name + " " + views::to_string(r.box));
  }

  const NetworkPlan& layers_;
  const StepPlan& plan_;
  const History& history_;  ///< before the node
};

}  // namespace

void check_work(const NetworkPlan& layers, const History& history, const PlanNode& node) {
  WorkCheck(layers, history).run(node);
}

}  // namespace aloni::nn::detail
