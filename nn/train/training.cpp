#include <aloni/nn/train/training.hpp>

#include <aloni/core/comm/running_machine.hpp>
#include <aloni/core/comm/trace.hpp>
#include <aloni/core/memory.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/memory_savings.hpp>
#include <aloni/nn/run/network_checks.hpp>
#include <aloni/nn/weights_file.hpp>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>

namespace aloni::nn {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void add_difference(TimeReport& sum, const TimeReport& before, const TimeReport& after) {
  sum.compute += after.compute - before.compute;
  sum.halo += after.halo - before.halo;
  sum.collective += after.collective - before.collective;
  sum.input += after.input - before.input;
}

/// Bytes and messages that this rank has sent to other ranks so far.
struct Sent {
  std::uint64_t bytes = 0, messages = 0;

  explicit Sent(const comm::Communicator& comm) {
    for (const comm::PeerTraffic& peer : comm.traffic_by_peer()) {
      if (peer.rank == comm.rank()) continue;
      bytes += peer.messages.bytes_sent + peer.collectives.bytes_sent;
      messages += peer.messages.messages_sent + peer.collectives.messages_sent;
    }
  }
};

constexpr std::int64_t most_skipped_updates = 50;  ///< in a row

std::int64_t ceiling(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

template <class T>
Training<T>::Training(const comm::Communicator& comm, const NetworkDescription& description, const Strategy& strategy,
                      Source<T>& source, const TrainOptions& options, TrainObserver* observer)
    : comm_(comm),
      description_(description),
      strategy_(strategy),
      source_(source),
      options_(options),
      observer_(observer),
      parameters_(make_parameters()),
      network_options_(make_network_options()),
      networks_(comm, queue_, description, strategy, parameters_, network_options_, options.seed),
      optimiser_(options.optimiser),
      batch_(std::min(options.batch, source.size())),
      micro_(std::min(micro_batch(options), source.size())),
      steps_per_epoch_(ceiling(source.size(), batch_)),
      total_steps_(options.steps > 0 ? options.steps : options.epochs * steps_per_epoch_),
      epochs_(static_cast<int>(ceiling(total_steps_, steps_per_epoch_))),
      guard_(options.allow_nonfinite),
      timed_(options.timed_steps, total_steps_) {
  parameters_.set_writes(ParameterWrites::announced);  // only the library writes them here
  if (options.average) average_.emplace(queue_, parameters_, *options.average);
  if (options.kfac)
    kfac_.emplace(comm_, queue_, description_, resolve(strategy_, description_, comm_.size()), parameters_,
                  *options.kfac);
}

/// Late gradients require whole parameters on every rank.
template <class T>
auto Training<T>::make_parameters() const -> Parameters<Parameter, Exec> {
  const OptimiserKind kind = kind_of(options_.optimiser);
  const ParameterUse use = options_.accumulate > 1 ? ParameterUse::accumulation : ParameterUse::training;
  if (!waits_for_all()) return {comm_, queue_, description_, options_.seed, use, kind, options_.update};
  const auto splits = resolve(strategy_, description_, comm_.size());
  return {comm_, queue_, description_, splits, options_.seed, use, kind, options_.update};
}

template <class T>
NetworkOptions Training<T>::make_network_options() const {
  NetworkOptions options{.backend = options_.backend,
                         .tf32 = options_.tf32,
                         .update = waits_for_all() && !options_.kfac,
                         .direct_bytes = options_.direct_bytes,
                         .consolidate_below = options_.consolidate_below,
                         .bucket_bytes = options_.bucket_bytes,
                         .chunk_bytes = options_.chunk_bytes,
                         .largest_overhead = options_.largest_overhead,
                         .multiplications_per_slab = options_.multiplications_per_slab,
                         .convolutions = options_.convolutions,
                         .work_per_copied_byte = options_.work_per_copied_byte,
                         .record = options_.record};
  if (options_.memory.empty()) return options;
  constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, typename Exec::memory_space>::accessible;
  const MachineDescription machine = comm::describe_machine(comm_, detail::costs_of(options, on_host));
  const auto splits = resolve(strategy_, description_, comm_.size());
  const NetworkPlan layers =
      plan_network(description_, splits, comm_.size(), std::min(micro_batch(options_), source_.size()));
  const StepOptions step = detail::step_options<T>(options, parameters_);
  const MemorySavings savings = memory_savings_for(description_, layers, machine, step, options_.memory);
  options.recompute = savings.recomputation.blocks;
  options.offload = savings.offload;
  return options;
}

template <class T>
std::set<Index> Training<T>::incomplete_batches() const {
  std::set<Index> sizes;
  const std::int64_t ends = total_steps_ / steps_per_epoch_ - progress_.steps / steps_per_epoch_;  // of whole epochs
  if (ends > 0) sizes.insert(source_.size() % micro_);
  if (total_steps_ > progress_.steps) sizes.insert(source_.test_rest(micro_));
  sizes.erase(0);
  return sizes;
}

template <class T>
void Training<T>::prepare() {
  return_freed_memory();  // of reading the data set, which the network would otherwise take as its own
  const auto resident = static_cast<std::uint64_t>(resident_memory_bytes());
  Network<T, Exec>& network = networks_.of(micro_);
  Index planned = network.planned_resident_bytes() + source_.resident_bytes(network) + checkpoint_bytes();
  if (kfac_) planned += kfac_->bytes();
  if (!waits_for_all()) {
    partial_.emplace(comm_, parameters_.gradients().extent(0));
    planned += static_cast<Index>(partial_->bytes());
  }
  for (const Index samples : incomplete_batches()) planned += networks_.of(samples).planned_additional_bytes();
  report_.predicted_memory_bytes = maximum(resident + static_cast<std::uint64_t>(planned));
  network.record_times(timed_.times().get());  // prices its nodes
  network.record_times(nullptr);
}

template <class T>
template <class F>
void Training<T>::with_average(const F& f) {
  if (average_) average_->exchange(queue_);
  f();
  if (average_) average_->exchange(queue_);
}

template <class T>
TrainReport Training<T>::run() {
  if (!resume() && !options_.initial_weights.empty()) {
    comm::collectively(comm_, "aloni::nn::train",
                       [&] { read_weights(queue_, description_, parameters_, options_.initial_weights); });
  }
  prepare();
  const auto first = static_cast<int>(progress_.steps / steps_per_epoch_);
  for (int epoch = first; !stopped_early() && progress_.steps < total_steps_ && run_epoch(epoch); ++epoch) continue;
  if (!options_.export_weights.empty())
    with_average([&] { write_weights(comm_, queue_, description_, parameters_, options_.export_weights); });
  finish_report();
  // After the peak of memory is known: pictures do not belong to the training.
  if (options_.sample_results > 0)
    with_average([&] { report_.samples = source_.samples(networks_, queue_, micro_, options_.sample_results); });
  return report_;
}

template <class T>
bool Training<T>::run_epoch(int epoch) {
  source_.begin_epoch(epoch);
  const TimeReport before = networks_.time();
  Epoch sums = sums_of(epoch);
  const auto ends = [&](Index first) { return first >= source_.size() || progress_.steps >= total_steps_; };
  bool goes_on = true;
  for (Index first = sums.steps * batch_; goes_on && !ends(first); first += batch_) {
    run_step(sums, first, std::min(batch_, source_.size() - first));
    if (!ends(first + batch_)) goes_on = !save_if_due();  // otherwise the test of the epoch comes first
  }
  update_by_late_gradients();
  add_difference(report_.time, before, networks_.time());
  train_seconds_ += sums.seconds;
  trained_ += sums.samples;
  if (!goes_on) return false;

  networks_.of(micro_).synchronise_statistics(queue_);
  const auto check_test_loss = [&](double loss) {
    guard_.check("loss of the test set after step " + std::to_string(progress_.steps), loss, learning_rate(optimiser_));
  };
  TestResult test;
  with_average([&] { test = source_.test(networks_, queue_, micro_, check_test_loss); });
  report_.epochs.push_back({sums.loss / static_cast<double>(sums.steps), test.accuracy, test.loss, test.metrics});
  if (observer_) {
    observer_->after_epoch(epoch + 1, epochs_, report_.epochs.back(), static_cast<double>(sums.samples) / sums.seconds);
  }
  observe_epoch(report_.epochs.back().test_loss.value_or(report_.epochs.back().loss));
  return !save_if_due();
}

template <class T>
void Training<T>::finish_update() {
  if (options_.update.loss_scaling && !parameters_.adapt_loss_scale(queue_)) {
    --progress_.updates;
    const LossScale& scale = parameters_.loss_scale_state();
    if (scale.skipped < most_skipped_updates || options_.allow_nonfinite) return;
    throw NotFinite("aloni::nn::train", "gradients of the last " + std::to_string(scale.skipped) + " steps",
                    "NaN or infinite, with a loss scale of " + std::to_string(scale.value),
                    "finite numbers; take a smaller learning rate, clip the gradients, or compute in float");
  }
  if (average_) average_->add(queue_.space(), progress_.updates);
}

template <class T>
void Training<T>::observe_epoch(double loss) {
  observe(options_.schedule, plateau_, loss);
  if (observe(options_.early_stop, early_stop_, loss)) ended_ = 1;
}

template <class T>
auto Training<T>::sums_of(int epoch) const -> Epoch {
  Epoch sums;
  for (std::int64_t step = epoch * steps_per_epoch_; step < progress_.steps; ++step, ++sums.steps)
    sums.loss += report_.losses[static_cast<std::size_t>(step)];
  return sums;
}

template <class T>
void Training<T>::run_step(Epoch& epoch, Index first, Index samples) {
  const std::int64_t step = progress_.steps;
  StepTimes* const times = timed_.of(step);
  const auto start = Clock::now();
  const std::int64_t timed_from = times ? trace_now() : 0;
  // The first step may set up what later ones use.
  const std::int64_t counted_step = steps_per_epoch_ > 2 && total_steps_ - report_.resumed_at > 1 ? 1 : 0;
  const std::optional<Sent> sent_before =
      step == report_.resumed_at + counted_step ? std::optional<Sent>(comm_) : std::nullopt;
  const double previous_rate = learning_rate(optimiser_);
  schedule_learning_rate();
  const StepResult result = train_and_update(first, samples, times);
  if (sent_before) {
    const Sent sent(comm_);
    report_.bytes_sent = sent.bytes - sent_before->bytes;
    report_.messages = sent.messages - sent_before->messages;
  }
  ++progress_.steps;
  // This loss is that of the parameters before the update.
  guard_.check("loss of step " + std::to_string(progress_.steps), result.loss, previous_rate);
  if (times)
    times->add(StepTimes::Span{StepTimes::Row::step, "step " + std::to_string(step + 1), timed_from, trace_now()});
  const double seconds = seconds_since(start);
  // A timed step takes longer. On a device it takes far longer: each node waits for its queue.
  (times ? timed_step_seconds_ : step_seconds_).push_back(seconds);
  epoch.seconds += seconds;
  timed_.after(comm_, step);
  report_.losses.push_back(result.loss);
  epoch.loss += result.loss;
  epoch.samples += samples;
  ++epoch.steps;
  if (options_.check_replicas > 0 && progress_.steps % options_.check_replicas == 0) {
    parameters_.check_replicas(comm_, queue_, "aloni::nn::train: after step " + std::to_string(progress_.steps));
  }
  if (observer_)
    observer_->after_step({progress_.steps, total_steps_, result.loss, learning_rate(optimiser_), seconds});
}

template <class T>
template <class F>
auto Training<T>::with_batch(Index first, Index samples, StepTimes* times, const F& train) {
  Network<T, Exec>& network = networks_.of(samples);
  if (times) network.record_times(times);
  {
    const TimedSpan span(times, StepTimes::Row::input, "mini-batch");
    source_.fill(queue_, first, samples, network);
    if (times) queue_.fence("aloni::nn::train: the time of the input ends");
  }
  const auto result = train(network);
  if (times) network.record_times(nullptr);  // the network also evaluates
  return result;
}

template <class T>
StepResult Training<T>::train_and_update(Index first, Index samples, StepTimes* times) {
  const Index last = first + (samples - 1) / micro_ * micro_;  // micro-batch
  for (; first < last; first += micro_, samples -= micro_) {
    with_batch(first, micro_, times, [&](Network<T, Exec>& network) {
      record_factors(network, micro_);
      network.add_gradients(queue_);
      return 0;
    });
  }
  return with_batch(first, samples, times, [&](Network<T, Exec>& network) {
    if (kfac_) {
      record_factors(network, samples);
      const StepResult result = network.train_step(queue_);
      update(network, times);
      return result;
    }
    if (!partial_) {
      const StepResult result = network.train_step(queue_, optimiser_, ++progress_.updates);
      finish_update();
      return result;
    }
    const StepResult result = network.train_step(queue_, &*partial_);
    update(network, times);
    return result;
  });
}

/// The update by the present gradients, apart from the graph of a step.
template <class T>
void Training<T>::update(Network<T, Exec>& network, StepTimes* times) {
  const auto timing = network.stopwatch().measure(Stopwatch::Phase::compute);
  const TimedSpan span(times, StepTimes::Row::compute, "update");
  ++progress_.updates;
  if (kfac_) kfac_->precondition(queue_, learning_rate(optimiser_), progress_.updates);
  parameters_.update(queue_, optimiser_, progress_.updates);
  finish_update();
  if (times) queue_.fence("aloni::nn::train: the time of the update ends");
}

template <class T>
void Training<T>::record_factors(Network<T, Exec>& network, Index samples) {
  if (kfac_) network.record_factors(kfac_->begin(samples, progress_.updates + 1));
}

template <class T>
void Training<T>::schedule_learning_rate() {
  set_learning_rate(optimiser_, learning_rate(options_.optimiser) *
                                    factor(options_.schedule, progress_.steps, total_steps_, plateau_));
}

template <class T>
void Training<T>::update_by_late_gradients() {
  if (!partial_) return;
  const auto rest = Kokkos::create_mirror_view(parameters_.gradients());
  if (partial_->flush(std::span<Parameter>(rest.data(), rest.extent(0))) == 0) return;
  Kokkos::deep_copy(queue_.space(), parameters_.gradients(), rest);
  parameters_.update(queue_, optimiser_, ++progress_.updates);
  finish_update();
  queue_.fence("aloni::nn::train: the host's gradients are released");
}

template <class T>
void Training<T>::finish_report() {
  if (step_seconds_.empty()) step_seconds_ = timed_step_seconds_;
  if (!step_seconds_.empty()) {
    report_.step_seconds = TimedSteps::median_after_warm_up(step_seconds_);
    report_.samples_per_second = static_cast<double>(trained_) / train_seconds_;
  }
  report_.peak_memory_bytes = maximum(static_cast<std::uint64_t>(peak_memory_bytes()));
  report_.memory_of_all_ranks_bytes =
      static_cast<std::uint64_t>(comm_.all_reduce(proportional_memory_bytes(), comm::Reduction::sum));
  report_.bytes_sent = maximum(report_.bytes_sent);
  report_.messages = maximum(report_.messages);
  report_.times = timed_.times();
  if (options_.update.loss_scaling) report_.loss_scale = parameters_.loss_scale_state();
  if (!network_options_.recompute.empty()) report_.recomputed = to_string(network_options_.recompute, description_);
  if (!network_options_.offload.empty()) report_.offloaded = offloading_text(network_options_.offload, description_);
}

template <class T>
std::uint64_t Training<T>::maximum(std::uint64_t value) const {
  return static_cast<std::uint64_t>(comm_.all_reduce(static_cast<std::int64_t>(value), comm::Reduction::max));
}

// The rest of the members follows from these two; training_state.cpp has some of its own.
#define INSTANTIATE(T, Exec)                                                                                        \
  template Training<T>::Training(const comm::Communicator&, const NetworkDescription&, const Strategy&, Source<T>&, \
                                 const TrainOptions&, TrainObserver*);                                              \
  template TrainReport Training<T>::run();
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
