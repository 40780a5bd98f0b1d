#include <aloni/nn/network.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/core/random.hpp>
#include <aloni/halo/transfer.hpp>
#include <aloni/nn/detail/gradient_sums.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/loss.hpp>
#include <aloni/nn/local/pointwise.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn {

using views::Box;
using views::Dim;
using views::Distribution;

namespace {

/// Whether a layer's gradient depends on its input only. Then the next layer may overwrite its output in place.
bool output_may_be_overwritten(const Operation& op) {
  return is_convolution(op) || std::holds_alternative<Dense>(op) || std::holds_alternative<BatchNorm>(op) ||
         std::holds_alternative<GroupNorm>(op) || std::holds_alternative<LayerNorm>(op) ||
         std::holds_alternative<Add>(op);
}

/// Runs on all ranks before any allocation.
template <class T, class Exec>
void check_support(const NetworkOptions& options) {
  if constexpr (std::is_same_v<T, comm::bfloat16>) {
    const auto reason = local::unsupported_reason<T, Exec>(options.backend, {}, local::ConvolutionPass::forward);
    if (reason) {
      throw Unsupported("aloni::nn::Network", "backend", std::string(local::name(options.backend)),
                        "another backend or type: " + *reason);
    }
  }
}

/// Checks that each rank keeps the weights that its layers multiply by. Runs on all ranks before any allocation.
template <class T, class Exec>
void check_parameters(const comm::Communicator& comm, const NetworkDescription& description, const NetworkPlan& plan,
                      const Parameters<T, Exec>& parameters) {
  const auto refuse = [](const std::string& argument, const std::string& value, const std::string& expectation) {
    throw InvalidArgument("aloni::nn::Network", argument, value, expectation);
  };
  const auto& tensors = parameters.descriptions();
  const std::vector<ParameterDescription> wanted = parameters_of(description);
  if (!std::ranges::equal(tensors, wanted, [](const auto& a, const auto& b) {
        return a.name == b.name && a.layer == b.layer && a.extents == b.extents;
      })) {
    refuse("parameters", "made for another description", "parameters made for this description");
  }
  if (parameters.is_split() && parameters.ranks() != comm.size()) {
    refuse("ranks of the parameters", std::to_string(parameters.ranks()),
           "the " + std::to_string(comm.size()) + " ranks of the network, or parameters that are whole on every rank");
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const WeightBlocks& blocks = parameters.blocks(static_cast<int>(i));
    if (blocks.count() == 1) continue;
    const ConvolutionPlan& conv = *plan.layers[static_cast<std::size_t>(tensors[i].layer)].convolution;
    if (blocks == WeightBlocks{conv.channel_blocks, conv.filter_blocks}) continue;
    const auto text = [](int channels, int filters) {
      return std::to_string(channels) + " blocks of channels, " + std::to_string(filters) + " of filters";
    };
    refuse("parameters' " + tensors[i].name, text(blocks.channels, blocks.filters),
           text(conv.channel_blocks, conv.filter_blocks) +
               " as in the strategy, or parameters that are whole on every rank");
  }
}

/// Writes the loss and the number of correct predictions after the gradients, so that one all-reduce sums them all.
template <class T, class Exec>
void append_loss(const Exec& exec, const typename Parameters<T, Exec>::Flat& gradients, Index first,
                 const Kokkos::View<double*, typename Exec::memory_space>& loss) {
  Kokkos::parallel_for(
      "aloni::nn::append_loss", Kokkos::RangePolicy<Exec>(exec, 0, Parameters<T, Exec>::tail),
      KOKKOS_LAMBDA(int i) { gradients(first + i) = static_cast<T>(loss(i)); });
}

template <class T, class Exec>
std::unique_ptr<Layer<T, Exec>> make_layer(const LayerSetup<T, Exec>& s) {
  return std::visit(
      [&](const auto& op) -> std::unique_ptr<Layer<T, Exec>> {
        using Op = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, Convolution> || std::is_same_v<Op, TransposedConvolution>) {
          return make_convolution_layer<T, Exec>(s);
        }
        if constexpr (std::is_same_v<Op, Pooling>) return make_pooling_layer<T, Exec>(s);
        if constexpr (std::is_same_v<Op, BatchNorm>) return make_batch_norm_layer<T, Exec>(s);
        if constexpr (std::is_same_v<Op, GroupNorm>) return make_group_norm_layer<T, Exec>(s);
        if constexpr (std::is_same_v<Op, LayerNorm>) return make_layer_norm_layer<T, Exec>(s);
        if constexpr (std::is_same_v<Op, Relu>) return make_relu_layer<T, Exec>(s);
        if constexpr (std::is_same_v<Op, Flatten>) return make_flatten_layer<T, Exec>(s);
        if constexpr (std::is_same_v<Op, Dense>) return make_dense_layer<T, Exec>(s);
        if constexpr (std::is_same_v<Op, GlobalAveragePooling>) return make_global_average_pooling_layer<T, Exec>(s);
        if constexpr (std::is_same_v<Op, Add>) return make_add_layer<T, Exec>(s);
        if constexpr (std::is_same_v<Op, AdaptivePooling> || std::is_same_v<Op, Upsampling>) {
          return make_resampling_layer<T, Exec>(s);
        }
      },
      s.description.operation);
}

}  // namespace

// How the gradient of a layer's input returns to the producer of that input:
//   dx  --fold-->  folded  --back-->  dy of the producer  (summed if the producer has several readers)
// `fold` adds ghosts to their owners (windows of pooling and up-sampling). `back` is the reverse redistribution.
// Either may be absent.
template <class T, class Exec>
struct Network<T, Exec>::Implementation {
  using Parameter = parameter_type_t<T>;
  using AllParameters = Parameters<Parameter, Exec>;
  using LocalTensor = Tensor<T, Mem>;
  using Transfer = halo::Transfer<Exec>;
  using Item = halo::TransferItem<T, Mem>;
  using Items = std::vector<halo::AnyTransferItem<Mem>>;

  /// One input of a layer.
  struct InputEdge {
    int source;  ///< the producer; -1: the network's input
    InputMode mode;
    LocalTensor x, dx;
    std::optional<Transfer> fetch;  ///< fills x: its ghosts, or all of it
    std::optional<Transfer> fold, back;
    LocalTensor folded;              ///< between fold and back
    LocalTensor result;              ///< result of the last stage
    LocalTensor contribution;        ///< summand of the producer's dy, if that has several readers
    bool contributes_first = false;  ///< first in the order of the backward pass: overwrites dy
  };
  struct Node {
    std::unique_ptr<Layer<T, Exec>> layer;
    std::vector<InputEdge> inputs;
    LocalTensor y, dy;
  };

  comm::Communicator comm;
  NetworkDescription description;
  NetworkPlan plan;
  Index samples;
  AllParameters& parameters;
  NetworkOptions options;
  std::vector<Node> nodes;
  Step<Exec> training, evaluation;          // forward
  Step<Exec> gradients, reduced_gradients;  // backward, and backward with sums over ranks
  LocalTensor input, input_dy;
  Kokkos::View<int*, Mem> labels;
  LocalTensor targets;
  Kokkos::View<double*, Mem> loss;
  typename Kokkos::View<double*, Mem>::HostMirror host_loss;
  typename AllParameters::Flat::HostMirror host_gradients;  // for partial all-reduces
  typename AllParameters::Flat::HostMirror host_sums;       // of the loss and the correct predictions
  static constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;
  std::optional<detail::GradientSums<Parameter, Exec>> sums;  // of gradients over ranks
  std::uint64_t prepared = 0;                                 // number of prepared steps
  bool is_first_copy;
  Queue<Exec> communication;  ///< queue for communication on devices
  Stopwatch stopwatch;

  static Queue<Exec> queue_beside(const Queue<Exec>& queue) {
    if constexpr (on_host) {
      return queue;
    } else {
      return Queue<Exec>(Kokkos::Experimental::partition_space(queue.space(), 1).front());
    }
  }

  Implementation(const comm::Communicator& c, const Queue<Exec>& queue, const NetworkDescription& d,
                 const Strategy& strategy, Index n, AllParameters& p, const NetworkOptions& o)
      : comm(c),
        description(d),
        plan(plan_network(d, resolve(strategy, d, c.size()), c.size(), n)),
        samples(n),
        parameters(p),
        options(o),
        nodes(d.layers.size()),
        communication(queue_beside(queue)) {
    check_support<T, Exec>(options);
    check_parameters(comm, description, plan, parameters);
    comm::collectively(comm, "aloni::nn::Network: memory for activations", [&] {
      lay_out_activations(queue);
      lay_out_gradients(queue);
    });
    try {
      connect(queue);
      sums.emplace(comm, queue, parameters);
      for (int i = 0; i < size(); ++i) {
        Node& node = nodes[i];
        std::vector<LocalTensor> x, dx;
        for (const InputEdge& edge : node.inputs) {
          x.push_back(edge.x);
          dx.push_back(edge.dx);
        }
        node.layer = make_layer<T, Exec>({comm, queue, description.layers[i], plan.layers[i], i, parameters, node.y,
                                          node.dy, std::move(x), std::move(dx), options.backend, may_fuse_relu(i),
                                          options.largest_overhead});
      }
      describe_forward(training, Mode::training);
      describe_forward(evaluation, Mode::evaluation);
      describe_backward(gradients, false);
      if (sums->can_run_beside()) describe_backward(reduced_gradients, true);
    } catch (const PeerFailed&) {
      throw;
    } catch (const std::exception& e) {
      // Layer constructors communicate. A rank whose constructor fails must not leave the others waiting.
      comm.poison(e.what());
      throw;
    }
    queue.fence("aloni::nn::Network: set-up is complete");
  }

  int size() const { return static_cast<int>(nodes.size()); }
  int rank() const { return comm.rank(); }
  LocalTensor& output_of(int layer) { return layer < 0 ? input : nodes[layer].y; }
  LocalTensor& gradient_of(int layer) { return layer < 0 ? input_dy : nodes[layer].dy; }
  bool wants_gradient(int layer) const { return layer >= 0 || options.input_gradient; }
  const std::string& name(int i) const { return description.layers[i].name; }

  /// Box that the memory of a layer's output covers: the box that it computes, or the owned box with the ghosts of
  /// its only reader.
  Box box_of_output(int layer) const {
    const Box owned = plan.output_of(layer).owned(rank());
    if (layer >= 0 && !plan.layers[layer].recomputed.empty()) return plan.layers[layer].forward_work(rank());
    const bool ghosts = layer < 0 ? plan.input_has_ghosts : plan.layers[layer].output_has_ghosts;
    return ghosts ? hull(owned, plan.layers[plan.readers_of(layer)[0]].input_needed(rank())) : owned;
  }

  bool only_reader(int source) const { return plan.readers_of(source).size() == 1; }

  bool computes_in_place(int i) const {
    const LayerPlan& layer = plan.layers[i];
    const auto [source, mode] = layer.inputs[0];
    return std::holds_alternative<Relu>(description.layers[i].operation) && source >= 0 && mode == InputMode::shared &&
           only_reader(source) && !layer.output_has_ghosts &&
           output_may_be_overwritten(description.layers[source].operation);
  }

  /// Whether the layer is a convolution followed by an in-place ReLU.
  bool may_fuse_relu(int i) const {
    if (!options.fuse_inference || !std::holds_alternative<Convolution>(description.layers[i].operation)) return false;
    const auto& readers = plan.readers_of(i);
    return readers.size() == 1 && std::holds_alternative<Relu>(description.layers[readers[0]].operation) &&
           computes_in_place(readers[0]);
  }
  /// Whether the layer is a ReLU that the previous convolution computes in evaluation.
  bool is_fused(int i) const {
    if (!std::holds_alternative<Relu>(description.layers[i].operation)) return false;
    const int source = plan.layers[i].inputs[0].source;
    return source >= 0 && nodes[source].layer->fuses_relu();
  }

  void lay_out_activations(const Queue<Exec>& queue) {
    const Exec& exec = queue.space();
    input = allocate_tensor<T>(comm, exec, "aloni::nn::input", plan.input.owned(rank()), box_of_output(-1));
    for (int i = 0; i < size(); ++i) {
      Node& node = nodes[i];
      const LayerPlan& layer = plan.layers[i];
      for (const auto& [source, mode] : layer.inputs) {
        InputEdge& edge = node.inputs.emplace_back();
        edge.source = source;
        edge.mode = mode;
        if (mode == InputMode::separate) {
          const Box needed = layer.input_needed(rank());
          edge.x = allocate_tensor<T>(comm, exec, "aloni::nn::" + name(i) + "_x",
                                      intersect(layer.input.owned(rank()), needed), needed);
        } else {
          edge.x = output_of(source);
        }
      }
      if (computes_in_place(i)) {
        node.y = node.inputs[0].x;
      } else {
        node.y = allocate_tensor<T>(comm, exec, "aloni::nn::" + name(i) + "_y", layer.output.owned(rank()),
                                    box_of_output(i));
      }
    }
    const Box out = plan.output_of(size() - 1).owned(rank());
    is_first_copy = counts_in_sums(plan.output_of(size() - 1), rank());
    labels = Kokkos::View<int*, Mem>(Kokkos::view_alloc(exec, "aloni::nn::labels"),
                                     description.loss == Loss::softmax_cross_entropy ? out.extent(Dim::sample) : 0);
    if (description.loss == Loss::binary_cross_entropy)
      targets = allocate_tensor<T>(comm, exec, "aloni::nn::targets", out, out);
    loss = Kokkos::View<double*, Mem>(Kokkos::view_alloc(exec, "aloni::nn::loss"), 2);
    host_loss = Kokkos::create_mirror_view(loss);
    host_gradients = Kokkos::create_mirror_view(parameters.gradients());
    host_sums = decltype(host_sums)("aloni::nn::sums", AllParameters::tail);
  }

  void lay_out_gradients(const Queue<Exec>& queue) {
    const Exec& exec = queue.space();
    if (options.input_gradient) {
      const Box owned = plan.input.owned(rank());
      input_dy = allocate_tensor<T>(comm, exec, "aloni::nn::input_gradient", owned, owned);
    }
    for (int i = 0; i < size(); ++i) {
      Node& node = nodes[i];
      const LayerPlan& layer = plan.layers[i];
      const Box owned = layer.output.owned(rank());
      node.dy =
          allocate_tensor<T>(comm, exec, "aloni::nn::" + name(i) + "_dy", owned, layer.output_gradient_box(rank()));
    }
    // A layer writes its input's gradient directly to the producer's dy if distribution and box agree. A ReLU may do
    // so in place: its own dy then is the producer's dy.
    for (int i = 0; i < size(); ++i) {
      const int source = plan.layers[i].inputs[0].source;
      if (source >= 0 && std::holds_alternative<Relu>(description.layers[i].operation) &&
          writes_gradient_directly(i, source)) {
        nodes[i].dy = nodes[source].dy;
      }
    }
    for (int i = 0; i < size(); ++i) {
      const LayerPlan& layer = plan.layers[i];
      for (InputEdge& edge : nodes[i].inputs) {
        if (!wants_gradient(edge.source)) continue;
        if (writes_gradient_directly(i, edge.source)) {
          edge.dx = gradient_of(edge.source);
        } else {
          const Box owned = layer.input.owned(rank());
          const Box box = folds(i) ? layer.input_needed_by_owned(rank()) : owned;
          edge.dx = allocate_tensor<T>(comm, exec, "aloni::nn::" + name(i) + "_dx", intersect(box, owned), box);
        }
      }
    }
  }

  /// Whether dx has ghosts to be added to their owners: windows of pooling and up-sampling. (Convolution gathers
  /// instead.)
  bool folds(int i) const {
    const LayerPlan& layer = plan.layers[i];
    if (!layer.range_map && !std::holds_alternative<Pooling>(description.layers[i].operation)) return false;
    for (int r = 0; r < comm.size(); ++r) {
      // Where a rank reads less than its owned box, the fold zeroes the rest.
      if (layer.input_needed_by_owned(r) != layer.input.owned(r)) return true;
    }
    return false;
  }
  bool same_distribution(int i, int source) const { return plan.output_of(source) == plan.layers[i].input; }
  bool writes_gradient_directly(int i, int source) const {
    return only_reader(source) && same_distribution(i, source) && !folds(i);
  }

  halo::TransferOptions labelled(int i, const char* what) const { return {.label = name(i) + what}; }

  void connect(const Queue<Exec>& queue) {
    for (int i = 0; i < size(); ++i) {
      for (InputEdge& edge : nodes[i].inputs) {
        connect_input(queue, i, edge);
        if (wants_gradient(edge.source) && !writes_gradient_directly(i, edge.source)) connect_gradient(queue, i, edge);
      }
    }
    // The backward pass visits layers from the last to the first, and the inputs of each layer in order.
    std::vector<bool> met(size() + 1, false);
    for (int i = size() - 1; i >= 0; --i) {
      for (InputEdge& edge : nodes[i].inputs) {
        edge.contributes_first = !met[edge.source + 1];
        met[edge.source + 1] = true;
      }
    }
  }

  void connect_input(const Queue<Exec>& queue, int i, InputEdge& edge) {
    const LayerPlan& layer = plan.layers[i];
    const Distribution& from = plan.output_of(edge.source);
    const LocalTensor& producer = output_of(edge.source);
    const auto needed = [&](int r) { return layer.input_needed(r); };
    const halo::BoundaryConditions boundaries;                     // no needed index is outside the tensor
    if (edge.mode == InputMode::in_place && !layer.convolution) {  // convolutions exchange ghosts themselves
      edge.fetch.emplace(comm, queue,
                         Items{Item::in_place(producer.ref(), halo::plan_halo(from, needed, boundaries, rank()))},
                         labelled(i, "_x"));
    } else if (edge.mode == InputMode::separate) {
      edge.fetch.emplace(comm, queue,
                         Items{Item::between(producer.ref(), edge.x.ref(),
                                             halo::plan_redistribution(from, layer.input, needed, boundaries, rank()))},
                         labelled(i, "_x"));
    }
  }

  void connect_gradient(const Queue<Exec>& queue, int i, InputEdge& edge) {
    const LayerPlan& layer = plan.layers[i];
    const Exec& exec = queue.space();
    const auto needed = [&](int r) { return layer.input_needed_by_owned(r); };
    // Destination of the last stage: the producer's dy, or a summand of it.
    LocalTensor result = gradient_of(edge.source);
    if (!only_reader(edge.source)) {
      if (same_distribution(i, edge.source) && !folds(i)) {
        edge.contribution = edge.dx;
        return;
      }
      const Box owned = plan.output_of(edge.source).owned(rank());
      edge.contribution = allocate_tensor<T>(comm, exec, "aloni::nn::" + name(i) + "_contribution", owned, owned);
      result = edge.contribution;
    }
    edge.result = result;
    edge.folded = edge.dx;
    if (folds(i)) {
      const Box owned = layer.input.owned(rank());
      edge.folded = same_distribution(i, edge.source)
                        ? result
                        : allocate_tensor<T>(comm, exec, "aloni::nn::" + name(i) + "_dx_folded", owned, owned);
      edge.fold.emplace(comm, queue,
                        Items{Item::between(edge.folded.ref(), edge.dx.ref(),
                                            halo::plan_redistribution(layer.input, layer.input, needed,
                                                                      halo::BoundaryConditions{}, rank()))},
                        labelled(i, "_dx"));
    }
    if (!same_distribution(i, edge.source)) {
      edge.back.emplace(
          comm, queue,
          Items{Item::between(edge.folded.ref(), result.ref(),
                              halo::plan_redistribution(layer.input, plan.output_of(edge.source), rank()))},
          labelled(i, "_dx"));
    }
  }

  void describe_forward(Step<Exec>& step, Mode mode) {
    for (int i = 0; i < size(); ++i) {
      step.set_scope("aloni::nn::forward " + name(i));
      if (mode == Mode::evaluation && is_fused(i)) continue;
      for (InputEdge& edge : nodes[i].inputs) {
        if (edge.fetch) step.transfer("input", fetch_accesses(i, edge), *edge.fetch);
      }
      nodes[i].layer->add_forward(step, mode);
    }
    prepare(step);
  }

  void prepare(Step<Exec>& step) {
    ScheduleOptions order{.kernels_ahead = on_host ? 0 : 1};
    // Each rank and each step draws a different order.
    if (options.schedule_seed > 0)
      order.seed = random::integer(options.schedule_seed, static_cast<std::uint64_t>(rank()), ++prepared) | 1;
    step.prepare(order);
  }

  std::vector<Access> fetch_accesses(int i, const InputEdge& edge) {
    std::vector<Access> accesses{reads(output_of(edge.source))};
    const Box needed = plan.layers[i].input_needed(rank());
    const Box own = edge.mode == InputMode::in_place ? intersect(edge.x.owned, needed) : Box{};
    for (const Box& ghosts : own.empty() ? std::vector{needed} : difference(needed, own)) {
      accesses.push_back(writes(edge.x, ghosts));
    }
    return accesses;
  }

  void describe_backward(Step<Exec>& step, bool reduces) {
    for (int i = size() - 1; i >= 0; --i) {
      step.set_scope("aloni::nn::backward " + name(i));
      nodes[i].layer->add_backward(step);
      for (InputEdge& edge : nodes[i].inputs) {
        if (edge.fold)
          step.transfer("ghosts of dx", {reads(edge.dx, edge.dx.box), writes(edge.folded)}, *edge.fold, true);
        if (edge.back) step.transfer("dx", {reads(edge.folded), writes(edge.result)}, *edge.back);
        if (edge.contribution.allocated()) add_contribution(step, edge);
      }
      if (reduces) sums->add_to(step, i);
    }
    prepare(step);
  }

  void add_contribution(Step<Exec>& step, const InputEdge& edge) {
    const LocalTensor& target = gradient_of(edge.source);
    if (target.owned.empty()) return;
    const auto part = edge.contribution.owned_part();
    const auto sum = target.owned_part();
    if (edge.contributes_first) {
      step.kernel("first summand", {reads(edge.contribution), writes(target)},
                  [part, sum](const Exec& exec) { local::copy<T, Exec>(exec, part, sum); });
    } else {
      step.kernel("summand", {reads(edge.contribution), writes(target)},
                  [part, sum](const Exec& exec) { local::add<T, Exec>(exec, sum, part, sum); });
    }
  }

  void execute(Step<Exec>& step, const Queue<Exec>& queue) {
    step.execute(queue, on_host ? queue : communication, comm, stopwatch);
  }
  void forward(const Queue<Exec>& queue, Mode mode) { execute(mode == Mode::training ? training : evaluation, queue); }
  void backward(const Queue<Exec>& queue) { execute(gradients, queue); }

  double mean_divisor() const {
    return description.loss == Loss::softmax_cross_entropy
               ? static_cast<double>(samples)
               : static_cast<double>(plan.layers.back().output.extents().size());
  }

  void compute_loss(const Queue<Exec>& queue, bool with_gradient) {
    const ScopedRegion region("aloni::nn::loss");
    const auto timing = stopwatch.measure(Stopwatch::Phase::compute);
    const Exec& exec = queue.space();
    Node& last = nodes.back();
    if (last.y.owned.empty()) {
      Kokkos::deep_copy(exec, loss, 0.0);
      return;
    }
    const auto gradient = with_gradient ? last.dy.owned_part() : views::LocalView<T, Mem>{};
    const double scale = 1.0 / mean_divisor();
    if (description.loss == Loss::softmax_cross_entropy) {
      local::softmax_cross_entropy<T, Exec>(exec, last.y.owned_part(), labels, scale, gradient, loss);
    } else {
      local::binary_cross_entropy_with_logits<T, Exec>(exec, last.y.owned_part(), targets.whole(), scale, gradient,
                                                       loss);
    }
    if (!is_first_copy) Kokkos::deep_copy(exec, loss, 0.0);
  }

  /// Sums the gradients and the two numbers of the loss in one all-reduce. Returns the number of contributions added,
  /// late ones included.
  int reduce_gradients(const Queue<Exec>& queue, comm::PartialAllReduce<parameter_type_t<T>>* partial) {
    const ScopedRegion region("aloni::nn::reduce_gradients");
    const auto timing = stopwatch.measure(Stopwatch::Phase::collective);
    if (!partial) {
      sums->run(queue);
      return comm.size();
    }
    if (parameters.is_split()) {
      throw InvalidArgument("aloni::nn::Network::train_step", "parameters", "split over ranks",
                            "parameters that are whole on every rank, as a partial all-reduce needs them");
    }
    const auto& flat = parameters.gradients();
    Kokkos::deep_copy(queue.space(), host_gradients, flat);
    queue.fence("aloni::nn::reduce_gradients: the gradients of this rank are needed on the host");
    const int contributions = partial->reduce(std::span<Parameter>(host_gradients.data(), host_gradients.extent(0)));
    Kokkos::deep_copy(queue.space(), flat, host_gradients);
    return contributions;
  }

  void fetch_sums(const Queue<Exec>& queue) {
    const auto sums = Kokkos::subview(parameters.gradients(),
                                      Kokkos::make_pair(parameters.size(), parameters.size() + AllParameters::tail));
    Kokkos::deep_copy(queue.space(), host_sums, sums);
    queue.fence("aloni::nn::train_step: the loss is needed on the host");
  }

  StepResult train_step(const Queue<Exec>& queue, comm::PartialAllReduce<parameter_type_t<T>>* partial) {
    forward(queue, Mode::training);
    compute_loss(queue, true);
    append_loss<Parameter, Exec>(queue.space(), parameters.gradients(), parameters.size(), loss);
    int contributions = comm.size();
    if (!partial && sums->can_run_beside()) {
      execute(reduced_gradients, queue);
    } else {
      backward(queue);
      contributions = reduce_gradients(queue, partial);
    }
    fetch_sums(queue);
    const double share = static_cast<double>(contributions) / comm.size();
    return {static_cast<double>(host_sums(0)) / (share * mean_divisor()),
            static_cast<Index>(static_cast<double>(host_sums(1)) + 0.5)};
  }

  StepResult evaluate(const Queue<Exec>& queue) {
    forward(queue, Mode::evaluation);
    compute_loss(queue, false);
    Kokkos::deep_copy(queue.space(), host_loss, loss);
    queue.fence("aloni::nn::evaluate: the loss is needed on the host");
    const auto timing = stopwatch.measure(Stopwatch::Phase::collective);
    double sums[2] = {host_loss(0), host_loss(1)};
    comm.all_reduce(std::span<double>(sums), comm::Reduction::sum);
    return {sums[0] / mean_divisor(), static_cast<Index>(sums[1] + 0.5)};
  }

  void synchronise_statistics(const Queue<Exec>& queue) {
    for (const auto& s : parameters.all_running_statistics()) {
      const std::size_t channels = s.mean.extent(0);
      // A rank has statistics of the channels that it owns.
      const Box own = plan.layers[s.layer].output.owned(rank());
      std::vector<double> values(3 * channels);
      auto mean = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, s.mean);
      auto variance = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, s.variance);
      for (std::size_t c = 0; c < channels; ++c) {
        const auto channel = static_cast<Index>(c);
        if (own.empty() || channel < own.lower(Dim::channel) || channel >= own.upper(Dim::channel)) continue;
        values[c] = mean(c);
        values[channels + c] = variance(c);
        values[2 * channels + c] = 1;
      }
      comm.all_reduce(std::span<double>(values), comm::Reduction::sum);
      for (std::size_t c = 0; c < channels; ++c) {
        mean(c) = values[c] / values[2 * channels + c];
        variance(c) = values[channels + c] / values[2 * channels + c];
      }
      Kokkos::deep_copy(queue.space(), s.mean, mean);
      Kokkos::deep_copy(queue.space(), s.variance, variance);
      queue.fence("aloni::nn::synchronise_statistics: the host's values are released");
    }
  }
};

template <class T, class Exec>
Network<T, Exec>::Network(const comm::Communicator& comm, const Queue<Exec>& queue,
                          const NetworkDescription& description, const Strategy& strategy, Index samples,
                          Parameters<parameter_type_t<T>, Exec>& parameters, const NetworkOptions& options)
    : implementation_(
          std::make_unique<Implementation>(comm, queue, description, strategy, samples, parameters, options)) {}

template <class T, class Exec>
Network<T, Exec>::~Network() = default;

template <class T, class Exec>
const Distribution& Network<T, Exec>::input_distribution() const {
  return implementation_->plan.input;
}

template <class T, class Exec>
const Box& Network<T, Exec>::input_box() const {
  return implementation_->input.owned;
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Network<T, Exec>::input() const {
  return implementation_->input.owned_part();
}

template <class T, class Exec>
const Distribution& Network<T, Exec>::output_distribution() const {
  return implementation_->plan.layers.back().output;
}

template <class T, class Exec>
const Box& Network<T, Exec>::output_box() const {
  return implementation_->nodes.back().y.owned;
}

template <class T, class Exec>
const Kokkos::View<int*, typename Exec::memory_space>& Network<T, Exec>::labels() const {
  return implementation_->labels;
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Network<T, Exec>::targets() const {
  return implementation_->targets.whole();
}

template <class T, class Exec>
StepResult Network<T, Exec>::train_step(const Queue<Exec>& queue,
                                        comm::PartialAllReduce<parameter_type_t<T>>* partial) {
  return implementation_->train_step(queue, partial);
}

template <class T, class Exec>
StepResult Network<T, Exec>::evaluate(const Queue<Exec>& queue) {
  return implementation_->evaluate(queue);
}

template <class T, class Exec>
void Network<T, Exec>::forward(const Queue<Exec>& queue, Mode mode) {
  implementation_->forward(queue, mode);
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Network<T, Exec>::output() const {
  return implementation_->nodes.back().y.owned_part();
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Network<T, Exec>::output_gradient() const {
  return implementation_->nodes.back().dy.owned_part();
}

template <class T, class Exec>
void Network<T, Exec>::backward(const Queue<Exec>& queue) {
  implementation_->backward(queue);
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Network<T, Exec>::input_gradient() const {
  if (!implementation_->options.input_gradient) {
    throw InvalidArgument("aloni::nn::Network::input_gradient", "options.input_gradient", "false",
                          "true at construction, so that backward computes it");
  }
  return implementation_->input_dy.owned_part();
}

template <class T, class Exec>
void Network<T, Exec>::reduce_gradients(const Queue<Exec>& queue) {
  implementation_->reduce_gradients(queue, nullptr);
}

template <class T, class Exec>
void Network<T, Exec>::synchronise_statistics(const Queue<Exec>& queue) {
  implementation_->synchronise_statistics(queue);
}

template <class T, class Exec>
Stopwatch& Network<T, Exec>::stopwatch() {
  return implementation_->stopwatch;
}

#define INSTANTIATE(T, Exec) template class Network<T, Exec>;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
