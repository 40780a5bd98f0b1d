#include <aloni/nn/network.hpp>

#include <aloni/core/comm/event_queue.hpp>
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/profiling.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/run/network_implementation.hpp>

#include <span>
#include <string>

namespace aloni::nn {

template <class T, class Exec>
const TimedNodes& Network<T, Exec>::Implementation::nodes_of(const Step<Exec>& step) {
  const auto of = [&](TimedNodes& nodes, const StepPlan& p) -> const TimedNodes& {
    if (!nodes) nodes = timed_nodes(p, description, machine);
    return nodes;
  };
  if (&step == &evaluation || &step == &evaluation_loss) return of(timed_inference, inference);
  if (&step == &train_partially) return of(timed_partial_training, training_partially);
  return of(timed_training, training);
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::execute(Step<Exec>& step, const Queue<Exec>& queue) {
  if (times) times->begin(nodes_of(step));
  queues.front() = queue;
  if constexpr (on_host) {
    step.execute(queue, comm, stopwatch, times);
  } else {
    step.execute(queues, comm, stopwatch, times, records_factors);
  }
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::execute_micro_batch(Step<Exec>& step, const Queue<Exec>& queue, bool last) {
  GradientSum<Parameter, Exec>* const sum = parameters.gradient_sum();
  if (sum) sum->begin({.samples = training.samples, .loss_factor = loss.scale, .last = last});
  execute(step, queue);
  if (sum) sum->end();
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
  const double scale = training.accumulates ? 1 : loss.scale;  // the last micro-batch makes the mean
  return {static_cast<double>(host_sums(0)) * scale / share,
          static_cast<Index>(static_cast<double>(host_sums(1)) + 0.5)};
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::begin_step(const Queue<Exec>& queue, const char* function) {
  require_training(function);
  if (options.update) {
    throw InvalidArgument(std::string("aloni::nn::Network::") + function, "options.update", "true",
                          "false at construction, or train_step() with an optimiser");
  }
  binder.set_dropout_step(dropout_step++);
  use_present_values(queue);
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::compute_gradients(const Queue<Exec>& queue) {
  begin_step(queue, "compute_gradients");
  execute(train_alone, queue);
}

template <class T, class Exec>
void Network<T, Exec>::Implementation::add_gradients(const Queue<Exec>& queue) {
  require_training("add_gradients");
  if (!parameters.gradient_sum()) {
    throw InvalidArgument("aloni::nn::Network::add_gradients", "parameters", "without a sum of gradients",
                          "parameters made for ParameterUse::accumulation");
  }
  binder.set_dropout_step(dropout_step++);
  use_present_values(queue);
  execute_micro_batch(micro_batch, queue, false);
}

template <class T, class Exec>
StepResult Network<T, Exec>::Implementation::train_step(const Queue<Exec>& queue,
                                                        comm::PartialAllReduce<Parameter>* partial) {
  if (partial && parameters.is_split()) {
    throw InvalidArgument("aloni::nn::Network::train_step", "parameters", "split over ranks",
                          "parameters that are whole on every rank, as a partial all-reduce needs them");
  }
  begin_step(queue, "train_step");
  if (!partial) {
    execute_micro_batch(train, queue, true);
    return result(queue, 1);
  }
  binder.set_partial(*partial);
  execute_micro_batch(partial_step(), queue, true);
  return result(queue, static_cast<double>(binder.contributions()) / comm.size());
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
  execute_micro_batch(train, queue, true);
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
