#pragma once
// The executor behind Network: the step plans of one mini-batch size, bound to memory and kernels, and the calls that
// run them. It decides nothing: every choice is in the plans. network_set_up.cpp has its constructor. Private to that
// file, network.cpp and network_interface.cpp.
#include <aloni/core/error.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/core/queue_beside.hpp>
#include <aloni/core/stopwatch.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/run/binder.hpp>
#include <aloni/nn/run/network_checks.hpp>
#include <aloni/nn/run/plan_memory.hpp>
#include <aloni/nn/step.hpp>
#include <aloni/nn/step_times.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace aloni::nn {

/// Two step plans: one for training, one for evaluation.
template <class T, class Exec>
struct Network<T, Exec>::Implementation {
  using Box = views::Box;
  using Distribution = views::Distribution;
  using Parameter = parameter_type_t<T>;
  using AllParameters = Parameters<Parameter, Exec>;
  static constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;

  comm::Communicator comm;
  NetworkDescription description;
  NetworkPlan plan;
  AllParameters& parameters;
  NetworkOptions options;
  std::vector<Queue<Exec>> queues;  ///< by stream of the steps; the first one is that of the caller
  MachineDescription machine;       ///< by which the steps were planned
  PlanMemory<Exec> memory;
  Binder<T, Exec> binder;
  StepPlan training, inference;
  StepPlan training_partially;             ///< with a partial all-reduce; empty until a call needs it
  Step<Exec> forward_only, backward_only;  ///< of training, for losses of the user's
  Step<Exec> evaluation, evaluation_loss;
  Step<Exec> train;            ///< to the gradients of all ranks, or to the update
  Step<Exec> train_alone;      ///< to the gradients of this rank; empty if `train` ends with the update
  Step<Exec> train_partially;  ///< all of training_partially
  Step<Exec> micro_batch;      ///< to the accumulated gradients of this rank; empty if the plan accumulates nothing
  Kokkos::View<int*, Mem> labels;
  BatchStaging<T, Mem> staging;
  typename AllParameters::Flat::HostMirror host_sums;  // of the loss and the correct predictions
  Kokkos::View<double[2], Kokkos::HostSpace> host_loss{"aloni::nn::loss"};
  Kokkos::View<double*, Kokkos::HostSpace> host_metrics;
  Stopwatch stopwatch;
  StepTimes* times = nullptr;    ///< null: nothing is recorded
  bool records_factors = false;  ///< kernels of a step then do work that a recording of them lacks
  TimedNodes timed_training, timed_partial_training, timed_inference;
  std::uint64_t prepared = 0;
  std::uint64_t dropout_step = 0;  ///< number of the next forward pass in training mode
  Box input_box;
  LossWork loss;  ///< of main()
  Index planned_bytes = 0, planned_resident_bytes = 0, planned_additional_bytes = 0;

  Implementation(const comm::Communicator& c, const Queue<Exec>& queue, const NetworkDescription& d,
                 const Strategy& strategy, Index samples, AllParameters& p, const NetworkOptions& o,
                 const std::optional<AdoptedInput<T, Mem>>& input);

  // --- the calls of Network ---

  StepResult train_step(const Queue<Exec>& queue, comm::PartialAllReduce<Parameter>* partial);
  void compute_gradients(const Queue<Exec>& queue);
  void add_gradients(const Queue<Exec>& queue);
  StepResult train_step(const Queue<Exec>& queue, const Optimiser& optimiser, std::int64_t step);
  /// `function`: for the error text.
  void start_train_step(const Queue<Exec>& queue, const Optimiser& optimiser, std::int64_t step, const char* function);
  StepResult evaluate(const Queue<Exec>& queue);
  void forward(const Queue<Exec>& queue, Mode mode);
  void backward(const Queue<Exec>& queue);
  void reduce_gradients(const Queue<Exec>& queue);

  // --- parts of them ---

  /// On devices, queues for communication and for borders beside that of the caller. Both have high priority: other
  /// ranks wait for packed values, and a border is on the way to the next ones. On hosts all streams are one queue.
  static std::vector<Queue<Exec>> queues_of(const Queue<Exec>& queue, const NetworkOptions& options) {
    std::vector<Queue<Exec>> queues(static_cast<std::size_t>(options.streams.value_or(default_streams(on_host))),
                                    queue);
    if constexpr (!on_host)
      for (std::size_t s = 1; s < queues.size(); ++s) queues[s] = queue_beside(queue, QueuePriority::high);
    return queues;
  }
  StepPlan planned(StepKind kind, GradientSums sums = GradientSums::beside_backward) const {
    return plan_step(description, plan, comm.rank(), kind, machine, detail::step_options<T>(options, parameters, sums));
  }
  /// Every rank binds all nodes in the same order.
  void bind_steps();
  /// Adds the nodes of the plan that are wanted: wanted(PlanNode).
  template <class F>
  void add(Step<Exec>& step, const StepPlan& p, const F& wanted) {
    for (int n = 0; n < static_cast<int>(p.nodes.size()); ++n)
      if (wanted(p.nodes[static_cast<std::size_t>(n)])) binder.bind(p, n, step);
  }
  void prepare(Step<Exec>& step);
  /// The step whose sums are one round of a partial all-reduce. Collective at the first call.
  Step<Exec>& partial_step();
  /// The nodes of its plan, with their prices.
  const TimedNodes& nodes_of(const Step<Exec>& step);
  /// Starts a training step without an update. `function`: for the error text.
  void begin_step(const Queue<Exec>& queue, const char* function);
  void execute(Step<Exec>& step, const Queue<Exec>& queue);
  /// Executes a training step with the gradients of this micro-batch, if the plan accumulates them. `last`: of its
  /// mini-batch.
  void execute_micro_batch(Step<Exec>& step, const Queue<Exec>& queue, bool last);
  /// At the begin of each call: the version of the filter values in the nodes of this call. Collective in builds with
  /// debug checks.
  void use_present_values(const Queue<Exec>& queue);
  /// The mean loss from the sums behind the gradients. `share`: of all samples.
  StepResult result(const Queue<Exec>& queue, double share);

  // --- buffers ---

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
    if constexpr (is_16_bit(element_type<T>)) {
      throw Unsupported("aloni::nn::Network", std::string(name) + "_field", nn::name(element_type<T>),
                        "a network of float or double, or halo::Transfer, which moves values of 16 bits");
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
};

}  // namespace aloni::nn
