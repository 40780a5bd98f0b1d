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
