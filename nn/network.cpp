#include <aloni/nn/network.hpp>

#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/core/queue_mark.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/detail/replicated.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/process_memory.hpp>
#include <aloni/nn/run/binder.hpp>
#include <aloni/nn/step_times.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn {

using views::Box;
using views::Dim;
using views::Distribution;

namespace {

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

/// The distribution as text, with borders of uneven blocks.
std::string text_of(const Distribution& d) {
  std::string text = to_string(d);
  for (const Dim dim : views::all_dims) {
    text += d.replicated(dim) ? ", replicated" : ",";
    for (const Index border : d.borders(dim)) text += ' ' + std::to_string(border);
  }
  return text;
}

/// The communicator, once all ranks have passed the same arguments: plans of different arguments would wait for ever.
template <class T>
const comm::Communicator& agreed(const comm::Communicator& comm, const NetworkDescription& description,
                                 const Strategy& strategy, Index samples, const NetworkOptions& o,
                                 const Distribution* input) {
  comm::ReplicatedValues values;
  values.add("element type", detail::element_name<T>());
  values.add("samples", samples);
  detail::add_to(values, description);
  detail::add_to(values, strategy);
  values.add("backend", std::string(local::name(o.backend)));
  values.add("options.inference", o.inference);
  values.add("options.input_gradient", o.input_gradient);
  values.add("options.fuse_inference", o.fuse_inference);
  values.add("options.schedule_seed", o.schedule_seed);
  values.add("options.largest_overhead", o.largest_overhead.value_or(-1));
  values.add("options.dropout_seed", o.dropout_seed);
  values.add("adopted input", input ? text_of(*input) : "none");
  comm::check_equal(comm, "aloni::nn::Network", values);
  return comm;
}

/// What the plan needs to know of an adopted input. Errors of one rank throw on all. Collective.
template <class T, class Mem>
std::optional<AdoptedInputPlan> plan_of(const comm::Communicator& comm,
                                        const std::optional<AdoptedInput<T, Mem>>& input) {
  if (!input) return std::nullopt;
  const Distribution& d = input->distribution;
  bool wrong = d.ranks() != comm.size() || input->rank != comm.rank();
  if (!wrong) {
    const Box box = d.owned(comm.rank());
    for (const Dim dim : views::all_dims)
      wrong = wrong || static_cast<Index>(input->owned.extent(views::position(dim))) != box.extent(dim);
    wrong = wrong || (!box.empty() && input->owned.data() == nullptr);
  }
  const bool strided = input->owned.size() > 0 && !views::is_dense(input->owned);
  std::array<int, 2> found{wrong ? 1 : 0, strided ? 1 : 0};
  comm.all_reduce(std::span<int>(found), comm::Reduction::sum);
  if (found[0] > 0) {
    throw InvalidArgument("aloni::nn::Network", "input",
                          "on " + std::to_string(found[0]) + " of " + std::to_string(comm.size()) +
                              " ranks made for other ranks or for another box",
                          "a View of the box that this rank owns, distributed over all ranks of the network");
  }
  return AdoptedInputPlan{d, found[1] == 0};
}

/// Checks that each rank keeps the weights that its layers multiply by. Runs on all ranks before any allocation.
template <class T, class Exec>
void check_parameters(const comm::Communicator& comm, const NetworkDescription& description, const NetworkPlan& plan,
                      const Parameters<T, Exec>& parameters, const NetworkOptions& options) {
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
  if (!parameters.trains() && !options.inference) {
    refuse("parameters", "made for inference, without gradients",
           "parameters made for training, or options.inference = true");
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

}  // namespace

/// Executes step plans: one for training, one for evaluation. It decides nothing.
template <class T, class Exec>
struct Network<T, Exec>::Implementation {
  using Parameter = parameter_type_t<T>;
  using AllParameters = Parameters<Parameter, Exec>;
  static constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;

  comm::Communicator comm;
  NetworkDescription description;
  NetworkPlan plan;
  AllParameters& parameters;
  NetworkOptions options;
  Queue<Exec> communication;  ///< on devices, beside the queue of kernels
  PlanMemory<Exec> memory;
  Binder<T, Exec> binder;
  StepPlan training, inference;
  Step<Exec> forward_only, backward_only;  ///< of training, for losses of the user's
  Step<Exec> evaluation, evaluation_loss;
  Step<Exec> train;          ///< to the gradients of this rank, or of all ranks
  Step<Exec> train_alone;    ///< to the gradients of this rank; empty if `train` does that
  bool sums_beside = false;  ///< `train` includes the sums over ranks
  Kokkos::View<int*, Mem> labels;
  typename AllParameters::Flat::HostMirror host_gradients;  // for partial all-reduces
  typename AllParameters::Flat::HostMirror host_sums;       // of the loss and the correct predictions
  Kokkos::View<double[2], Kokkos::HostSpace> host_loss{"aloni::nn::loss"};
  Stopwatch stopwatch;
  StepTimes* times = nullptr;  ///< null: nothing is recorded
  MachineDescription priced;   ///< the machine of the costs of timed nodes
  TimedNodes timed_training, timed_inference;
  std::uint64_t prepared = 0;
  std::uint64_t dropout_step = 0;  ///< number of the next forward pass in training mode
  Box input_box;
  LossWork loss;  ///< of main()
  Index planned_bytes = 0, planned_resident_bytes = 0;

  static Queue<Exec> queue_beside(const Queue<Exec>& queue) {
    if constexpr (on_host) {
      return queue;
    } else {
      return Queue<Exec>(Kokkos::Experimental::partition_space(queue.space(), 1).front());
    }
  }

  Implementation(const comm::Communicator& c, const Queue<Exec>& queue, const NetworkDescription& d,
                 const Strategy& strategy, Index samples, AllParameters& p, const NetworkOptions& o,
                 const std::optional<AdoptedInput<T, Mem>>& input)
      : comm(agreed<T>(c, d, strategy, samples, o, input ? &input->distribution : nullptr)),
        description(d),
        plan(plan_network(d, resolve(strategy, d, c.size()), c.size(), samples, plan_of(c, input))),
        parameters(p),
        options(o),
        communication(queue_beside(queue)),
        memory(comm, queue),
        binder(comm, queue, memory, options.backend, &parameters) {
    check_support<T, Exec>(options);
    check_parameters(comm, description, plan, parameters, options);
    parameters.check_replicas(comm, queue, "aloni::nn::Network");
    const MachineDescription machine = comm::describe_machine(comm, on_host);
    priced = machine;
    comm::collectively(comm, "aloni::nn::Network: memory for activations", [&] {
      std::vector<const StepPlan*> plans{&inference};
      inference = planned(StepKind::inference, machine);
      if (trains()) {
        training = planned(StepKind::training, machine);
        plans.insert(plans.begin(), &training);
        host_gradients = Kokkos::create_mirror_view(parameters.gradients());
      }
      loss = loss_of(main());
      use_parameters();
      if (input) memory.use("input", input->owned, input->owner);
      const MemoryLayout layout = lay_out_memory(plans, machine);
      memory.allocate(plans, layout, options.schedule_seed > 0);
      planned_bytes = bytes_of(plans, layout, machine);
      planned_resident_bytes = process_memory(plans, layout, machine).total();
      labels = memory.template flat<int>(main(), has(LossTargets::sample_labels) ? main().find("labels") : no_buffer);
      input_box = main().buffers[static_cast<std::size_t>(main().input)].owned;
      host_sums = decltype(host_sums)("aloni::nn::sums", AllParameters::tail);
    });
    binder.set_dropout_seed(options.dropout_seed);
    try {
      sums_beside = trains() && binder.sums_beside_backward();
      bind_steps();
    } catch (const PeerFailed&) {
      throw;
    } catch (const std::exception& e) {
      // Nodes are bound collectively. A rank that fails must not leave the others waiting.
      comm.poison(e.what());
      throw;
    }
    queue.fence("aloni::nn::Network: set-up is complete");
  }

  StepPlan planned(StepKind kind, const MachineDescription& machine) const {
    return plan_step(description, plan, comm.rank(), kind, machine,
                     {.activations = element_type<T>,
                      .split_parameters = parameters.is_split(),
                      .input_gradient = options.input_gradient,
                      .fuse_inference = options.fuse_inference,
                      .update = false,
                      .largest_overhead = options.largest_overhead});
  }

  void use_parameters() {
    for (std::size_t i = 0; i < parameters.descriptions().size(); ++i) {
      const int p = static_cast<int>(i);
      memory.use(parameters.descriptions()[i].name, parameters.value(p).data());
      if (trains()) memory.use(parameters.descriptions()[i].name + ".gradient", parameters.gradient(p).data());
    }
  }

  /// Every rank binds all nodes in the same order.
  void bind_steps() {
    const auto is_gradient_sum = [](const PlanNode& node) {
      const auto* sum = std::get_if<ReductionWork>(&node.work);
      return sum && sum->segment >= 0;
    };
    const auto add = [&](Step<Exec>& step, const StepPlan& p, const auto& wanted) {
      for (int n = 0; n < static_cast<int>(p.nodes.size()); ++n)
        if (wanted(p.nodes[static_cast<std::size_t>(n)])) binder.bind(p, n, step);
    };
    add(train, training, [&](const PlanNode& n) { return sums_beside || !is_gradient_sum(n); });
    if (sums_beside) add(train_alone, training, [&](const PlanNode& n) { return !is_gradient_sum(n); });
    add(forward_only, training, [](const PlanNode& n) { return n.phase == StepPhase::forward; });
    add(backward_only, training,
        [&](const PlanNode& n) { return n.phase == StepPhase::backward && !is_gradient_sum(n); });
    add(evaluation, inference, [](const PlanNode& n) { return n.phase == StepPhase::forward; });
    add(evaluation_loss, inference, [](const PlanNode& n) { return n.phase == StepPhase::loss; });
    for (Step<Exec>* const step :
         {&train, &train_alone, &forward_only, &backward_only, &evaluation, &evaluation_loss}) {
      ScheduleOptions order{.kernels_ahead = on_host ? 0 : 1};
      // Each rank and each step draws a different order.
      if (options.schedule_seed > 0)
        order.seed = random::integer(options.schedule_seed, static_cast<std::uint64_t>(comm.rank()), ++prepared) | 1;
      step->prepare(order);
    }
  }

  bool trains() const { return !options.inference; }
  /// The plan that names the buffers of the user.
  const StepPlan& main() const { return trains() ? training : inference; }
  void require_training(const char* function) const {
    if (trains()) return;
    throw InvalidArgument(std::string("aloni::nn::Network::") + function, "options.inference", "true",
                          "false at construction; a network for inference has no gradients");
  }

  bool has(LossTargets targets) const { return targets_of(description.loss) == targets; }
  template <class U>
  views::LocalView<U, Mem> owned(const std::string& name) const {
    const BufferId b = main().find(name);
    return memory.template view<U>(main(), b, main().buffers[static_cast<std::size_t>(b)].owned);
  }
  halo::Field<Mem> field([[maybe_unused]] const char* name, [[maybe_unused]] const views::LocalView<T, Mem>& data,
                         [[maybe_unused]] const Box& box, [[maybe_unused]] const Distribution& distribution,
                         [[maybe_unused]] BufferId b) const {
    if constexpr (std::is_same_v<T, comm::bfloat16>) {
      throw Unsupported("aloni::nn::Network", std::string(name) + "_field", "bfloat16",
                        "a network of float or double, or halo::Transfer, which moves bfloat16");
    } else {
      return {halo::TensorRef<T, Mem>{data, box, memory.owner(main(), b)}, distribution, comm.rank(),
              std::string("aloni::nn::") + name};
    }
  }
  /// y or dy of the last layer, where the loss is computed.
  views::LocalView<T, Mem> last(BufferId LossWork::*buffer) const {
    return memory.template view<T>(main(), loss.*buffer, loss.region);
  }
  static LossWork loss_of(const StepPlan& plan) {
    for (const PlanNode& node : plan.nodes)
      if (const auto* work = std::get_if<LossWork>(&node.work)) return *work;
    throw InvalidArgument("aloni::nn::Network", "plan", "no loss", "a plan for training or inference");
  }

  void execute(Step<Exec>& step, const Queue<Exec>& queue) {
    if (times) times->begin(&step == &evaluation || &step == &evaluation_loss ? timed_inference : timed_training);
    step.execute(queue, on_host ? queue : communication, comm, stopwatch, times);
  }

  void record_times(StepTimes* recorder) {
    if (recorder && !timed_training) {
      timed_training = timed_nodes(training, description, priced);
      timed_inference = timed_nodes(inference, description, priced);
    }
    times = recorder;
  }

  /// Returns the number of contributions added, late ones included.
  int reduce_partially(const Queue<Exec>& queue, comm::PartialAllReduce<Parameter>& partial) {
    const ScopedRegion region("aloni::nn::reduce_gradients");
    const auto timing = stopwatch.measure(Stopwatch::Phase::collective);
    const TimedSpan span(times, StepTimes::Row::communication, "sum of gradients");
    if (parameters.is_split()) {
      throw InvalidArgument("aloni::nn::Network::train_step", "parameters", "split over ranks",
                            "parameters that are whole on every rank, as a partial all-reduce needs them");
    }
    const auto& flat = parameters.gradients();
    Kokkos::deep_copy(queue.space(), host_gradients, flat);
    queue.fence("aloni::nn::reduce_gradients: the gradients of this rank are needed on the host");
    const int contributions = partial.reduce(std::span<Parameter>(host_gradients.data(), host_gradients.extent(0)));
    Kokkos::deep_copy(queue.space(), flat, host_gradients);
    return contributions;
  }

  void reduce_gradients(const Queue<Exec>& queue) {
    require_training("reduce_gradients");
    const ScopedRegion region("aloni::nn::reduce_gradients");
    const auto timing = stopwatch.measure(Stopwatch::Phase::collective);
    const TimedSpan span(times, StepTimes::Row::communication, "sum of gradients");
    binder.sum_gradients(queue);
  }

  /// The mean loss from the sums behind the gradients. `share`: of all samples.
  StepResult result(const Queue<Exec>& queue, double share) {
    const TimedSpan span(times, StepTimes::Row::compute, "result");
    const auto sums = Kokkos::subview(parameters.gradients(),
                                      Kokkos::make_pair(parameters.size(), parameters.size() + AllParameters::tail));
    Kokkos::deep_copy(queue.space(), host_sums, sums);
    queue.fence("aloni::nn::train_step: the loss is needed on the host");
    return {static_cast<double>(host_sums(0)) * loss.scale / share,
            static_cast<Index>(static_cast<double>(host_sums(1)) + 0.5)};
  }

  StepResult train_step(const Queue<Exec>& queue, comm::PartialAllReduce<Parameter>* partial) {
    require_training("train_step");
    binder.set_dropout_step(dropout_step++);
    execute(partial && sums_beside ? train_alone : train, queue);
    int contributions = comm.size();
    if (partial) {
      contributions = reduce_partially(queue, *partial);
    } else if (!sums_beside) {
      reduce_gradients(queue);
    }
    return result(queue, static_cast<double>(contributions) / comm.size());
  }

  StepResult evaluate(const Queue<Exec>& queue) {
    execute(evaluation, queue);
    execute(evaluation_loss, queue);
    const TimedSpan span(times, StepTimes::Row::compute, "result");
    Kokkos::deep_copy(queue.space(), host_loss, memory.template flat<double>(inference, inference.find("loss")));
    queue.fence("aloni::nn::evaluate: the loss is needed on the host");
    return {host_loss(0) * loss.scale, static_cast<Index>(host_loss(1) + 0.5)};
  }

  void synchronise_statistics(const Queue<Exec>& queue) {
    for (const auto& s : parameters.all_running_statistics()) {
      const std::size_t channels = s.mean.extent(0);
      // A rank has statistics of the channels that it owns.
      const Box own = plan.layers[s.layer].output.owned(comm.rank());
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
                          Parameters<parameter_type_t<T>, Exec>& parameters, const NetworkOptions& options,
                          const std::optional<AdoptedInput<T, Mem>>& input)
    : implementation_(
          std::make_unique<Implementation>(comm, queue, description, strategy, samples, parameters, options, input)) {}

template <class T, class Exec>
Network<T, Exec>::~Network() = default;

template <class T, class Exec>
const Distribution& Network<T, Exec>::input_distribution() const {
  return implementation_->plan.input;
}

template <class T, class Exec>
const Box& Network<T, Exec>::input_box() const {
  return implementation_->input_box;
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Network<T, Exec>::input() const {
  return implementation_->template owned<T>("input");
}

template <class T, class Exec>
halo::Field<typename Exec::memory_space> Network<T, Exec>::input_field() const {
  const Implementation& i = *implementation_;
  return i.field("input", input(), i.input_box, i.plan.input, i.main().input);
}

template <class T, class Exec>
halo::Field<typename Exec::memory_space> Network<T, Exec>::output_field() const {
  const Implementation& i = *implementation_;
  return i.field("output", output(), i.loss.region, output_distribution(), i.loss.output);
}

template <class T, class Exec>
const Distribution& Network<T, Exec>::output_distribution() const {
  return implementation_->plan.layers.back().output;
}

template <class T, class Exec>
const Box& Network<T, Exec>::output_box() const {
  return implementation_->loss.region;
}

template <class T, class Exec>
const Kokkos::View<int*, typename Exec::memory_space>& Network<T, Exec>::labels() const {
  return implementation_->labels;
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Network<T, Exec>::targets() const {
  return implementation_->has(LossTargets::elements) ? implementation_->template owned<T>("targets")
                                                     : views::LocalView<T, Mem>{};
}

template <class T, class Exec>
views::LocalView<int, typename Exec::memory_space> Network<T, Exec>::pixel_labels() const {
  return implementation_->has(LossTargets::pixel_labels) ? implementation_->template owned<int>("labels")
                                                         : views::LocalView<int, Mem>{};
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
  Implementation& i = *implementation_;
  if (mode == Mode::training) {
    i.require_training("forward");
    i.binder.set_dropout_step(i.dropout_step++);
  }
  i.execute(mode == Mode::training ? i.forward_only : i.evaluation, queue);
}

template <class T, class Exec>
void Network<T, Exec>::set_dropout_step(std::uint64_t step) {
  implementation_->dropout_step = step;
}

template <class T, class Exec>
std::uint64_t Network<T, Exec>::dropout_step() const {
  return implementation_->dropout_step;
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Network<T, Exec>::output() const {
  return implementation_->last(&LossWork::output);
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Network<T, Exec>::output_gradient() const {
  implementation_->require_training("output_gradient");
  return implementation_->last(&LossWork::gradient);
}

template <class T, class Exec>
halo::Field<typename Exec::memory_space> Network<T, Exec>::output_gradient_field() const {
  const Implementation& i = *implementation_;
  return i.field("output_gradient", output_gradient(), i.loss.region, output_distribution(), i.loss.gradient);
}

template <class T, class Exec>
void Network<T, Exec>::backward(const Queue<Exec>& queue) {
  implementation_->require_training("backward");
  implementation_->execute(implementation_->backward_only, queue);
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Network<T, Exec>::input_gradient() const {
  if (!implementation_->options.input_gradient) {
    throw InvalidArgument("aloni::nn::Network::input_gradient", "options.input_gradient", "false",
                          "true at construction, so that backward computes it");
  }
  return implementation_->template owned<T>("input_gradient");
}

template <class T, class Exec>
void Network<T, Exec>::reduce_gradients(const Queue<Exec>& queue) {
  implementation_->reduce_gradients(queue);
}

template <class T, class Exec>
void Network<T, Exec>::synchronise_statistics(const Queue<Exec>& queue) {
  implementation_->synchronise_statistics(queue);
}

template <class T, class Exec>
Index Network<T, Exec>::planned_bytes() const {
  return implementation_->planned_bytes;
}

template <class T, class Exec>
Index Network<T, Exec>::planned_resident_bytes() const {
  return implementation_->planned_resident_bytes;
}

template <class T, class Exec>
Stopwatch& Network<T, Exec>::stopwatch() {
  return implementation_->stopwatch;
}

template <class T, class Exec>
void Network<T, Exec>::record_times(StepTimes* times) {
  implementation_->record_times(times);
}

#define INSTANTIATE(T, Exec) template class Network<T, Exec>;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
