#include <aloni/nn/plan/verify.hpp>

#include <aloni/nn/detail/convolution_direction.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <variant>

namespace aloni::nn {

namespace {

using views::Box;
using views::Dim;

/// Thrown inside this file only.
struct Found {
  PlanFault fault;
};

[[noreturn]] void refuse(const StepPlan& plan, const PlanNode* node, const std::string& what) {
  throw Found{{what, node ? node->label : "", {plan.rank}}};
}

/// The parts of `boxes` outside `other`.
void subtract(std::vector<Box>& boxes, const Box& other) {
  std::vector<Box> rest;
  for (const Box& box : boxes) {
    const Box common = intersect(box, other);
    if (common.empty()) {
      rest.push_back(box);
    } else {
      for (const Box& part : difference(box, common)) rest.push_back(part);
    }
  }
  boxes = std::move(rest);
}

bool covered(const Box& box, const std::vector<Box>& by) {
  if (box.empty()) return true;
  std::vector<Box> rest{box};
  for (const Box& b : by) {
    if (rest.empty()) return true;
    subtract(rest, b);
  }
  return rest.empty();
}

/// The cells of `region` whose inputs lie within `valid`. `needed`: the inputs of a box of results.
Box computable(Box region, const Box& valid, const std::function<Box(const Box&)>& needed) {
  if (region.empty() || contains(valid, needed(region))) return region;
  for (const Dim d : views::all_dims) {
    Index lo = region.lower(d), hi = region.upper(d);
    for (Index i = region.lower(d); i < region.upper(d); ++i) {
      // With a stride an index may need nothing while its neighbours do.
      const Box inputs = needed(detail::with_range(region, d, i, i + 1));
      if (inputs.empty()) continue;
      if (inputs.lower(d) < valid.lower(d)) lo = i + 1;
      if (inputs.upper(d) > valid.upper(d)) hi = std::min(hi, i);
    }
    if (lo >= hi) return {};
    region.set(d, lo, hi);
  }
  return region;  // the inputs of a window are a product of ranges
}

/// Runs the nodes of one rank in the order of the list, and keeps for each cell the node that wrote it last.
class Values {
 public:
  Values(const NetworkPlan& layers, const StepPlan& plan) : layers_(layers), plan_(plan), cells_(plan.buffers.size()) {}

  void run() {
    check_buffers();
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const PlanBuffer& buffer = plan_.buffers[b];
      if (buffer.alias == no_buffer && has_initial_value(static_cast<BufferId>(b)) && !buffer.owned.empty())
        cells_[b].push_back({buffer.owned, initial, static_cast<BufferId>(b), {buffer.owned}});
    }
    for (int n = 0; n < static_cast<int>(plan_.nodes.size()); ++n) {
      check_work(node(n));
      for (const PlanRegion& r : node(n).reads) read(n, r);
      for (const PlanRegion& r : node(n).writes) write(n, r);
    }
    check_results();
    check_unread();
  }

 private:
  static constexpr int initial = -1;  // not written by a node

  struct Cells {
    Box box;
    int writer;
    BufferId through;         // an alias with other indices, or the root
    std::vector<Box> unread;  // parts that no node has read so far
  };

  const PlanNode& node(int n) const { return plan_.nodes[static_cast<std::size_t>(n)]; }
  const PlanBuffer& buffer(BufferId b) const { return plan_.buffers[static_cast<std::size_t>(b)]; }

  bool has_initial_value(BufferId b) const {
    const BufferRole role = buffer(b).role;
    return role == BufferRole::input || role == BufferRole::parameters || role == BufferRole::optimiser ||
           (plan_.kind == StepKind::gradients && b == plan_.output_gradient);
  }

  void check_buffers() const {
    for (const PlanBuffer& b : plan_.buffers) {
      if (!b.owned.empty() && !contains(b.box, b.owned))
        refuse(plan_, nullptr,
               b.name + ": the memory of " + views::to_string(b.box) + " does not cover the owned box " +
                   views::to_string(b.owned));
      if (b.alias == no_buffer) continue;
      const PlanBuffer& root = buffer(b.alias);
      if (root.alias != no_buffer || root.bytes() < b.bytes())
        refuse(plan_, nullptr, b.name + ": does not fit into the memory of " + root.name);
    }
    for (const PlanNode& n : plan_.nodes) {
      for (const auto* regions : {&n.reads, &n.writes}) {
        for (const PlanRegion& r : *regions) {
          if (r.buffer < 0 || r.buffer >= static_cast<BufferId>(plan_.buffers.size()))
            refuse(plan_, &n, "buffer " + std::to_string(r.buffer) + " does not exist");
          if (regions == &n.writes && buffer(plan_.root(r.buffer)).adopted)
            refuse(plan_, &n, buffer(r.buffer).name + ": writes the memory of the caller");
          if (!contains(buffer(r.buffer).box, r.box))
            refuse(plan_, &n,
                   buffer(r.buffer).name + ": " + views::to_string(r.box) + " is outside the memory of " +
                       views::to_string(buffer(r.buffer).box));
        }
      }
    }
  }

  BufferId through(BufferId b) const { return buffer(b).other_indices ? b : plan_.root(b); }

  void read(int n, const PlanRegion& r) {
    if (buffer(r.buffer).by_kernels) return;
    std::vector<Box> rest{r.box};
    const BufferId view = through(r.buffer);
    for (Cells& c : cells_[static_cast<std::size_t>(plan_.root(r.buffer))]) {
      if (c.through != view || intersect(c.box, r.box).empty()) continue;
      check_writer(n, r, c);
      subtract(rest, c.box);
      subtract(c.unread, r.box);
      if (rest.empty()) break;
    }
    if (!rest.empty()) {
      refuse(plan_, &node(n),
             "reads " + buffer(r.buffer).name + " " + views::to_string(rest.front()) + ", which no node has written");
    }
    if (node(n).layer != node_layer_of_last_write(view)) read_by_others_[view] = n;
  }
  int node_layer_of_last_write(BufferId view) const {
    const auto found = last_write_.find(view);
    return found == last_write_.end() ? -2 : node(found->second).layer;
  }

  void write(int n, const PlanRegion& r) {
    auto& cells = cells_[static_cast<std::size_t>(plan_.root(r.buffer))];
    const BufferId view = through(r.buffer);
    // Before another layer reads a result, it must be complete.
    const auto last = last_write_.find(view);
    const auto reader = read_by_others_.find(view);
    if (last != last_write_.end() && reader != read_by_others_.end() && reader->second > last->second &&
        node(last->second).layer == node(n).layer && node(n).phase == StepPhase::forward &&
        node(last->second).phase == StepPhase::forward)
      refuse(plan_, &node(n),
             "changes " + buffer(r.buffer).name + " after " + node(reader->second).label + " has read it");
    std::vector<Cells> rest;
    for (const Cells& c : cells) {
      if (c.through != view) {
        if (!buffer(r.buffer).other_indices && !buffer(c.through).other_indices) rest.push_back(c);
        continue;  // other indices of the same memory: overwritten
      }
      std::vector<Box> boxes{c.box};
      subtract(boxes, r.box);
      for (const Box& b : boxes) {
        rest.push_back({b, c.writer, c.through, {}});
        for (const Box& u : c.unread)
          if (const Box part = intersect(u, b); !part.empty()) rest.back().unread.push_back(part);
      }
    }
    cells = std::move(rest);
    const Box valid = valid_part(node(n), r);
    if (!valid.empty()) cells.push_back({valid, n, view, {valid}});
    last_write_[view] = n;
  }

  /// The cells of a written region that get their final value: those of a window whose whole input is valid.
  Box valid_part(const PlanNode& n, const PlanRegion& r) const {
    const auto* work = std::get_if<ConvolutionWork>(&n.work);
    if (!work || r.buffer != work->target) return r.box;
    const LayerPlan& layer = layers_.layers[static_cast<std::size_t>(n.layer)];
    const detail::Direction direction{layer, work->backward};
    Box valid = r.box;
    for (const PlanRegion& source : n.reads) {
      if (source.buffer != work->source) continue;
      valid = intersect(valid, computable(r.box, source.box,
                                          [&](const Box& part) { return direction.needed_for(part, plan_.rank); }));
    }
    return valid;
  }

  bool reads_output_of(int layer, int source) const {
    const auto& readers = layers_.readers_of(source);
    return std::ranges::find(readers, layer) != readers.end();
  }
  int last_layer() const { return static_cast<int>(layers_.layers.size()) - 1; }

  /// A node of layer j reads activations of the layer's inputs and its own, and gradients of its readers, its own, and
  /// of others that read the same tensor. A convolution with ReLU also writes for the layer of that ReLU.
  void check_writer(int n, const PlanRegion& r, const Cells& c) const {
    const BufferRole role = buffer(plan_.root(r.buffer)).role;
    const PlanNode& reader = node(n);
    if (role == BufferRole::parameter_gradients && std::holds_alternative<OptimiserWork>(reader.work)) {
      for (const PlanNode& other : plan_.nodes) {
        const auto* sum = std::get_if<ReductionWork>(&other.work);
        if (sum && &other != &node(c.writer) && std::ranges::find(sum->buffers, r.buffer) != sum->buffers.end())
          refuse(plan_, &reader, "uses " + buffer(r.buffer).name + " before it is summed over the ranks");
      }
      return;
    }
    const bool activation = role == BufferRole::activation || role == BufferRole::ghosts || role == BufferRole::input;
    if (c.writer == initial && plan_.root(r.buffer) == plan_.output_gradient && reader.layer != last_layer())
      refuse(plan_, &reader, "reads the gradient of the output before the last layer has replaced it");
    if (c.writer == initial || (!activation && role != BufferRole::gradient)) return;
    const PlanNode& writer = node(c.writer);
    const int j = reader.layer, w = writer.layer;
    bool right = w == j;
    if (activation && buffer(r.buffer).role != BufferRole::gradient) {
      if (reader.phase == StepPhase::loss) {
        right = computes(writer, last_layer());
      } else if (j >= 0) {
        for (const LayerInput& input : layers_.layers[static_cast<std::size_t>(j)].inputs)
          right = right || computes(writer, input.source);
        // Copies with ghosts of dy belong to the reader itself.
      }
    }
    if (!right && j >= 0 && reader.phase == StepPhase::backward) {
      right = writer.phase == StepPhase::loss ? j == last_layer()
                                              : reads_output_of(w, j) && writer.phase == StepPhase::backward;
      for (const LayerInput& input : layers_.layers[static_cast<std::size_t>(j)].inputs)
        right = right || (writer.phase == StepPhase::backward && reads_output_of(w, input.source) &&
                          is_sum_of_gradients(reader));
    }
    if (!right) {
      refuse(plan_, &reader,
             "reads " + buffer(r.buffer).name + " " + views::to_string(intersect(c.box, r.box)) +
                 ", which another layer has overwritten: " + writer.label);
    }
  }

  static bool is_sum_of_gradients(const PlanNode& n) {
    const auto* work = std::get_if<PointwiseWork>(&n.work);
    return work && work->function == PointwiseFunction::add;
  }
  /// Whether the node computes the output of the layer: it belongs to the layer, or the layer has no node of its own.
  bool computes(const PlanNode& writer, int layer) const {
    if (writer.layer == layer || fused_into(writer, layer)) return true;
    if (layer < 0 || plan_.kind != StepKind::inference) return false;
    const LayerPlan& plan = layers_.layers[static_cast<std::size_t>(layer)];
    return plan.is_identity_in_inference && computes(writer, plan.inputs[0].source);
  }
  /// Whether the node is a convolution that also computes the ReLU `layer`.
  bool fused_into(const PlanNode& writer, int layer) const {
    const auto* work = std::get_if<ConvolutionWork>(&writer.work);
    return work && work->relu && layer >= 0 && reads_output_of(layer, writer.layer);
  }

  /// Each gradient is added to something, except on a rank without pixels of a tensor that all ranks average.
  void check_unread() const {
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const PlanBuffer& written = plan_.buffers[b];
      const bool is_output = static_cast<BufferId>(b) == plan_.output_gradient;
      if (written.role != BufferRole::gradient || (written.persistent && !is_output)) continue;
      // The gradient of the output is there for the user, also if no layer reads it. A concatenation reads each part.
      if (is_output && (layers_.layers.back().inputs.back().channel_offset == 0 || has_unwanted_part(last_layer())))
        continue;
      for (const Cells& c : cells_[b]) {
        if (c.unread.empty()) continue;
        const PlanNode* const writer = c.writer == initial ? nullptr : &node(c.writer);
        if (writer && (may_be_unread(writer->layer) || is_halo_exchange(*writer))) continue;
        refuse(plan_, writer,
               "no node reads " + written.name + " " + views::to_string(c.unread.front()) + " after it was written");
      }
    }
  }

  static bool is_halo_exchange(const PlanNode& n) {
    const auto* transfer = std::get_if<TransferWork>(&n.work);
    return transfer && !transfer->items.empty() && transfer->items[0].source == transfer->items[0].destination;
  }
  /// Whether the backward pass visits the layer; for -1, whether the gradient of the input is computed.
  bool wants_gradient(int layer) const {
    if (layer < 0) return plan_.input_gradient != no_buffer;
    return std::ranges::any_of(plan_.nodes, [&](const PlanNode& n) {
      return n.layer == layer && n.phase == StepPhase::backward && !std::holds_alternative<ReductionWork>(n.work);
    });
  }
  /// A concatenation passes on only the gradients that somebody wants.
  bool has_unwanted_part(int layer) const {
    const auto& inputs = layers_.layers[static_cast<std::size_t>(layer)].inputs;
    return inputs.back().channel_offset > 0 &&
           std::ranges::any_of(inputs, [&](const LayerInput& input) { return !wants_gradient(input.source); });
  }
  /// Whether a part of dL/dx of the layer may have no reader on this rank.
  bool may_be_unread(int layer) const {
    if (layer < 0) return false;
    for (const LayerInput& input : layers_.layers[static_cast<std::size_t>(layer)].inputs)
      if (input.source >= 0 && has_unwanted_part(input.source)) return true;
    // The mean over space of no pixels passes no gradient on.
    return std::ranges::any_of(layers_.layers[static_cast<std::size_t>(layer)].inputs, [&](const LayerInput& input) {
      if (input.source < 0) return false;
      const LayerPlan& producer = layers_.layers[static_cast<std::size_t>(input.source)];
      const auto is_replicated = [&](Dim d) { return producer.output.replicated(d); };
      return std::ranges::any_of(views::all_dims, is_replicated) && producer.input.owned(plan_.rank).empty();
    });
  }

  /// The output of the network and the gradient of its input are complete, and written by the right layer.
  void check_results() const {
    const auto is_loss = [](const PlanNode& n) {
      const auto* work = std::get_if<LossWork>(&n.work);
      return work && work->stage != LossStage::sums;
    };
    if (plan_.kind != StepKind::gradients && std::ranges::none_of(plan_.nodes, is_loss))
      refuse(plan_, nullptr, "no node computes the loss");
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const PlanBuffer& result = plan_.buffers[b];
      const bool output = result.role == BufferRole::activation, gradient = result.role == BufferRole::gradient;
      if (!result.persistent || result.alias != no_buffer || (!output && !gradient)) continue;
      std::vector<Box> written;
      for (const Cells& c : cells_[b]) {
        const PlanNode& writer = node(c.writer);
        if (output && !computes(writer, last_layer()))
          refuse(plan_, &writer, "writes " + result.name + " last, which is the output of the network");
        written.push_back(c.box);
      }
      if (!covered(result.owned, written))
        refuse(plan_, nullptr, "a part of " + result.name + " " + views::to_string(result.owned) + " is not written");
    }
  }

  // --- the work of a node and its regions ---

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

  void check_work(const PlanNode& n) const {
    std::visit([&](const auto& work) { check(n, work); }, n.work);
  }

  void check_call(const PlanNode& n, const ConvolutionCall& call, const ConvolutionWeights& weights, const Box& x,
                  const Box& y) const {
    if (!call.computes) return;
    const LayerPlan& layer = layers_.layers[static_cast<std::size_t>(n.layer)];
    const ConvolutionPart& part = weights.parts[static_cast<std::size_t>(call.part)].part;
    if (call.problem != detail::problem_of(layer, part, x, y))
      refuse(plan_, &n, "the problem of a kernel does not fit its boxes: " + to_string(call.problem));
  }

  void check(const PlanNode& n, const ConvolutionWork& w) const {
    writes(n, w.target, w.region);
    reads(n, w.bias, whole(w.bias));
    const ConvolutionWeights& weights = plan_.convolution_weights[static_cast<std::size_t>(w.weights)];
    const LayerPlan& layer = layers_.layers[static_cast<std::size_t>(n.layer)];
    const detail::Direction direction{layer, w.backward};
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
      needed = detail::with_channels(needed, direction.source_channels(part));
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
      reads(n, w.x, detail::with_channels(layer.input_of(call.target, plan_.rank), part.channels));
      reads(n, w.dy, call.target);
    }
    writes(n, w.dw, whole(w.dw));
    writes(n, w.db, whole(w.db));
  }
  void check(const PlanNode& n, const WeightsWork& w) const {
    const BufferId b = plan_.convolution_weights[static_cast<std::size_t>(w.weights)].w;
    reads(n, b, whole(b));
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
  void check(const PlanNode& n, const NormalisationWork& w) const {
    switch (w.stage) {
      case NormalisationStage::statistics:
        reads(n, w.x, w.region);
        return writes(n, w.sums, whole(w.sums));
      case NormalisationStage::squares:
        reads(n, w.x, w.region);
        reads(n, w.sums, whole(w.sums));
        return writes(n, w.squares, whole(w.squares));
      case NormalisationStage::forward:
        reads(n, w.x, w.region);
        if (w.trains) reads(n, w.sums, whole(w.sums));
        reads(n, w.gamma, whole(w.gamma));
        return writes(n, w.y, w.region);
      case NormalisationStage::gradient_sums:
      case NormalisationStage::scale_gradients:
        if (w.stage == NormalisationStage::gradient_sums) reads(n, w.dy, w.region);
        if (w.kind == NormalisationKind::batch || w.stage == NormalisationStage::scale_gradients)
          writes(n, w.dgamma, whole(w.dgamma));
        return;
      case NormalisationStage::backward:
        break;
    }
    reads(n, w.x, w.region);
    reads(n, w.dy, w.region);
    reads(n, w.sums, whole(w.sums));
    writes(n, w.dx, w.region);
  }
  void check(const PlanNode& n, const GlobalAverageWork& w) const {
    reads(n, w.source, w.from);
    writes(n, w.target, w.to);
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
    if (n.phase == StepPhase::backward && w.function == PointwiseFunction::add && w.inputs[0].buffer != w.output.buffer)
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
    if (plan_.ranks == 1) return;
    for (const Cells& c : cells_[static_cast<std::size_t>(plan_.root(w.global))])
      if (c.writer == initial || !std::holds_alternative<ReductionWork>(node(c.writer).work))
        refuse(plan_, &n, "uses " + buffer(w.global).name + " before it is summed over the ranks");
  }
  void check(const PlanNode&, const OptimiserWork&) const {}
  void check(const PlanNode& n, const ReductionWork& w) const {
    Index elements = 0;
    for (const BufferId b : w.buffers) {
      reads(n, b, whole(b));
      writes(n, b, whole(b));
      elements += buffer(b).box.size();
    }
    if (w.segment < 0 && elements != w.elements)
      refuse(plan_, &n, "sums another number of elements than its buffers have");
    if (std::ranges::find(w.members, plan_.rank) == w.members.end()) refuse(plan_, &n, "the rank is not a member");
  }
  void check(const PlanNode& n, const TransferWork& w) const {
    std::map<BufferId, std::vector<Box>> filled;
    for (const TransferItemPlan& item : w.items) {
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
  std::vector<std::vector<Cells>> cells_;   // by root buffer
  std::map<BufferId, int> last_write_;      // by buffer, or alias with other indices
  std::map<BufferId, int> read_by_others_;  // the last read by another layer than that of the last write
};

// --- communication ---

const PlanBuffer& buffer_of(const StepPlan& plan, BufferId b) { return plan.buffers[static_cast<std::size_t>(b)]; }

/// The nodes of all ranks with one number.
using Communication = std::vector<std::pair<const StepPlan*, const PlanNode*>>;

[[noreturn]] void refuse_pair(const Communication::value_type& a, const Communication::value_type& b,
                              const std::string& what) {
  throw Found{{what, a.second->label, {a.first->rank, b.first->rank}}};
}

void check_messages(const Communication::value_type& sender, const TransferWork& work, const Communication& all) {
  for (std::size_t i = 0; i < work.items.size(); ++i) {
    const TransferItemPlan& item = work.items[i];
    const auto expects = [&](const halo::Message& m, bool sends) {
      const auto& peer = all[static_cast<std::size_t>(m.peer)];
      const TransferItemPlan& other = std::get<TransferWork>(peer.second->work).items[i];
      const auto& candidates = sends ? other.plan.receives : other.plan.sends;
      const auto found = std::ranges::find(candidates, sender.first->rank, &halo::Message::peer);
      const char* const what =
          sends ? "sends a message that the peer does not expect" : "expects a message that the peer does not send";
      if (found == candidates.end()) refuse_pair(sender, peer, what);
      if (found->moves != m.moves || found->elements != m.elements)
        refuse_pair(sender, peer, "sends other boxes than the peer receives");
      if (buffer_of(*sender.first, item.source).type != buffer_of(*peer.first, other.source).type)
        refuse_pair(sender, peer, "sends another type than the peer receives");
    };
    const auto check = [&](const std::vector<halo::Message>& messages, bool sends) {
      for (const halo::Message& m : messages) {
        if (m.peer < 0 || m.peer >= static_cast<int>(all.size()) || m.peer == sender.first->rank)
          throw Found{{"a message to rank " + std::to_string(m.peer), sender.second->label, {sender.first->rank}}};
        Index elements = 0;
        for (const halo::Move& move : m.moves) elements += move.source.size();
        if (elements != m.elements)
          throw Found{{"a message of another size than its boxes", sender.second->label, {sender.first->rank}}};
        expects(m, sends);
      }
    };
    check(item.plan.sends, true);
    check(item.plan.receives, false);
  }
}

void check_communication(std::span<const StepPlan> plans) {
  std::map<int, Communication> all;
  for (const StepPlan& plan : plans) {
    int last = -1;
    for (const PlanNode& n : plan.nodes) {
      if (n.kind() == NodeKind::kernel) continue;
      if (n.communication <= last || n.communication >= plan.communications)
        refuse(plan, &n, "communication is not listed in the order of its numbers");
      last = n.communication;
      all[n.communication].emplace_back(&plan, &n);
    }
    if (plan.communications != plans[0].communications)
      throw Found{{"another number of communications", "", {0, plan.rank}}};
  }
  for (const auto& [number, nodes] : all) {
    const auto& first = nodes.front();
    for (const auto& other : nodes)
      if (other.second->work.index() != first.second->work.index() || other.second->layer != first.second->layer)
        refuse_pair(first, other, "another kind of communication than " + other.second->label);
    if (const auto* transfer = std::get_if<TransferWork>(&first.second->work)) {
      if (nodes.size() != plans.size())
        throw Found{{"only some ranks take part in a transfer", first.second->label, {first.first->rank}}};
      for (const auto& other : nodes) {
        const auto& theirs = std::get<TransferWork>(other.second->work);
        if (theirs.items.size() != transfer->items.size() || theirs.adjoint != transfer->adjoint ||
            theirs.name != transfer->name)
          refuse_pair(first, other, "ranks disagree on a transfer");
      }
      for (const auto& sender : nodes) check_messages(sender, std::get<TransferWork>(sender.second->work), nodes);
      continue;
    }
    for (const auto& [plan, node] : nodes) {
      const auto& mine = std::get<ReductionWork>(node->work);
      for (const int member : mine.members) {
        const auto theirs = std::ranges::find_if(nodes, [&](const auto& n) { return n.first->rank == member; });
        if (theirs == nodes.end())
          throw Found{{"a member does not take part in the sum", node->label, {plan->rank, member}}};
        const auto& other = std::get<ReductionWork>(theirs->second->work);
        if (other.members != mine.members || other.elements != mine.elements ||
            other.element_bytes != mine.element_bytes || other.segment != mine.segment || other.first != mine.first ||
            other.with_loss != mine.with_loss)
          refuse_pair({plan, node}, *theirs, "the members disagree on a sum");
      }
    }
  }
}

// --- gradients ---

struct Summand {
  int rank;
  Box part, outputs;
};

Index pixels_of(const Box& outputs) { return detail::pixels(outputs); }

void check_gradients(const NetworkPlan& layers, std::span<const StepPlan> plans) {
  // By name of the tensor and lowest member of its sum.
  struct Tensor {
    int layer = 0;
    Box whole;
    std::vector<int> members;
    std::vector<Summand> summands;
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
      bool written = false;
      for (const PlanNode& n : plan.nodes) {
        const auto writes_it = [&](const PlanRegion& r) { return r.buffer == g; };
        if (n.kind() != NodeKind::kernel || std::ranges::none_of(n.writes, writes_it)) continue;
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
    // A rank's parts of a split tensor need not fill the box that it keeps.
    std::vector<Box> parts;
    for (const Summand& s : t.summands)
      if (std::ranges::find(parts, s.part) == parts.end()) parts.push_back(s.part);
    Index expected = 0, sum = 0;
    if (t.members.size() == plans.size() || plans.size() == 1) {
      expected = t.whole.size() * pixels_of(outputs);
    } else {
      for (const Box& p : parts) expected += p.size() * pixels_of(outputs);
    }
    for (std::size_t a = 0; a < t.summands.size(); ++a) {
      const Summand& s = t.summands[a];
      sum += s.part.size() * pixels_of(s.outputs);
      for (std::size_t b = 0; b < a; ++b) {
        const Summand& other = t.summands[b];
        const auto no_channels = [](const Box& box) { return detail::with_channels(box, {0, 1}); };
        if (!intersect(s.part, other.part).empty() &&
            !intersect(no_channels(s.outputs), no_channels(other.outputs)).empty())
          throw Found{{key.first + " gets one summand twice", "", {other.rank, s.rank}}};
      }
    }
    if (sum != expected)
      throw Found{
          {key.first + " lacks summands: " + std::to_string(sum) + " of " + std::to_string(expected), "", t.members}};
  }
}

}  // namespace

std::string to_string(const PlanFault& fault) {
  std::string text = fault.ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < fault.ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(fault.ranks[i]);
  return text + (fault.node.empty() ? "" : ", " + fault.node) + ": " + fault.what;
}

std::optional<PlanFault> verify(const NetworkPlan& layers, std::span<const StepPlan> plans) {
  try {
    check_communication(plans);
    for (const StepPlan& plan : plans) Values(layers, plan).run();
    if (plans[0].kind != StepKind::inference) check_gradients(layers, plans);
  } catch (const Found& found) {
    return found.fault;
  }
  return std::nullopt;
}

}  // namespace aloni::nn
