#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/error.hpp>
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
#include <variant>
#include <vector>

namespace aloni::nn {

namespace {

/// Calls f(), which is collective. A rank that fails in it does not leave the others waiting.
template <class F>
void poisoning(const comm::Communicator& comm, const F& f) {
  try {
    f();
  } catch (const PeerFailed&) {
    throw;
  } catch (const std::exception& e) {
    comm.poison(e.what());
    throw;
  }
}

}  // namespace

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
  GradientSums sums = GradientSums::after_backward;
  poisoning(comm, [&] {
    if (trains() && options.sums_beside_backward && binder.sums_can_start()) sums = GradientSums::beside_backward;
  });
  comm::collectively(comm, "aloni::nn::Network: memory for activations", [&] {
    std::vector<const StepPlan*> plans{&inference};
    inference = planned(StepKind::inference);
    if (trains()) {
      training = planned(StepKind::training, sums);
      for (std::size_t s = 0; s < training.gradient_memory.size(); ++s)
        training.gradient_memory[s].shared = parameters.segments()[s].gradient_memory != nullptr;
      plans.insert(plans.begin(), &training);
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
  poisoning(comm, [&] { bind_steps(); });
  queue.fence("aloni::nn::Network: set-up is complete");
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::bind_steps() {
  add(train, training, [](const PlanNode&) { return true; });
  const auto of_one_rank = [](const PlanNode& n) { return !n.sums_gradients() && n.phase != StepPhase::update; };
  if (!options.update)
    add(train_alone, training, [&](const PlanNode& n) { return of_one_rank(n) && !n.accumulates(); });
  if (training.accumulates) add(micro_batch, training, of_one_rank);
  add(forward_only, training, [](const PlanNode& n) { return n.phase == StepPhase::forward; });
  add(backward_only, training,
      [&](const PlanNode& n) { return n.phase == StepPhase::backward && of_one_rank(n) && !n.accumulates(); });
  add(evaluation, inference, [](const PlanNode& n) { return n.phase == StepPhase::forward; });
  add(evaluation_loss, inference, [](const PlanNode& n) { return n.phase == StepPhase::loss; });
  for (Step<Exec>* const step :
       {&train, &train_alone, &micro_batch, &forward_only, &backward_only, &evaluation, &evaluation_loss})
    prepare(*step);
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::prepare(Step<Exec>& step) {
  ScheduleOptions order{.kernels_ahead = machine.kernels_ahead()};
  // Each rank and each step draws a different order.
  if (options.schedule_seed > 0)
    order.seed = random::integer(options.schedule_seed, static_cast<std::uint64_t>(comm.rank()), ++prepared) | 1;
  if (options.record) step.set_recorder(make_step_recorder<Exec>());
  step.prepare(order, main().streams);
}

// Its nodes share kernels, transfers and memory with those of `training`: both plans have the same buffers.
template <class T, class Exec>
Step<Exec>& Network<T, Exec>::Implementation::partial_step() {
  if (training_partially.nodes.empty()) {
    training_partially = planned(StepKind::training, GradientSums::partial);
    add(train_partially, training_partially, [](const PlanNode&) { return true; });
    prepare(train_partially);
  }
  return train_partially;
}

#define INSTANTIATE(T, Exec)                                                                            \
  template Network<T, Exec>::Implementation::Implementation(                                            \
      const comm::Communicator&, const Queue<Exec>&, const NetworkDescription&, const Strategy&, Index, \
      AllParameters&, const NetworkOptions&, const std::optional<AdoptedInput<T, Mem>>&);               \
  template void Network<T, Exec>::Implementation::bind_steps();                                         \
  template void Network<T, Exec>::Implementation::prepare(Step<Exec>&);                                 \
  template Step<Exec>& Network<T, Exec>::Implementation::partial_step();
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
