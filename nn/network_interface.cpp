// The member functions of Network: each passes its call on (nn/run/network_implementation.hpp).
#include <aloni/nn/network.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/run/average_statistics.hpp>
#include <aloni/nn/run/network_implementation.hpp>

#include <memory>

namespace aloni::nn {

using views::Box;
using views::Distribution;

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
StepResult Network<T, Exec>::train_step(const Queue<Exec>& queue, const Optimiser& optimiser, std::int64_t step) {
  return implementation_->train_step(queue, optimiser, step);
}

template <class T, class Exec>
void Network<T, Exec>::start_train_step(const Queue<Exec>& queue, const Optimiser& optimiser, std::int64_t step) {
  implementation_->start_train_step(queue, optimiser, step, "start_train_step");
}

template <class T, class Exec>
StepResult Network<T, Exec>::step_result(const Queue<Exec>& queue) {
  implementation_->require_training("step_result");
  return implementation_->result(queue, 1);
}

template <class T, class Exec>
StepResult Network<T, Exec>::evaluate(const Queue<Exec>& queue) {
  return implementation_->evaluate(queue);
}

template <class T, class Exec>
std::span<const double> Network<T, Exec>::metric_sums() const {
  const auto& sums = implementation_->host_metrics;
  return {sums.data(), sums.extent(0)};
}

template <class T, class Exec>
void Network<T, Exec>::forward(const Queue<Exec>& queue, Mode mode) {
  implementation_->forward(queue, mode);
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
  implementation_->backward(queue);
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
void Network<T, Exec>::compute_gradients(const Queue<Exec>& queue) {
  implementation_->compute_gradients(queue);
}

template <class T, class Exec>
void Network<T, Exec>::add_gradients(const Queue<Exec>& queue) {
  implementation_->add_gradients(queue);
}

template <class T, class Exec>
double Network<T, Exec>::loss_factor() const {
  return implementation_->loss.scale;
}

template <class T, class Exec>
void Network<T, Exec>::reduce_gradients(const Queue<Exec>& queue) {
  implementation_->reduce_gradients(queue);
}

template <class T, class Exec>
void Network<T, Exec>::synchronise_statistics(const Queue<Exec>& queue) {
  const Implementation& i = *implementation_;
  detail::average_statistics(i.comm, queue, i.plan, i.parameters);
}

template <class T, class Exec>
Index Network<T, Exec>::planned_bytes() const {
  return implementation_->planned_bytes;
}

template <class T, class Exec>
std::uint64_t Network<T, Exec>::filter_refreshes() const {
  return implementation_->binder.filter_refreshes();
}

template <class T, class Exec>
Index Network<T, Exec>::planned_resident_bytes() const {
  return implementation_->planned_resident_bytes;
}

template <class T, class Exec>
Index Network<T, Exec>::planned_additional_bytes() const {
  return implementation_->planned_additional_bytes;
}

template <class T, class Exec>
BatchStaging<T, typename Exec::memory_space>& Network<T, Exec>::staging() {
  return implementation_->staging;
}

template <class T, class Exec>
Stopwatch& Network<T, Exec>::stopwatch() {
  return implementation_->stopwatch;
}

template <class T, class Exec>
void Network<T, Exec>::record_times(StepTimes* times) {
  Implementation& i = *implementation_;
  i.times = times;
  if (!times) return;
  (void)i.nodes_of(i.train);
  (void)i.nodes_of(i.evaluation);
}

template <class T, class Exec>
void Network<T, Exec>::record_factors(FactorSums<T, Exec>* sums) {
  implementation_->require_training("record_factors");
  implementation_->binder.record_factors(sums);
  implementation_->records_factors = sums != nullptr;
}

#define INSTANTIATE(T, Exec) template class Network<T, Exec>;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
