#include <aloni/nn/plan/plan_step.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/metrics.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/plan/detail/builder.hpp>
#include <aloni/nn/plan/detail/convolution_planner.hpp>
#include <aloni/nn/plan/detail/convolution_scratch.hpp>
#include <aloni/nn/plan/detail/gradient_sum_planner.hpp>
#include <aloni/nn/plan/detail/layer_planner.hpp>
#include <aloni/nn/plan/detail/lifetimes.hpp>
#include <aloni/nn/plan/detail/merged_layers.hpp>
#include <aloni/nn/plan/detail/offload_planner.hpp>
#include <aloni/nn/plan/detail/recompute_planner.hpp>
#include <aloni/nn/plan/detail/reduction_members.hpp>
#include <aloni/nn/plan/detail/update_planner.hpp>
#include <aloni/nn/stream_plan.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn {

namespace {

using detail::ConvolutionPlanner;
using detail::LayerPlanner;
using detail::PlanBuilder;
using views::Box;
using views::Dim;
using views::Distribution;

bool is_normalisation(const Operation& o) {
  return std::holds_alternative<BatchNorm>(o) || std::holds_alternative<GroupNorm>(o) ||
         std::holds_alternative<LayerNorm>(o);
}

// How the gradient of a layer's input returns to the producer of that input:
//   dx  --fold-->  folded  --back-->  dy of the producer  (summed if the producer has several readers)
// `fold` adds ghosts to their owners (windows of pooling and up-sampling). `back` is the reverse redistribution.
// Either may be absent.
class StepPlanner : detail::PlannedLayers {
 public:
  StepPlanner(const NetworkDescription& network, const NetworkPlan& layers, int rank, StepKind kind,
              const MachineDescription& machine, const StepOptions& options)
      : PlannedLayers(network, layers),
        merged_(*this, kind, options),
        options_(options),
        parameters_(options.split_parameters ? lay_out_parameters(network, layers, rank) : lay_out_parameters(network)),
        plan_{.kind = kind,
              .rank = rank,
              .ranks = layers.input.ranks(),
              .samples = layers.input.extents()[Dim::sample],
              .streams = options.streams.value_or(default_streams(machine.on_host)),
              .keeps_filters = options.keeps_filters.value_or(kind == StepKind::inference)},
        builder_(plan_, machine, options.activations, options.backend, options.tf32),
        nodes_(network.layers.size()),
        forward_(network.layers.size()) {
    if (kind == StepKind::training && options.update) {
      plan_.update = options.optimiser;
      plan_.update_options = options.update_options;
    }
    plan_.accumulates = kind == StepKind::training && options.accumulates;
    if (options.sums == GradientSums::partial && std::ranges::any_of(parameters_.blocks, [](int b) { return b > 1; })) {
      throw InvalidArgument("aloni::nn::plan_step", "options.sums", "partial, with split parameters",
                            "parameters that are whole on every rank, as a partial all-reduce needs them");
    }
  }

  StepPlan plan() {
    find_wanted_gradients();
    lay_out_parameter_buffers();
    lay_out_activations();
    if (trains()) lay_out_gradients();
    for (int i = 0; i < size(); ++i)
      for (InputEdge& edge : node(i).inputs) connect(i, edge);
    for (int i = 0; i < size(); ++i) make_planner(i);
    for (int i = 0; i < size(); ++i)
      if (merged_.is_pooled(i)) plan_.pooled_relus.push_back(i);
    for (int i = 0; i < size(); ++i) add_forward(i);
    if (plan_.kind != StepKind::gradients) add_loss();
    if (trains()) {
      sums_.emplace(builder_, parameters_, gradients_, gradient_sums_, loss_, options_.sums);
      detail::RecomputePlanner again(builder_, network_, layers_, forward_);
      for (int i = size() - 1; i >= 0; --i) {
        for (const RecomputedBlock& block : options_.recompute) {
          if (block.last != i) continue;
          add_late_filters(i);
          again.add(block);
        }
        add_backward(i);
        if (late_filters_ < 0) sums_->add_behind(i);
      }
      sums_->add_rest();
    }
    if (plan_.update)
      detail::add_update(builder_, parameters_, {std::move(values_), std::move(gradients_), std::move(states_)});
    detail::add_convolution_scratch(builder_);
    detail::mark_reads_beyond(plan_);
    if (trains()) detail::add_offloading(builder_, options_.offload);
    detail::set_lifetimes(plan_);
    return std::move(plan_);
  }

 private:
  struct InputEdge {
    explicit InputEdge(const LayerInput& in) : plan(in) {}

    const LayerInput& plan;
    BufferId x = no_buffer, dx = no_buffer;
    std::optional<TransferWork> fetch = {};  ///< fills x: its ghosts, or all of it
    std::optional<TransferWork> fold = {}, back = {};
    BufferId folded = no_buffer;        ///< between fold and back
    BufferId result = no_buffer;        ///< result of the last stage
    BufferId contribution = no_buffer;  ///< summand of the producer's dy, if that has several readers
    bool contributes_first = false;     ///< first in the order of the backward pass: overwrites dy
    bool waits = false;                 ///< contributes_first, but is added behind the other summand
    /// The edge whose contribution waits for dx, which is the producer's dy. A node adds it, or the kernel that
    /// computes dx (adds_gradients()). Null: none.
    const InputEdge* waiting = nullptr;
  };
  struct Node {
    std::vector<InputEdge> inputs;
    BufferId y = no_buffer, dy = no_buffer;
    std::unique_ptr<ConvolutionPlanner> convolution;
    std::unique_ptr<LayerPlanner> other;
  };
  int rank() const { return plan_.rank; }
  bool trains() const { return plan_.kind != StepKind::inference; }
  Node& node(int i) { return nodes_[static_cast<std::size_t>(i)]; }
  const std::string& name_of(int i) const { return description(i).name; }
  BufferId output_of(int i) { return i < 0 ? input_ : node(i).y; }
  BufferId gradient_of(int i) { return i < 0 ? input_gradient_ : node(i).dy; }
  /// Whether something depends on the gradient of this tensor: learned tensors before it, or the user.
  bool wants_gradient(int i) const { return i < 0 ? options_.input_gradient : wanted_[static_cast<std::size_t>(i)]; }
  bool has_parameters(int i) const {
    return std::ranges::any_of(parameters_.descriptions, [&](const auto& d) { return d.layer == i; });
  }
  /// Whether this rank's part of the producer's output contains the ghosts that readers need.
  bool has_recomputed_ghosts(int source) const { return source >= 0 && !layer(source).recomputed.empty(); }

  BufferId add(std::string name, BufferRole role, const Box& owned, const Box& box) {
    return builder_.add(
        {.name = std::move(name), .role = role, .type = builder_.activations(), .owned = owned, .box = box});
  }
  /// "conv1_dx"; "add1_dx1" for the second input.
  std::string edge_name(int i, const char* what, const InputEdge& edge) {
    const auto& inputs = node(i).inputs;
    const auto k = static_cast<int>(&edge - inputs.data());
    return name_of(i) + what + (inputs.size() > 1 ? std::to_string(k) : "");
  }

  // --- buffers ---

  void lay_out_parameter_buffers() {
    const Index element = bytes_of(builder_.parameters());
    if (trains())
      for (const Index length : parameters_.lengths) plan_.gradient_memory.push_back({.bytes = length * element});
    for (std::size_t p = 0; p < parameters_.places.size(); ++p) {
      const std::string& name = parameters_.descriptions[p].name;
      const Box kept = parameters_.places[p].kept;
      const auto add = [&](const std::string& suffix, BufferRole role) {
        return builder_.add({.name = name + suffix,
                             .role = role,
                             .type = builder_.parameters(),
                             .owned = kept,
                             .box = kept,
                             .persistent = true});
      };
      values_.push_back(add("", BufferRole::parameters));
      gradients_.push_back(trains() ? add(".gradient", BufferRole::parameter_gradients) : no_buffer);
      if (plan_.accumulates) gradient_sums_.push_back(add(".gradient_sum", BufferRole::gradient_sums));
      if (trains())
        plan_.gradient_memory[parameters_.places[p].segment].tensors.push_back(
            {gradients_.back(), parameters_.places[p].offset * element});
      states_.emplace_back();
      if (!plan_.update) continue;
      for (const std::string_view state : properties_of(*plan_.update).states)
        states_.back().push_back(add('.' + std::string(state), BufferRole::optimiser));
    }
  }

  /// Box that the memory of a layer's output covers: the box that it computes, or the owned box with the ghosts of
  /// its only reader.
  Box box_of_output(int i) const {
    const Box owned = layers_.output_of(i).owned(rank());
    if (const int relu = merged_.rectifier_of(i); relu >= 0) return box_of_output(relu);
    if (const int sum = merged_.sum_of(i); sum >= 0) return box_of_output(sum);
    if (i >= 0 && !layer(i).recomputed.empty()) return layer(i).forward_work(rank());
    const bool ghosts = i < 0 ? layers_.input_has_ghosts : layer(i).output_has_ghosts;
    return ghosts ? hull(owned, layer(layers_.readers_of(i)[0]).input_needed(rank())) : owned;
  }

  /// Whether the layer is a ReLU that the previous convolution computes in inference.
  bool is_fused(int i) {
    if (trains() || !std::holds_alternative<Relu>(operation(i))) return false;
    const int source = layer(i).inputs[0].source;
    return source >= 0 && node(source).convolution && node(source).convolution->fuses_relu();
  }

  /// A buffer for the output of a layer that computes nothing in place.
  BufferId buffer_of_output(int i) {
    const int owner = merged_.owner_of_output(i);
    BufferId& y = node(owner).y;
    if (y == no_buffer)
      y = add(name_of(owner) + "_y", BufferRole::activation, layer(owner).output.owned(rank()), box_of_output(owner));
    return y;
  }

  void lay_out_activations() {
    input_ = add("input", BufferRole::input, layers_.input.owned(rank()), box_of_output(-1));
    builder_.at(input_).persistent = true;
    builder_.at(input_).adopted = layers_.input_is_adopted;
    for (int i = 0; i < size(); ++i) {
      Node& n = node(i);
      n.inputs.reserve(layer(i).inputs.size());
      for (const LayerInput& in : layer(i).inputs) n.inputs.emplace_back(in);
      for (InputEdge& edge : n.inputs) {
        if (concatenates(i)) continue;
        edge.x = output_of(edge.plan.source);
        if (edge.plan.mode != InputMode::separate) continue;
        const Box needed = layer(i).input_needed(rank());
        edge.x =
            add(edge_name(i, "_x", edge), BufferRole::ghosts, intersect(layer(i).input.owned(rank()), needed), needed);
      }
      const int norm = merged_.normalisation_of_sum(i);
      n.y = norm >= 0                                                    ? node(norm).y
            : merged_.computes_in_place(i) || merged_.passes_input_on(i) ? n.inputs[0].x
                                                                         : buffer_of_output(i);
      if (concatenates(i))
        for (InputEdge& edge : n.inputs) edge.x = n.y;
    }
    plan_.input = input_;
    plan_.output = node(size() - 1).y;
    builder_.at(plan_.output).persistent = true;
    const Box out = layers_.output_of(size() - 1).owned(rank());
    if (plan_.kind == StepKind::gradients) return;
    switch (targets_of(network_.loss)) {
      case LossTargets::sample_labels:
        targets_ = builder_.add_array("labels", BufferRole::input, ElementType::int32, out.extent(Dim::sample));
        break;
      case LossTargets::pixel_labels: {
        const Box pixels = out.empty() ? Box{} : detail::with_channels(out, {0, 1});
        targets_ = builder_.add(
            {.name = "labels", .role = BufferRole::input, .type = ElementType::int32, .owned = pixels, .box = pixels});
        break;
      }
      case LossTargets::elements:
        targets_ = add("targets", BufferRole::input, out, out);
        break;
    }
    builder_.at(targets_).persistent = true;
    loss_ = builder_.add_array("loss", BufferRole::workspace, ElementType::float64, 2);
    if (network_.loss == Loss::dice)
      global_sums_ = builder_.add_array("loss: sums", BufferRole::workspace, ElementType::float64, 4);
    if (const Index sums = metric_sums(network_.loss, layers_.output_of(size() - 1).extents()[Dim::channel]);
        sums > 0 && !trains()) {
      metrics_ = builder_.add_array("metrics", BufferRole::workspace, ElementType::float64, sums);
      // Both are read after the step: neither takes the place of the other.
      builder_.at(loss_).persistent = true;
      builder_.at(metrics_).persistent = true;
    }
  }

  void lay_out_gradients() {
    if (options_.input_gradient) {
      const Box owned = layers_.input.owned(rank());
      input_gradient_ = add("input_gradient", BufferRole::gradient, owned, owned);
      builder_.at(input_gradient_).persistent = true;
      plan_.input_gradient = input_gradient_;
    }
    // A layer writes its input's gradient directly to the producer's dy if distribution and box agree. A layer that
    // computes in place has no other dy than the producer's then.
    for (int i = 0; i < size(); ++i) {
      if (!wants_gradient(i) && i < size() - 1) continue;  // the user may ask for that of the output
      const LayerInput& in = layer(i).inputs[0];
      const int sum = sum_behind(i);
      if (in.source >= 0 && wants_gradient(in.source) && writes_gradient_in_place(i)) {
        node(i).dy = node(in.source).dy;
      } else if (node(i).dy == no_buffer) {
        node(i).dy = sum >= 0 && node(sum).dy != no_buffer
                         ? node(sum).dy
                         : add(name_of(i) + "_dy", BufferRole::gradient, layer(i).output.owned(rank()),
                               layer(i).output_gradient_box(rank()));
      }
      if (sum >= 0 && node(sum).dy == no_buffer) node(sum).dy = node(i).dy;
    }
    plan_.output_gradient = node(size() - 1).dy;
    builder_.at(plan_.output_gradient).persistent = true;  // the user may write it at any time before the backward pass
    for (int i = 0; i < size(); ++i) plan_.gradients.push_back(node(i).dy);
    order_contributions();
    for (int i = 0; i < size(); ++i) {
      for (InputEdge& edge : node(i).inputs) {
        if (!wants_gradient(edge.plan.source)) continue;
        if (concatenates(i)) {
          edge.dx = node(i).dy;
        } else if (writes_gradient_directly(i, edge.plan) || edge.waiting) {
          edge.dx = gradient_of(edge.plan.source);
        } else if (properties(i).passes_gradient_on) {
          edge.dx = node(i).dy;
        } else {
          const Box owned = layer(i).input.owned(rank());
          const Box box = folds(i) ? layer(i).input_needed_by_owned(rank()) : owned;
          edge.dx = add(edge_name(i, "_dx", edge), BufferRole::gradient, intersect(box, owned), box);
        }
      }
    }
  }

  bool writes_gradient_in_place(int i) const {
    return properties(i).computes_in_place && writes_gradient_directly(i, layer(i).inputs[0]);
  }
  /// The sum behind the layer whose dy is the layer's dy too, in the same memory; -1: none. The gradient of a sum is
  /// that of each input, and no node behind the sum's readers writes it. So dy is not for layers that would replace it
  /// by dx, or whose dy has ghosts.
  int sum_behind(int i) const {
    const int relu = merged_.rectifier_of(i), end = relu >= 0 ? relu : i;
    if (end == size() - 1 || layers_.readers_of(end).size() != 1) return -1;
    const int reader = layers_.readers_of(end)[0];
    const auto& inputs = layer(reader).inputs;
    const LayerInput& in = *std::ranges::find(inputs, end, &LayerInput::source);
    const bool keeps_dy = relu >= 0 || !writes_gradient_in_place(i);
    return properties(reader).passes_gradient_on && writes_gradient_directly(reader, in) && keeps_dy &&
                   !layer(i).output_gradient_in_place
               ? reader
               : -1;
  }

  /// Whether dx has ghosts to be added to their owners: windows of pooling and up-sampling. (Convolution gathers
  /// instead.)
  bool folds(int i) const {
    if (!properties(i).scatters_gradient) return false;
    // Where a rank reads less than its owned box, the fold zeroes the rest.
    return std::ranges::any_of(layer(i).blocks.representatives,
                               [&](int r) { return layer(i).input_needed_by_owned(r) != layer(i).input.owned(r); });
  }
  bool writes_gradient_directly(int i, const LayerInput& in) const {
    return only_reader(in.source) && writes_dy_of_source(i, in);
  }
  /// Whether the layer can write dx where the producer has its dy.
  bool writes_dy_of_source(int i, const LayerInput& in) const {
    return same_distribution(in) && !folds(i) && !concatenates(i);
  }

  // --- transfers between layers ---

  /// The offsets: position of channel 0 of the plan in the buffers.
  TransferItemPlan item(BufferId source, BufferId destination, halo::TransferPlan plan, Index source_offset = 0,
                        Index destination_offset = 0) {
    return {source,          destination,   builder_[source].box, builder_[destination].box,
            std::move(plan), source_offset, destination_offset};
  }

  static TransferPurpose purpose_of(bool same_distribution) {
    return same_distribution ? TransferPurpose::ghosts : TransferPurpose::redistribution;
  }

  void connect(int i, InputEdge& edge) {
    const Distribution& from = layers_.output_of(edge.plan.source);
    const BufferId producer = output_of(edge.plan.source);
    const auto needed = [&](int r) { return layer(i).needed_of(edge.plan, r); };
    const halo::BoundaryConditions boundaries;                             // no needed index is outside the tensor
    if (edge.plan.mode == InputMode::in_place && !layer(i).convolution) {  // convolutions exchange ghosts themselves
      edge.fetch = TransferWork{.name = name_of(i) + "_x"};
      edge.fetch->items.push_back(item(
          producer, producer, halo::plan_halo(from, needed, boundaries, rank(), layer(i).blocks.neighbours(rank()))));
    } else if (edge.plan.mode == InputMode::separate && edge.x != producer) {  // equal: this layer extends the producer
      halo::TransferPlan moves;
      if (!has_recomputed_ghosts(edge.plan.source)) {
        const auto position = static_cast<std::size_t>(&edge - node(i).inputs.data());
        moves = halo::plan_redistribution(from, edge.plan.distribution, needed, boundaries, rank(),
                                          readers_of(layer(i), position, from.owned(rank())));
      } else if (const Box box = needed(rank()); !box.empty()) {
        moves.local = {{.destination = box, .source = box}};
      }
      edge.fetch = TransferWork{.purpose = purpose_of(same_distribution(edge.plan)), .name = name_of(i) + "_x"};
      edge.fetch->items.push_back(item(producer, edge.x, std::move(moves), 0, edge.plan.channel_offset));
    }
    if (trains() && wants_gradient(edge.plan.source) && edge.dx != gradient_of(edge.plan.source))
      connect_gradient(i, edge);
  }

  void connect_gradient(int i, InputEdge& edge) {
    const Distribution& producer = layers_.output_of(edge.plan.source);
    const bool same = same_distribution(edge.plan);
    // Destination of the last stage: the producer's dy, or a summand of it.
    edge.result = gradient_of(edge.plan.source);
    if (!only_reader(edge.plan.source)) {
      if (same && !folds(i)) {
        edge.contribution = edge.dx;
        return;
      }
      const Box owned = producer.owned(rank());
      edge.contribution = add(edge_name(i, "_contribution", edge), BufferRole::gradient, owned, owned);
      edge.result = edge.contribution;
    }
    edge.folded = edge.dx;
    if (folds(i)) {
      const Box owned = layer(i).input.owned(rank());
      edge.folded = same ? edge.result : add(edge_name(i, "_dx_folded", edge), BufferRole::gradient, owned, owned);
      const auto needed = [&](int r) { return layer(i).input_needed_by_owned(r); };
      edge.fold = TransferWork{.adjoint = true, .name = name_of(i) + "_dx"};
      edge.fold->items.push_back(
          item(edge.folded, edge.dx,
               halo::plan_redistribution(layer(i).input, layer(i).input, needed, halo::BoundaryConditions{}, rank(),
                                         layer(i).blocks.neighbours(rank()))));
    }
    if (!same || concatenates(i)) {
      edge.back = TransferWork{.purpose = purpose_of(same), .name = name_of(i) + "_dx"};
      edge.back->items.push_back(item(edge.folded, edge.result,
                                      halo::plan_redistribution(edge.plan.distribution, producer, rank()),
                                      edge.plan.channel_offset));
    }
  }

  /// The backward pass visits layers from the last to the first, and the inputs of each layer in order. The first
  /// summand of a gradient is copied to it. If there are two, the second one is written there instead where it can, and
  /// the first one waits. A part of a concatenation waits only for a layer that adds it to dx in one kernel: until then
  /// the other parts would keep their memory too.
  void order_contributions() {
    std::vector<InputEdge*> first(nodes_.size() + 1, nullptr);
    std::vector<bool> is_part(nodes_.size() + 1, false);  // the first one is a part of a concatenation
    for (int i = size() - 1; i >= 0; --i) {
      for (InputEdge& edge : node(i).inputs) {
        const int source = edge.plan.source;
        const auto s = static_cast<std::size_t>(source + 1);
        edge.contributes_first = !first[s];
        if (edge.contributes_first) {
          first[s] = &edge;
          is_part[s] = concatenates(i);
        } else if (layers_.readers_of(source).size() == 2 && (!is_part[s] || adds_gradients(i)) &&
                   wants_gradient(source) && writes_dy_of_source(i, edge.plan)) {
          first[s]->waits = true;
          edge.waiting = first[s];
        }
      }
    }
  }

  /// Whether the layer adds another summand of its input's gradient to dx, in the kernel that computes dx.
  bool adds_gradients(int i) const { return std::holds_alternative<BatchNorm>(operation(i)); }

  void make_planner(int i) {
    Node& n = node(i);
    std::vector<BufferId> values, gradients;
    for (std::size_t p = 0; p < parameters_.descriptions.size(); ++p) {
      if (parameters_.descriptions[p].layer != i) continue;
      values.push_back(values_[p]);
      gradients.push_back(gradients_[p]);
    }
    if (layer(i).convolution) {
      detail::ConvolutionBuffers b{.x = n.inputs[0].x, .y = n.y, .dx = n.inputs[0].dx, .dy = n.dy};
      b.w = values[0];
      b.dw = gradients[0];
      if (values.size() > 1) b.b = values[1];
      if (values.size() > 1) b.db = gradients[1];
      n.convolution = std::make_unique<ConvolutionPlanner>(
          builder_, layer(i), b,
          detail::ConvolutionPlanOptions{.label = name_of(i),
                                         .layer = i,
                                         .input_is_complete = n.inputs[0].plan.mode != InputMode::in_place,
                                         .fuse_relu = merged_.may_fuse_relu(i),
                                         .largest_overhead = options_.largest_overhead});
      return;
    }
    detail::LayerBuffers b{.y = n.y, .dy = n.dy, .parameters = std::move(values), .gradients = std::move(gradients)};
    for (const InputEdge& edge : n.inputs) {
      b.x.push_back(edge.x);
      b.dx.push_back(edge.dx);
    }
    if (const InputEdge* const waiting = n.inputs[0].waiting; waiting && adds_gradients(i))
      b.gradient_summand = contribution_of(*waiting);
    if (const int norm = merged_.normalisation_of_first_channels(i); norm >= 0)
      b.known_sums = node(norm).other->channel_sums();
    b.holds_relu = merged_.rectifier_of(i) >= 0;
    b.holds_relu_before = merged_.is_pooled(layer(i).inputs[0].source);
    if (const int sum = merged_.sum_of(i); sum >= 0) {
      const auto& inputs = node(sum).inputs;
      b.summand = inputs[inputs[0].plan.source == i ? 1 : 0].x;
      b.holds_sum_relu = sum < size() - 1 && merged_.rectifies_sum(layers_.readers_of(sum)[0]);
    }
    n.other = std::make_unique<LayerPlanner>(builder_, description(i), layer(i), i, std::move(b));
  }

  // --- nodes ---

  void add_forward(int i) {
    builder_.begin("forward " + name_of(i), i, StepPhase::forward);
    detail::ForwardNodes& nodes = forward_[static_cast<std::size_t>(i)];
    nodes.y = node(i).y;
    nodes.wants_gradient = trains() && has_backward(i);
    if (is_fused(i) || merged_.is_rectifier(i) || merged_.is_pooled(i) || merged_.passes_input_on(i)) return;
    if (merged_.normalisation_of_sum(i) >= 0 || merged_.rectifies_sum(i)) return;
    for (InputEdge& edge : node(i).inputs) {
      nodes.fetches.push_back({nodes_so_far(), nodes_so_far()});
      if (!edge.fetch) continue;
      PlanBuilder::Regions writes;
      const Box wanted = layer(i).needed_of(edge.plan, rank());
      const Box needed = shift_channels(wanted, edge.plan.channel_offset);
      const Box own = edge.plan.mode == InputMode::in_place ? intersect(builder_[edge.x].owned, needed) : Box{};
      for (const Box& ghosts : own.empty() ? std::vector{needed} : difference(needed, own))
        writes.push_back({edge.x, ghosts});
      const BufferId producer = output_of(edge.plan.source);
      const bool local = edge.plan.mode == InputMode::separate && has_recomputed_ghosts(edge.plan.source);
      builder_.transfer("input", *edge.fetch, {local ? PlanRegion{producer, wanted} : builder_.owned(producer)},
                        std::move(writes));
      nodes.fetches.back().end = nodes_so_far();
    }
    Node& n = node(i);
    if (n.convolution) {
      n.convolution->add_input_exchange();
      nodes.fetches.back().end = nodes_so_far();
    }
    nodes.kernels.begin = nodes_so_far();
    if (n.convolution) {
      n.convolution->add_forward(!trains() && n.convolution->fuses_relu());
    } else {
      n.other->add_forward(trains());
    }
    nodes.kernels.end = nodes_so_far();
  }
  int nodes_so_far() const { return static_cast<int>(plan_.nodes.size()); }

  /// The number of summands of the mean; 1 for a loss that is no mean.
  double mean_divisor() const {
    if (network_.loss == Loss::dice) return 1;
    const views::Extents& output = layers_.layers.back().output.extents();
    switch (targets_of(network_.loss)) {
      case LossTargets::sample_labels:
        return static_cast<double>(plan_.samples);
      case LossTargets::pixel_labels:
        return static_cast<double>(output.size() / output[Dim::channel]);
      case LossTargets::elements:
        break;
    }
    return static_cast<double>(output.size());
  }

  void add_sum_of_all_ranks(BufferId b) {
    ReductionWork sum{.elements = builder_[b].box.size(), .buffers = {b}};
    sum.members = detail::members_of_gradients(1, plan_.ranks, rank());
    builder_.reduction("sums over ranks", std::move(sum), {builder_.whole(b)});
  }

  void add_loss() {
    builder_.begin("loss", -1, StepPhase::loss);
    const Node& last = node(size() - 1);
    const Distribution& output = layers_.output_of(size() - 1);
    const Box own = output.owned(rank());
    LossWork work{.loss = network_.loss,
                  .output = last.y,
                  .targets = targets_,
                  .gradient = last.dy,
                  .sums = loss_,
                  .global = global_sums_,
                  .share = 1.0 / plan_.ranks,
                  .region = own,
                  .scale = 1 / mean_divisor(),
                  .scales_loss = trains() && options_.update_options.loss_scaling,
                  .is_first_copy = output.is_first_copy(rank()),
                  .smoothing = network_.label_smoothing};
    if (global_sums_ != no_buffer) {
      work.stage = LossStage::sums;
      builder_.add("sums of this rank", work, {builder_.owned(last.y), builder_.owned(targets_)},
                   {builder_.whole(global_sums_)});
      add_sum_of_all_ranks(global_sums_);
      work.stage = LossStage::rest;
    }
    builder_.add("", work, {builder_.owned(last.y), builder_.owned(targets_), builder_.whole(global_sums_)},
                 {builder_.owned(last.dy), builder_.whole(loss_)});
    if (!trains()) add_sum_of_all_ranks(loss_);  // the sums of gradients include the loss
    if (metrics_ == no_buffer) return;
    const MetricsWork metrics{.loss = work.loss,
                              .output = work.output,
                              .targets = work.targets,
                              .sums = metrics_,
                              .region = own,
                              .is_first_copy = work.is_first_copy};
    builder_.add("metrics", metrics, {builder_.owned(last.y), builder_.owned(targets_)}, {builder_.whole(metrics_)});
    add_sum_of_all_ranks(metrics_);
  }

  void begin_backward(int i) { builder_.begin("backward " + name_of(i), i, StepPhase::backward); }
  bool has_backward(int i) const { return wants_gradient(i) && !merged_.is_rectifier(i) && !merged_.is_pooled(i); }

  // The gradient of the filters usually needs no ghosts: it hides the exchange. Without an exchange it hides the sums
  // over ranks of the normalisation before the convolution.
  void add_backward(int i) {
    if (!has_backward(i)) return;
    begin_backward(i);
    Node& n = node(i);
    if (n.convolution) {
      n.convolution->add_gradient_exchange();
      const bool late = filters_are_late(i);
      if (!late) n.convolution->add_backward_filter();
      n.convolution->add_backward_data();
      if (late) late_filters_ = i;
    } else {
      n.other->add_backward([this, i] {
        add_late_filters(i);
        begin_backward(i);
      });
    }
    for (InputEdge& edge : n.inputs) {
      if (edge.fold)
        builder_.transfer("ghosts of dx", *edge.fold, {builder_.whole(edge.dx)}, {builder_.owned(edge.folded)});
      if (edge.back) {
        const PlanRegion folded =
            concatenates(i) ? PlanRegion{edge.folded, part_of_output(edge.plan)} : builder_.owned(edge.folded);
        builder_.transfer("dx", *edge.back, {folded}, {builder_.owned(edge.result)});
      }
      if (edge.contribution != no_buffer && !edge.waits) add_contribution(edge);
      if (edge.waiting && !adds_gradients(i)) add_contribution(*edge.waiting);
    }
  }

  /// Whether the gradient of the filters comes behind dx and behind the sums of the normalisation before the
  /// convolution, so that they are in flight meanwhile. Equal on all ranks.
  bool filters_are_late(int i) {
    if (node(i).convolution->exchanges_gradient()) return false;
    int next = i - 1;
    while (next >= 0 && !has_backward(next)) --next;
    return next >= 0 && is_normalisation(operation(next)) &&
           detail::members_of_sums(operation(next), layer(next), 0).size() > 1;
  }
  /// Adds the late gradient, if there is one. Then the sums of gradients that waited for it: of the layers behind i.
  void add_late_filters(int i) {
    if (late_filters_ < 0) return;
    const int late = std::exchange(late_filters_, -1);
    begin_backward(late);
    node(late).convolution->add_backward_filter();
    for (int k = late; k > i; --k) sums_->add_behind(k);
  }

  /// This rank's part of one input of a concatenation, in the indices of the output.
  Box part_of_output(const LayerInput& in) const {
    return shift_channels(in.distribution.owned(rank()), in.channel_offset);
  }

  /// The summand of the producer's dy. Of a concatenation: a part of its dy.
  PlanRegion contribution_of(const InputEdge& edge) {
    const Box own = builder_[gradient_of(edge.plan.source)].owned;
    return {edge.contribution, edge.back ? own : shift_channels(own, edge.plan.channel_offset)};
  }
  /// Copies the first summand to the producer's dy, or adds another one, also the first one that has waited.
  void add_contribution(const InputEdge& edge) {
    const BufferId target = gradient_of(edge.plan.source);
    const Box own = builder_[target].owned;
    if (own.empty()) return;
    const PlanRegion summand = contribution_of(edge);
    if (edge.contributes_first && !edge.waits) {
      builder_.add("first summand",
                   PointwiseWork{PointwiseFunction::copy, {{summand.buffer, summand.box}}, {target, own}}, {summand},
                   {builder_.owned(target)});
    } else {
      builder_.add("summand",
                   PointwiseWork{PointwiseFunction::add, {{target, own}, {summand.buffer, summand.box}}, {target, own}},
                   {summand, builder_.owned(target)}, {builder_.owned(target)});
    }
  }

  void find_wanted_gradients() {
    for (int i = 0; i < size(); ++i) {
      if (i < size() - 1 && layers_.readers_of(i).empty()) {
        throw InvalidArgument("aloni::nn::plan_step", "layer " + name_of(i), "read by no layer",
                              "a layer that reads it, or the last place in the list");
      }
      bool wanted = has_parameters(i);
      for (const LayerInput& input : layer(i).inputs) wanted = wanted || wants_gradient(input.source);
      wanted_.push_back(wanted);
    }
  }

  detail::MergedLayers merged_;
  StepOptions options_;
  ParameterLayout parameters_;
  StepPlan plan_;
  PlanBuilder builder_;
  std::vector<Node> nodes_;
  std::vector<detail::ForwardNodes> forward_;       ///< per layer
  std::vector<bool> wanted_;                        ///< per layer
  std::optional<detail::GradientSumPlanner> sums_;  ///< in training
  int late_filters_ = -1;                           ///< layer whose gradient of filters is late; -1: none
  std::vector<BufferId> values_, gradients_;        ///< one per learned tensor
  std::vector<BufferId> gradient_sums_;             ///< with micro-batches: one per learned tensor
  std::vector<std::vector<BufferId>> states_;       ///< of the optimiser, per learned tensor
  BufferId input_ = no_buffer, input_gradient_ = no_buffer, targets_ = no_buffer, loss_ = no_buffer;
  BufferId global_sums_ = no_buffer;  ///< of a loss with two stages
  BufferId metrics_ = no_buffer;      ///< the sums of metrics, in inference
};

}  // namespace

StepPlan plan_step(const NetworkDescription& network, const NetworkPlan& layers, int rank, StepKind kind,
                   const MachineDescription& machine, const StepOptions& options) {
  const int ranks = layers.input.ranks();
  if (rank < 0 || rank >= ranks) {
    throw InvalidArgument("aloni::nn::plan_step", "rank", std::to_string(rank),
                          "a rank from 0 to " + std::to_string(ranks - 1));
  }
  if (network.layers.size() != layers.layers.size()) {
    throw InvalidArgument("aloni::nn::plan_step", "layers", std::to_string(layers.layers.size()) + " layers",
                          "the plan of this network, with " + std::to_string(network.layers.size()));
  }
  check(options.recompute, static_cast<int>(network.layers.size()), "aloni::nn::plan_step");
  check_offloading(options.offload, static_cast<int>(network.layers.size()), "aloni::nn::plan_step");
  if (options.streams) check_streams(*options.streams, "aloni::nn::plan_step");
  return StepPlanner(network, layers, rank, kind, machine, options).plan();
}

}  // namespace aloni::nn
