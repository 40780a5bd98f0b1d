#include <aloni/nn/plan/detail/verify_values.hpp>

#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/metrics.hpp>
#include <aloni/nn/plan/detail/verify_history.hpp>
#include <aloni/nn/plan/detail/verify_repetitions.hpp>
#include <aloni/nn/plan/detail/verify_work.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::detail {

namespace {

using views::Box;
using views::Dim;

/// The cells of `region` whose inputs lie within `valid`. `needed`: the inputs of a box of results.
Box computable(Box region, const Box& valid, const std::function<Box(const Box&)>& needed) {
  if (region.empty() || contains(valid, needed(region))) return region;
  for (const Dim d : views::all_dims) {
    Index lo = region.lower(d), hi = region.upper(d);
    for (Index i = region.lower(d); i < region.upper(d); ++i) {
      // With a stride an index may need nothing while its neighbours do.
      const Box inputs = needed(with_range(region, d, i, i + 1));
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
class Values : History {
 public:
  Values(const NetworkPlan& layers, const StepPlan& plan) : History(plan), layers_(layers) {}

  void run() {
    check_buffers();
    for (const int relu : plan_.pooled_relus)
      if (layers_.readers_of(relu).size() != 1)
        refuse(plan_, nullptr, "layer " + std::to_string(relu) + ", a ReLU without nodes, has several readers");
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const PlanBuffer& buffer = plan_.buffers[b];
      if (buffer.alias == no_buffer && has_initial_value(static_cast<BufferId>(b)) && !buffer.owned.empty())
        cells_[b].push_back({buffer.owned, initial, static_cast<BufferId>(b), {buffer.owned}});
    }
    for (int n = 0; n < static_cast<int>(plan_.nodes.size()); ++n) {
      check_work(layers_, *this, node(n));
      repetitions_.check(*this, n);
      if (const auto* copy = std::get_if<OffloadWork>(&node(n).work)) {
        copy->back ? bring_back(n, *copy) : take_away(*copy);
        continue;
      }
      for (const PlanRegion& r : node(n).reads) read(n, r);
      if (std::holds_alternative<ReductionWork>(node(n).work))
        for (const PlanRegion& r : node(n).reads) addends_[{n, plan_.root(r.buffer)}] = writers_of(r);
      for (const PlanRegion& r : node(n).writes) write(n, r);
    }
    check_results();
    check_unread();
    check_passed_gradients();
  }

 private:
  using Cells = WrittenCells;
  static constexpr int initial = WrittenCells::initial;

  bool has_initial_value(BufferId b) const {
    const BufferRole role = buffer(b).role;
    return role == BufferRole::input || role == BufferRole::parameters || role == BufferRole::gradient_sums ||
           (role == BufferRole::optimiser && buffer(b).persistent) ||
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

  void read(int n, const PlanRegion& r) {
    std::vector<Box> rest{r.box};
    const BufferId view = through(r.buffer);
    for (Cells& c : cells_[static_cast<std::size_t>(plan_.root(r.buffer))]) {
      if (c.through != view || intersect(c.box, r.box).empty()) continue;
      check_writer(n, r, c);
      check_kept(n, r, c);
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
  /// The memory of a buffer has other contents while the plan says that its own are not needed.
  void check_kept(int n, const PlanRegion& r, const Cells& c) const {
    for (const NodeRange& unused : buffer(plan_.root(r.buffer)).unused) {
      if (std::max(c.writer, c.returned) > unused.last || n < unused.first) continue;
      refuse(plan_, &node(n),
             "reads " + buffer(r.buffer).name + " " + views::to_string(intersect(c.box, r.box)) +
                 ", which was dropped after its writer: " + (c.writer == initial ? "none" : node(c.writer).label));
    }
  }
  void take_away(const OffloadWork& copy) {
    away_[copy.host] = {copy.buffer, cells_[static_cast<std::size_t>(copy.buffer)]};
  }
  /// Each cell has again the value that its writer gave it.
  void bring_back(int n, const OffloadWork& copy) {
    const auto found = away_.find(copy.host);
    if (found == away_.end())
      refuse(plan_, &node(n), "brings back " + buffer(copy.buffer).name + ", which has not left");
    if (found->second.buffer != copy.buffer) {
      refuse(plan_, &node(n),
             buffer(copy.host).name + " is no copy of " + buffer(copy.buffer).name + " but of " +
                 buffer(found->second.buffer).name);
    }
    std::vector<Cells>& now = cells_[static_cast<std::size_t>(copy.buffer)];
    for (const Cells& c : now) {
      const auto is_same = [&](const Cells& kept) { return kept.writer == c.writer && contains(kept.box, c.box); };
      if (std::ranges::none_of(found->second.cells, is_same))
        refuse(plan_, &node(n),
               "overwrites " + buffer(copy.buffer).name + " " + views::to_string(c.box) +
                   ", which changed after it had left: " + node(c.writer).label);
    }
    now = found->second.cells;
    for (Cells& c : now) c.returned = n;
  }
  int node_layer_of_last_write(BufferId view) const {
    const auto found = last_write_.find(view);
    return found == last_write_.end() ? -2 : node(found->second).layer;
  }

  void write(int n, const PlanRegion& r) {
    auto& cells = cells_[static_cast<std::size_t>(plan_.root(r.buffer))];
    if (node(n).accumulates()) {  // values become a mean of them and earlier ones
      for (Cells& c : cells) c.returned = n;
      return;
    }
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
        rest.push_back({b, c.writer, c.through, {}, c.returned});
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
    const Direction direction{layer, work->backward};
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
  /// The layer whose output an input is: behind a ReLU that a pooling computes, the one before that ReLU.
  int source_of(const LayerInput& input) const {
    const bool pooled =
        input.source >= 0 && std::ranges::find(plan_.pooled_relus, input.source) != plan_.pooled_relus.end();
    return pooled ? layers_.layers[static_cast<std::size_t>(input.source)].inputs[0].source : input.source;
  }
  /// Whether nodes of the layer write a gradient of the output of `source`.
  bool writes_gradient_of(int layer, int source) const {
    return layer >= 0 && std::ranges::any_of(layers_.layers[static_cast<std::size_t>(layer)].inputs,
                                             [&](const LayerInput& input) { return source_of(input) == source; });
  }
  /// The layers whose gradient a node of the backward pass may find in the buffer dy. These are its own layer, and for
  /// a sum of gradients the layers whose outputs its layer reads. Behind these come the sums (Add) that have the same
  /// dy.
  std::vector<int> layers_of_gradient(const PlanNode& reader, BufferId dy) const {
    std::vector<int> found{layer_of_dy(reader)};
    if (is_sum_of_gradients(reader, dy))
      for (const LayerInput& input : layers_.layers[static_cast<std::size_t>(reader.layer)].inputs)
        found.push_back(input.source);
    // A part of the gradient of a concatenation is that of the concatenated tensor.
    const auto* norm = std::get_if<NormalisationWork>(&reader.work);
    if (norm && is_sum_of_gradients(reader, dy))
      for (const int other : layers_.readers_of(found.back()))
        if (concatenates(other) && plan_.gradients[static_cast<std::size_t>(other)] == dy) found.push_back(other);
    for (std::size_t k = 0; k < found.size(); ++k) {
      for (const int sum : layers_.readers_of(found[k])) {
        const bool has_same = passes_gradient_on(sum) && plan_.gradients[static_cast<std::size_t>(sum)] == dy;
        if (has_same && std::ranges::find(found, sum) == found.end()) found.push_back(sum);
      }
    }
    return found;
  }
  bool passes_gradient_on(int layer) const {
    return layers_.layers[static_cast<std::size_t>(layer)].passes_gradient_on;
  }
  int last_layer() const { return static_cast<int>(layers_.layers.size()) - 1; }

  /// A node of layer j reads activations of the layer's inputs and its own, and gradients of its readers, its own, and
  /// of others that read the same tensor. A convolution with ReLU also writes for the layer of that ReLU.
  void check_writer(int n, const PlanRegion& r, const Cells& c) const {
    const BufferRole role = buffer(plan_.root(r.buffer)).role;
    const PlanNode& reader = node(n);
    const bool updates =
        std::holds_alternative<OptimiserWork>(reader.work) || std::holds_alternative<NormWork>(reader.work);
    if (role == BufferRole::parameter_gradients && updates) {
      for (const PlanNode& other : plan_.nodes) {
        const auto* sum = std::get_if<ReductionWork>(&other.work);
        if (sum && &other != &node(c.writer) && std::ranges::find(sum->buffers, r.buffer) != sum->buffers.end())
          refuse(plan_, &reader, "uses " + buffer(r.buffer).name + " before it is summed over the ranks");
      }
      return;
    }
    const bool activation = role == BufferRole::activation || role == BufferRole::ghosts || role == BufferRole::input;
    const int j = reader.layer;
    std::vector<int> sources;
    if (j >= 0 && reader.phase == StepPhase::backward) sources = layers_of_gradient(reader, plan_.root(r.buffer));
    if (c.writer == initial && plan_.root(r.buffer) == plan_.output_gradient &&
        std::ranges::find(sources, last_layer()) == sources.end())
      refuse(plan_, &reader, "reads the gradient of the output before the last layer has replaced it");
    if (c.writer == initial || (!activation && role != BufferRole::gradient)) return;
    const PlanNode& writer = node(c.writer);
    const int w = writer.layer;
    bool right = w == j;
    if (activation && buffer(r.buffer).role != BufferRole::gradient) {
      if (reader.phase == StepPhase::loss) {
        right = computes(writer, last_layer());
      } else if (j >= 0) {
        for (const LayerInput& input : layers_.layers[static_cast<std::size_t>(j)].inputs)
          right = right || computes(writer, source_of(input)) || computes_part(writer, input.source, c.box);
        for (const int sum : holds_sum(reader) ? layers_.readers_of(j) : std::vector<int>{})
          for (const LayerInput& input : layers_.layers[static_cast<std::size_t>(sum)].inputs)
            right = right || (passes_gradient_on(sum) && computes(writer, input.source));
        // Copies with ghosts of dy belong to the reader itself.
      }
    }
    right = right || std::ranges::any_of(sources, [&](int source) {
              return writer.phase == StepPhase::loss
                         ? source == last_layer()
                         : writer.phase == StepPhase::backward && writes_gradient_of(w, source);
            });
    if (!right) {
      refuse(plan_, &reader,
             "reads " + buffer(r.buffer).name + " " + views::to_string(intersect(c.box, r.box)) +
                 ", which another layer has overwritten: " + writer.label);
    }
  }

  /// Whether the node adds a summand in the buffer dy to the gradient of an input of its layer.
  bool is_sum_of_gradients(const PlanNode& n, BufferId dy) const {
    const auto* work = std::get_if<PointwiseWork>(&n.work);
    const auto* norm = std::get_if<NormalisationWork>(&n.work);
    const bool adds_in_kernel = norm && norm->stage == NormalisationStage::backward && norm->summand != no_buffer &&
                                plan_.root(norm->summand) == dy;
    return adds_in_kernel || (work && work->function == PointwiseFunction::add);
  }
  bool concatenates(int layer) const {
    return layers_.layers[static_cast<std::size_t>(layer)].inputs.back().channel_offset > 0;
  }
  /// Whether the node computes the output of the layer: it belongs to the layer, or the layer has no node of its own.
  bool computes(const PlanNode& writer, int layer) const {
    if (writer.layer == layer || fused_into(writer, layer)) return true;
    if (layer < 0 || plan_.kind != StepKind::inference) return false;
    const LayerPlan& plan = layers_.layers[static_cast<std::size_t>(layer)];
    return plan.is_identity_in_inference && computes(writer, plan.inputs[0].source);
  }
  /// Whether the node computes these channels of a concatenation, which begins with another one in its memory.
  bool computes_part(const PlanNode& writer, int layer, const Box& channels) const {
    if (layer < 0 || !concatenates(layer)) return false;
    const LayerInput& first = layers_.layers[static_cast<std::size_t>(layer)].inputs[0];
    return channels.upper(Dim::channel) <= first.distribution.extents()[Dim::channel] &&
           (computes(writer, first.source) || computes_part(writer, first.source, channels));
  }
  /// Whether the node also computes the ReLU `layer`.
  bool fused_into(const PlanNode& writer, int layer) const {
    const auto* convolution = std::get_if<ConvolutionWork>(&writer.work);
    const bool relu = (convolution && convolution->relu) || holds_relu(writer);
    if (layer < 0) return false;
    if (!holds_sum(writer)) return relu && reads_output_of(layer, writer.layer);
    return std::ranges::any_of(layers_.readers_of(writer.layer), [&](int sum) {
      return passes_gradient_on(sum) &&
             (sum == layer || (std::get<NormalisationWork>(writer.work).sum_relu && reads_output_of(layer, sum)));
    });
  }
  /// Whether the node also computes the sum that follows its normalisation.
  static bool holds_sum(const PlanNode& n) {
    const auto* norm = std::get_if<NormalisationWork>(&n.work);
    return norm && norm->stage == NormalisationStage::forward && norm->summand != no_buffer;
  }
  static bool holds_relu(const PlanNode& n) {
    const auto* norm = std::get_if<NormalisationWork>(&n.work);
    return norm && norm->relu;
  }
  /// The layer whose gradient a backward node of its own or of the layer before reads.
  int layer_of_dy(const PlanNode& reader) const {
    return holds_relu(reader) ? layers_.readers_of(reader.layer).front() : reader.layer;
  }

  /// Each gradient is added to something, except on a rank without pixels of a tensor that all ranks average.
  void check_unread() const {
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const PlanBuffer& written = plan_.buffers[b];
      const bool is_output = static_cast<BufferId>(b) == plan_.output_gradient;
      if (written.role != BufferRole::gradient || (written.persistent && !is_output)) continue;
      // The gradient of the output is there for the user, also if no layer reads it. A concatenation reads each part.
      if (is_output && (!concatenates(last_layer()) || has_unwanted_part(last_layer()))) continue;
      for (const Cells& c : cells_[b]) {
        if (c.unread.empty()) continue;
        const PlanNode* const writer = c.writer == initial ? nullptr : &node(c.writer);
        if (writer && (may_be_unread(writer->layer) || is_halo_exchange(*writer))) continue;
        refuse(plan_, writer,
               "no node reads " + written.name + " " + views::to_string(c.unread.front()) + " after it was written");
      }
    }
  }

  /// The gradient of a sum reaches each of its inputs once: as their dy in the same memory, or in a node that copies or
  /// adds it. Inputs of another distribution get it in transfers (verify_messages.hpp).
  void check_passed_gradients() const {
    std::map<std::pair<BufferId, int>, int> times;  // how often sums with this dy read the output of this layer
    for (int i = 0; i <= last_layer() && !plan_.gradients.empty(); ++i) {
      const BufferId dy = plan_.gradients[static_cast<std::size_t>(i)];
      if (!passes_gradient_on(i) || dy == no_buffer || buffer(dy).owned.empty()) continue;
      for (const LayerInput& input : layers_.layers[static_cast<std::size_t>(i)].inputs)
        if (layers_.output_of(input.source) == input.distribution) ++times[{dy, input.source}];
    }
    for (const auto& [sum, number] : times) check_passed_gradient(sum.first, sum.second, number);
  }
  void check_passed_gradient(BufferId dy, int source, int number) const {
    const BufferId to = source < 0 ? plan_.input_gradient : plan_.gradients[static_cast<std::size_t>(source)];
    if (to == no_buffer || (to == dy && passes_gradient_on(source))) return;
    const auto touches = [](const std::vector<PlanRegion>& regions, BufferId b) {
      return std::ranges::find(regions, b, &PlanRegion::buffer) != regions.end();
    };
    const auto passes_on = [&](const PlanNode& n) {
      const auto* work = std::get_if<PointwiseWork>(&n.work);
      const bool copies = work && work->function == PointwiseFunction::copy;
      const bool adds = is_sum_of_gradients(n, dy);
      return (copies || adds) && n.phase == StepPhase::backward && n.repeats < 0 && touches(n.reads, dy) &&
             touches(n.writes, to);
    };
    const auto reads_as_own = [&](const PlanNode& n) {
      return n.phase == StepPhase::backward && layer_of_dy(n) == source && touches(n.reads, dy);
    };
    const std::string& name = buffer(dy).name;
    if (to == dy && std::ranges::none_of(plan_.nodes, reads_as_own))
      refuse(plan_, nullptr, "no node of layer " + std::to_string(source) + " reads " + name + ", its gradient");
    if (const auto found = std::ranges::count_if(plan_.nodes, passes_on); to != dy && found != number)
      refuse(plan_, nullptr,
             "the gradient of a sum, " + name + ", is added " + std::to_string(found) + " times to " + buffer(to).name +
                 ", and that layer is " + std::to_string(number) + " times in the sum");
  }

  static bool is_halo_exchange(const PlanNode& n) {
    const auto* transfer = std::get_if<TransferWork>(&n.work);
    return transfer && !transfer->items.empty() && transfer->items[0].source == transfer->items[0].destination;
  }
  /// Whether the backward pass visits the layer; for -1, whether the gradient of the input is computed.
  bool wants_gradient(int layer) const {
    if (layer < 0) return plan_.input_gradient != no_buffer;
    if (passes_gradient_on(layer))
      return std::ranges::any_of(layers_.layers[static_cast<std::size_t>(layer)].inputs,
                                 [&](const LayerInput& input) { return wants_gradient(input.source); });
    return std::ranges::any_of(plan_.nodes, [&](const PlanNode& n) {
      return n.layer == layer && n.phase == StepPhase::backward && n.repeats < 0 && !is_copy(n.work) &&
             !std::holds_alternative<ReductionWork>(n.work);
    });
  }
  /// A concatenation passes on only the gradients that its inputs need.
  bool has_unwanted_part(int layer) const {
    const auto& inputs = layers_.layers[static_cast<std::size_t>(layer)].inputs;
    return concatenates(layer) &&
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

  /// Inference has the metrics of its loss, summed over all ranks.
  void check_metrics() const {
    if (plan_.kind != StepKind::inference) return;
    const auto is_metrics = [](const PlanNode& n) { return std::holds_alternative<MetricsWork>(n.work); };
    const auto loss =
        std::ranges::find_if(plan_.nodes, [](const PlanNode& n) { return std::holds_alternative<LossWork>(n.work); });
    const Index sums =
        metric_sums(std::get<LossWork>(loss->work).loss, layers_.layers.back().output.extents()[views::Dim::channel]);
    const auto found = std::ranges::find_if(plan_.nodes, is_metrics);
    if (found == plan_.nodes.end()) {
      if (sums > 0) refuse(plan_, nullptr, "no node computes the metrics");
      return;
    }
    const BufferId b = std::get<MetricsWork>(found->work).sums;
    if (buffer(b).box.size() != sums) refuse(plan_, &*found, "writes another number of sums than its metrics have");
    check_summed(nullptr, b, all_ranks(), is_metrics);
  }

  /// The output of the network and the gradient of its input are complete, and written by the right layer.
  void check_results() const {
    const auto is_loss = [](const PlanNode& n) {
      const auto* work = std::get_if<LossWork>(&n.work);
      return work && work->stage != LossStage::sums;
    };
    if (plan_.kind != StepKind::gradients && std::ranges::none_of(plan_.nodes, is_loss))
      refuse(plan_, nullptr, "no node computes the loss");
    for (const PlanNode& n : plan_.nodes)
      if (is_loss(n)) check_summed(nullptr, std::get<LossWork>(n.work).sums, all_ranks(), is_loss);
    check_metrics();
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

  const NetworkPlan& layers_;
  Repetitions repetitions_{plan_};
  struct Away {
    BufferId buffer = no_buffer;
    std::vector<Cells> cells = {};  ///< with which it left
  };
  std::map<BufferId, Away> away_;           // by buffer of host memory
  std::map<BufferId, int> last_write_;      // by buffer, or alias with other indices
  std::map<BufferId, int> read_by_others_;  // the last read by another layer than that of the last write
};

}  // namespace

void check_values(const NetworkPlan& layers, const StepPlan& plan) { Values(layers, plan).run(); }

}  // namespace aloni::nn::detail
