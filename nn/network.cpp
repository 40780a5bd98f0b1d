#include <aloni/nn/network.hpp>

#include <aloni/core/comm/event_queue.hpp>
#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/metrics.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/plan/process_memory.hpp>
#include <aloni/nn/run/network_checks.hpp>
#include <aloni/nn/run/network_implementation.hpp>
#include <aloni/nn/run/parameter_memory.hpp>

#include <exception>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn {

template <class T, class Exec>
Network<T, Exec>::Implementation::Implementation(const comm::Communicator& c, const Queue<Exec>& queue,
                                                 const NetworkDescription& d, const Strategy& strategy, Index samples,
                                                 AllParameters& p, const NetworkOptions& o,
                                                 const std::optional<AdoptedInput<T, Mem>>& input)
    : comm(detail::agreed<T>(c, d, strategy, samples, o, p.optimiser(), p.update_options(),
                             input ? &input->distribution : nullptr)),
      description(d),
      plan(plan_network(d, resolve(strategy, d, c.size()), c.size(), samples, detail::plan_of(c, input))),
      parameters(p),
      options(o),
      queues(queues_of(queue, options)),
      machine(comm::describe_machine(comm, detail::costs_of(options, on_host))),
      memory(comm, queue),
      binder(comm, queue, memory, machine, &parameters) {
  detail::check_support<T, Exec>(options);
  detail::check_parameters(comm, description, plan, parameters, options);
  parameters.check_replicas(comm, queue, "aloni::nn::Network");
  comm::collectively(comm, "aloni::nn::Network: memory for activations", [&] {
    std::vector<const StepPlan*> plans{&inference};
    inference = planned(StepKind::inference);
    if (trains()) {
      training = planned(StepKind::training);
      plans.insert(plans.begin(), &training);
      host_gradients = Kokkos::create_mirror_view(parameters.gradients());
    }
    loss = loss_of(main());
    detail::use_parameters(parameters, memory);
    if (input) memory.use("input", input->owned, input->owner);
    const MemoryLayout layout = lay_out_memory(plans, machine);
    memory.allocate(plans, layout, options.schedule_seed > 0);
    planned_bytes = bytes_of(plans, layout, machine);
    const ProcessMemory process = process_memory(plans, layout, machine);
    planned_resident_bytes = process.total();
    planned_additional_bytes = process.additional();
    labels = memory.template flat<int>(main(), has(LossTargets::sample_labels) ? main().find("labels") : no_buffer);
    input_box = main().buffers[static_cast<std::size_t>(main().input)].owned;
    host_sums = decltype(host_sums)("aloni::nn::sums", AllParameters::tail);
    host_metrics = decltype(host_metrics)(
        "aloni::nn::metrics", nn::metric_sums(d.loss, plan.layers.back().output.extents()[views::Dim::channel]));
  });
  binder.set_dropout_seed(options.dropout_seed);
  binder.keep_filters(!options.record);
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

template <class T, class Exec>
void Network<T, Exec>::Implementation::bind_steps() {
  const auto is_gradient_sum = [](const PlanNode& node) {
    const auto* sum = std::get_if<ReductionWork>(&node.work);
    return sum && sum->segment >= 0;
  };
  const auto add = [&](Step<Exec>& step, const StepPlan& p, const auto& wanted) {
    for (int n = 0; n < static_cast<int>(p.nodes.size()); ++n)
      if (wanted(p.nodes[static_cast<std::size_t>(n)])) binder.bind(p, n, step);
  };
  const auto is_update = [](const PlanNode& n) { return n.phase == StepPhase::update; };
  add(train, training, [&](const PlanNode& n) { return sums_beside || (!is_gradient_sum(n) && !is_update(n)); });
  if (sums_beside && !options.update)
    add(train_alone, training, [&](const PlanNode& n) { return !is_gradient_sum(n); });
  if (!sums_beside) add(update_alone, training, is_update);
  add(forward_only, training, [](const PlanNode& n) { return n.phase == StepPhase::forward; });
  add(backward_only, training,
      [&](const PlanNode& n) { return n.phase == StepPhase::backward && !is_gradient_sum(n); });
  add(evaluation, inference, [](const PlanNode& n) { return n.phase == StepPhase::forward; });
  add(evaluation_loss, inference, [](const PlanNode& n) { return n.phase == StepPhase::loss; });
  for (Step<Exec>* const step :
       {&train, &train_alone, &update_alone, &forward_only, &backward_only, &evaluation, &evaluation_loss}) {
    ScheduleOptions order{.kernels_ahead = machine.kernels_ahead()};
    // Each rank and each step draws a different order.
    if (options.schedule_seed > 0)
      order.seed = random::integer(options.schedule_seed, static_cast<std::uint64_t>(comm.rank()), ++prepared) | 1;
    if (options.record) step->set_recorder(make_step_recorder<Exec>());
    step->prepare(order, main().streams);
  }
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::execute(Step<Exec>& step, const Queue<Exec>& queue) {
  if (times) times->begin(&step == &evaluation || &step == &evaluation_loss ? timed_inference : timed_training);
  queues.front() = queue;
  if constexpr (on_host) {
    step.execute(queue, comm, stopwatch, times);
  } else {
    step.execute(queues, comm, stopwatch, times, records_factors);
  }
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::use_present_values(const Queue<Exec>& queue) {
  if (parameters.writes() == ParameterWrites::at_any_time) {
    parameters.values_changed();  // the caller may have written them
  } else if constexpr (config::debug_checks) {
    parameters.check_announced(queue, "aloni::nn::Network");  // sends nothing: a step's traffic is that of its plan
  }
  binder.set_filter_version(parameters.version());
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::forward(const Queue<Exec>& queue, Mode mode) {
  if (mode == Mode::training) {
    require_training("forward");
    binder.set_dropout_step(dropout_step++);
  }
  use_present_values(queue);
  execute(mode == Mode::training ? forward_only : evaluation, queue);
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::backward(const Queue<Exec>& queue) {
  require_training("backward");
  use_present_values(queue);
  execute(backward_only, queue);
}

template <class T, class Exec>
int Network<T, Exec>::Implementation::reduce_partially(const Queue<Exec>& queue,
                                                       comm::PartialAllReduce<Parameter>& partial) {
  const ScopedRegion region("aloni::nn::reduce_gradients");
  const auto timing = stopwatch.measure(Stopwatch::Phase::collective);
  const TimedSpan span(times, StepTimes::Row::communication, "sum of gradients");
  if (parameters.is_split()) {
    throw InvalidArgument("aloni::nn::Network::train_step", "parameters", "split over ranks",
                          "parameters that are whole on every rank, as a partial all-reduce needs them");
  }
  const auto& flat = parameters.gradients();
  Kokkos::deep_copy(queue.space(), host_gradients, flat);
  comm::EventQueue<Exec>(comm).fence(queue.space(),
                                     "aloni::nn::reduce_gradients: the gradients of this rank are needed on the host");
  const int contributions = partial.reduce(std::span<Parameter>(host_gradients.data(), host_gradients.extent(0)));
  Kokkos::deep_copy(queue.space(), flat, host_gradients);
  return contributions;
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::reduce_gradients(const Queue<Exec>& queue) {
  require_training("reduce_gradients");
  const ScopedRegion region("aloni::nn::reduce_gradients");
  const auto timing = stopwatch.measure(Stopwatch::Phase::collective);
  const TimedSpan span(times, StepTimes::Row::communication, "sum of gradients");
  binder.sum_gradients(queue);
}

template <class T, class Exec>
StepResult Network<T, Exec>::Implementation::result(const Queue<Exec>& queue, double share) {
  const TimedSpan span(times, StepTimes::Row::compute, "result");
  const auto sums = Kokkos::subview(parameters.gradients(),
                                    Kokkos::make_pair(parameters.size(), parameters.size() + AllParameters::tail));
  Kokkos::deep_copy(queue.space(), host_sums, sums);
  comm::EventQueue<Exec>(comm).fence(queue.space(), "aloni::nn::train_step: the loss is needed on the host");
  return {static_cast<double>(host_sums(0)) * loss.scale / share,
          static_cast<Index>(static_cast<double>(host_sums(1)) + 0.5)};
}

/// `sums`: with the sums over ranks that stand beside the backward pass.
template <class T, class Exec>
void Network<T, Exec>::Implementation::compute_gradients(const Queue<Exec>& queue, const char* function, bool sums) {
  require_training(function);
  if (options.update) {
    throw InvalidArgument(std::string("aloni::nn::Network::") + function, "options.update", "true",
                          "false at construction, or train_step() with an optimiser");
  }
  binder.set_dropout_step(dropout_step++);
  use_present_values(queue);
  execute(sums_beside && !sums ? train_alone : train, queue);
}

template <class T, class Exec>
StepResult Network<T, Exec>::Implementation::train_step(const Queue<Exec>& queue,
                                                        comm::PartialAllReduce<Parameter>* partial) {
  compute_gradients(queue, "train_step", !partial);
  int contributions = comm.size();
  if (partial) {
    contributions = reduce_partially(queue, *partial);
  } else if (!sums_beside) {
    reduce_gradients(queue);
  }
  return result(queue, static_cast<double>(contributions) / comm.size());
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::start_train_step(const Queue<Exec>& queue, const Optimiser& optimiser,
                                                        std::int64_t step, const char* function) {
  const std::string name = std::string("aloni::nn::Network::") + function;
  if (!options.update) {
    throw InvalidArgument(name, "options.update", "false",
                          "true at construction, or train_step() without an optimiser, then Parameters::update()");
  }
  parameters.check_update(optimiser, step, name);
  binder.set_dropout_step(dropout_step++);
  binder.set_update(optimiser, step);
  use_present_values(queue);
  parameters.values_changed();  // by this step, also if it fails
  execute(train, queue);
  if (!sums_beside) {
    reduce_gradients(queue);
    execute(update_alone, queue);
  }
}

template <class T, class Exec>
StepResult Network<T, Exec>::Implementation::train_step(const Queue<Exec>& queue, const Optimiser& optimiser,
                                                        std::int64_t step) {
  start_train_step(queue, optimiser, step, "train_step");
  return result(queue, 1);
}

template <class T, class Exec>
StepResult Network<T, Exec>::Implementation::evaluate(const Queue<Exec>& queue) {
  use_present_values(queue);
  execute(evaluation, queue);
  execute(evaluation_loss, queue);
  const TimedSpan span(times, StepTimes::Row::compute, "result");
  Kokkos::deep_copy(queue.space(), host_loss, memory.template flat<double>(inference, inference.find("loss")));
  if (host_metrics.extent(0) > 0)
    Kokkos::deep_copy(queue.space(), host_metrics, memory.template flat<double>(inference, inference.find("metrics")));
  comm::EventQueue<Exec>(comm).fence(queue.space(), "aloni::nn::evaluate: the loss is needed on the host");
  return {host_loss(0) * loss.scale, static_cast<Index>(host_loss(1) + 0.5)};
}

#define INSTANTIATE(T, Exec) template struct Network<T, Exec>::Implementation;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
