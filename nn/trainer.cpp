#include <aloni/nn/trainer.hpp>

#include <aloni/core/comm/trace.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/memory.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/data/batch.hpp>
#include <aloni/nn/data/synthetic.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/detail/replicated.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/step_times.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check(bool good, const char* argument, const std::string& value, const char* expectation) {
  if (!good) throw InvalidArgument("aloni::nn::train", argument, value, expectation);
}

Optimiser optimiser_of(const TrainOptions& o) {
  if (o.optimiser == OptimiserKind::sgd) return SgdOptions{o.learning_rate, o.momentum, o.weight_decay};
  return AdamOptions{o.learning_rate, o.beta1, o.beta2, o.epsilon, o.weight_decay, o.decay};
}

void check_arguments(const TrainOptions& o) {
  check(o.batch >= 1, "batch", std::to_string(o.batch), "at least 1 sample");
  check(o.epochs >= 0, "epochs", std::to_string(o.epochs), "at least 0");
  check(o.steps >= 0, "steps", std::to_string(o.steps), "at least 0 (0: all steps of the epochs)");
  check(std::isfinite(o.learning_rate) && o.learning_rate >= 0, "learning rate", std::to_string(o.learning_rate),
        "a finite number ≥ 0");
  check(optimiser_of(o), 1, "aloni::nn::train");
  check(o.shift >= 0, "shift", std::to_string(o.shift), "at least 0 pixels");
  check(o.timed_steps >= 0, "timed_steps", std::to_string(o.timed_steps), "at least 0 (0: none)");
  check(o.check_replicas >= 0, "check_replicas", std::to_string(o.check_replicas), "at least 0 (0: no check)");
}

void check_arguments(const NetworkDescription& network, const LabelledImages& train_set, const LabelledImages& test_set,
                     const TrainOptions& options) {
  check_arguments(options);
  check(train_set.size() > 0, "training set", "0 images", "at least 1");
  check(test_set.size() > 0, "test set", "0 images", "at least 1");
  for (const LabelledImages* set : {&train_set, &test_set}) {
    check(set->image == network.input, "image", views::to_string(set->image), "the extents of the network's input");
  }
  if (network.loss != Loss::softmax_cross_entropy) {
    throw Unsupported(
        "aloni::nn::train", "loss", name(network.loss),
        "softmax_cross_entropy, as labelled images have class labels; Network::train_step has all losses");
  }
}

/// Throws on all ranks if a rank has passed another argument. Comes before all other checks: an error on some ranks
/// only would leave the others waiting. `sets`: training and test set, or none.
template <class T>
void check_replicated(const comm::Communicator& comm, const NetworkDescription& network, const Strategy& strategy,
                      const std::vector<std::pair<const char*, const LabelledImages*>>& sets,
                      const TrainOptions& options) {
  const auto& [batch, epochs, steps, seed, learning_rate, schedule, momentum, weight_decay, optimiser, beta1, beta2,
               epsilon, decay, shift, backend, gradients, check_replicas, allow_nonfinite, timed_steps] = options;
  comm::ReplicatedValues values;
  values.add("element type", detail::element_name<T>());
  values.add("batch", batch).add("epochs", epochs).add("steps", steps).add("seed", seed);
  values.add("learning rate", learning_rate);
  values.add("schedule", std::string(schedule == LearningRateSchedule::constant ? "constant" : "linear"));
  values.add("momentum", momentum).add("weight decay", weight_decay).add("shift", shift);
  values.add("optimiser", std::string(name(optimiser))).add("beta1", beta1).add("beta2", beta2);
  values.add("epsilon", epsilon).add("decay", std::string(name(decay)));
  values.add("backend", std::string(local::name(backend)));
  values.add("gradients", std::string(gradients == GradientReduction::all ? "all" : "majority"));
  values.add("check_replicas", check_replicas).add("allow_nonfinite", allow_nonfinite);
  values.add("timed_steps", timed_steps);
  // The images determine the input of most networks. Their number is the better explanation.
  for (const auto& [name, set] : sets) detail::add_to(values, name, *set);
  detail::add_to(values, network);
  detail::add_to(values, strategy);
  comm::check_equal(comm, "aloni::nn::train", values);
}

/// The order of samples in an epoch (Fisher and Yates), equal on all ranks. Streams below 2^32 are used by the
/// parameters.
void shuffle(std::vector<Index>& order, std::uint64_t seed, std::uint64_t epoch) {
  std::iota(order.begin(), order.end(), Index{0});
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[random::integer(seed, (std::uint64_t{1} << 32) + epoch, i) % i]);
  }
}

/// Draws the shift of each sample of a mini-batch from its position in the training set and the epoch. Equal on all
/// ranks.
void draw_shifts(std::vector<Shift>& shifts, std::span<const Index> chosen, const TrainOptions& options,
                 std::uint64_t epoch) {
  if (options.shift == 0) return;
  const std::uint64_t choices = 2 * static_cast<std::uint64_t>(options.shift) + 1;
  shifts.clear();
  for (const Index sample : chosen) {
    const std::uint64_t bits =
        random::integer(options.seed, (std::uint64_t{1} << 33) + epoch, static_cast<std::uint64_t>(sample));
    shifts.push_back({static_cast<int>((bits & 0xffffffff) % choices) - options.shift,
                      static_cast<int>((bits >> 32) % choices) - options.shift});
  }
}

/// The steps of a training whose nodes are timed.
class TimedSteps {
 public:
  TimedSteps(std::int64_t wanted, std::int64_t total)
      : count_(std::min(wanted, total)), first_(std::min(warm_up, total - count_)) {
    if (count_ > 0) times_ = std::make_shared<StepTimes>();
  }

  /// Null if step `step`, counted from 0, is not timed.
  StepTimes* of(std::int64_t step) const { return step >= first_ && step < first_ + count_ ? times_.get() : nullptr; }
  /// After each step. Measures the clock offset right after the last timed step: clocks drift. Collective.
  void after(const comm::Communicator& comm, std::int64_t step) const {
    if (times_ && step == first_ + count_ - 1) times_->set_clock_offset(comm::clock_offset(comm));
  }
  const std::shared_ptr<StepTimes>& times() const { return times_; }

 private:
  static constexpr std::int64_t warm_up = 5;

  std::int64_t count_, first_;
  std::shared_ptr<StepTimes> times_;
};

/// One network per size of mini-batch: the full size, and the rest at the end of a set.
template <class T>
class Networks {
 public:
  using Exec = execution_space_t<T>;
  using AllParameters = Parameters<parameter_type_t<T>, Exec>;

  Networks(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& description,
           const Strategy& strategy, AllParameters& parameters, const NetworkOptions& options, std::uint64_t seed)
      : comm_(comm),
        queue_(queue),
        description_(description),
        strategy_(strategy),
        parameters_(parameters),
        options_(options),
        seed_(seed) {}

  Network<T, Exec>& of(Index samples) {
    auto& network = networks_[samples];
    if (!network) {
      // Each network counts its own steps: another seed gives it other masks of dropout layers.
      options_.dropout_seed = random::integer(seed_, std::uint64_t{1} << 34, static_cast<std::uint64_t>(samples));
      network =
          std::make_unique<Network<T, Exec>>(comm_, queue_, description_, strategy_, samples, parameters_, options_);
    }
    return *network;
  }

  TimeReport time() const {
    TimeReport sum;
    for (const auto& [samples, network] : networks_) {
      const Stopwatch& s = network->stopwatch();
      sum.compute += s.seconds(Stopwatch::Phase::compute);
      sum.halo += s.seconds(Stopwatch::Phase::halo);
      sum.collective += s.seconds(Stopwatch::Phase::collective);
      sum.input += s.seconds(Stopwatch::Phase::input);
    }
    return sum;
  }

 private:
  const comm::Communicator& comm_;
  const Queue<Exec>& queue_;
  const NetworkDescription& description_;
  const Strategy& strategy_;
  AllParameters& parameters_;
  NetworkOptions options_;
  std::uint64_t seed_;
  std::map<Index, std::unique_ptr<Network<T, Exec>>> networks_;
};

void add_difference(TimeReport& sum, const TimeReport& before, const TimeReport& after) {
  sum.compute += after.compute - before.compute;
  sum.halo += after.halo - before.halo;
  sum.collective += after.collective - before.collective;
  sum.input += after.input - before.input;
}

/// Stops a training whose loss is NaN or infinite. All ranks have the same losses, so all throw.
class LossGuard {
 public:
  explicit LossGuard(bool allows) : allows_(allows) {}

  void check(const std::string& name, double loss, double learning_rate) {
    if (std::isfinite(loss)) {
      last_ = loss;
      last_name_ = name;
    } else if (!allows_) {
      const std::string before =
          last_name_.empty() ? "no loss before it" : "last finite loss " + text(last_) + ", the " + last_name_;
      throw NotFinite("aloni::nn::train", name, std::isnan(loss) ? "NaN" : text(loss),
                      "a finite number (learning rate " + text(learning_rate) + "; " + before +
                          "); take a smaller learning rate, or allow_nonfinite to go on");
    }
  }

 private:
  static std::string text(double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.6g", value);
    return digits;
  }

  bool allows_;
  double last_ = 0;
  std::string last_name_;
};

template <class T>
double accuracy(Networks<T>& networks, const Queue<execution_space_t<T>>& queue, const LabelledImages& set, Index batch,
                const std::function<void(double loss)>& check_loss) {
  std::vector<Index> order(set.labels.size());
  std::iota(order.begin(), order.end(), Index{0});
  Index correct = 0;
  for (Index first = 0; first < set.size(); first += batch) {
    const Index samples = std::min(batch, set.size() - first);
    auto& network = networks.of(samples);
    fill_batch(queue, set, std::span<const Index>(order).subspan(first, samples), network);
    const StepResult result = network.evaluate(queue);
    check_loss(result.loss);
    correct += result.correct;
  }
  return static_cast<double>(correct) / static_cast<double>(set.size());
}

/// Where a training takes its mini-batches from.
template <class T>
class Source {
 public:
  using Exec = execution_space_t<T>;
  virtual ~Source() = default;
  /// Samples of one epoch.
  virtual Index size() const = 0;
  virtual void begin_epoch(int epoch) = 0;
  /// The samples first … first + samples - 1 of the epoch. Asynchronous on the queue.
  virtual void fill(const Queue<Exec>& queue, Index first, Index samples, Network<T, Exec>& network) = 0;
  /// Accuracy on the test set, if there is one. `check_loss` gets each loss. Collective.
  virtual std::optional<double> test(Networks<T>& networks, const Queue<Exec>& queue, Index batch,
                                     const std::function<void(double)>& check_loss) = 0;
};

template <class T>
class ImageSource : public Source<T> {
 public:
  using typename Source<T>::Exec;
  ImageSource(const LabelledImages& train_set, const LabelledImages& test_set, const TrainOptions& options)
      : train_set_(train_set), test_set_(test_set), options_(options), order_(train_set.labels.size()) {}

  Index size() const override { return train_set_.size(); }
  void begin_epoch(int epoch) override {
    epoch_ = static_cast<std::uint64_t>(epoch);
    shuffle(order_, options_.seed, epoch_);
  }
  void fill(const Queue<Exec>& queue, Index first, Index samples, Network<T, Exec>& network) override {
    const auto chosen = std::span<const Index>(order_).subspan(first, samples);
    draw_shifts(shifts_, chosen, options_, epoch_);
    fill_batch(queue, train_set_, chosen, network, shifts_);
  }
  std::optional<double> test(Networks<T>& networks, const Queue<Exec>& queue, Index batch,
                             const std::function<void(double)>& check_loss) override {
    return accuracy(networks, queue, test_set_, batch, check_loss);
  }

 private:
  const LabelledImages &train_set_, &test_set_;
  const TrainOptions& options_;
  std::vector<Index> order_;
  std::vector<Shift> shifts_;
  std::uint64_t epoch_ = 0;
};

/// One epoch of `steps` full mini-batches.
template <class T>
class SyntheticSource : public Source<T> {
 public:
  using typename Source<T>::Exec;
  SyntheticSource(const NetworkDescription& network, const TrainOptions& options)
      : network_(network), options_(options) {}

  Index size() const override { return options_.steps * options_.batch; }
  void begin_epoch(int) override {}
  void fill(const Queue<Exec>& queue, Index first, Index, Network<T, Exec>& network) override {
    fill_synthetic(queue, network_, options_.seed, static_cast<std::uint64_t>(first / options_.batch), network);
  }
  std::optional<double> test(Networks<T>&, const Queue<Exec>&, Index, const std::function<void(double)>&) override {
    return std::nullopt;
  }

 private:
  const NetworkDescription& network_;
  const TrainOptions& options_;
};

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

std::uint64_t maximum(const comm::Communicator& comm, std::uint64_t value) {
  return static_cast<std::uint64_t>(comm.all_reduce(static_cast<std::int64_t>(value), comm::Reduction::max));
}

/// Adds the gradients that were too late for the last step of an epoch.
template <class T, class Exec>
void step_on_late_gradients(const Queue<Exec>& queue, comm::PartialAllReduce<T>& partial,
                            Parameters<T, Exec>& parameters, const Optimiser& optimiser, std::int64_t& updates) {
  const auto rest = Kokkos::create_mirror_view(parameters.gradients());
  const int contributions = partial.flush(std::span<T>(rest.data(), rest.extent(0)));
  if (contributions == 0) return;
  Kokkos::deep_copy(queue.space(), parameters.gradients(), rest);
  parameters.update(queue, optimiser, ++updates);
  queue.fence("aloni::nn::train: the host's gradients are released");
}

template <class T>
TrainReport run(const comm::Communicator& comm, const NetworkDescription& description, const Strategy& strategy,
                Source<T>& source, const TrainOptions& options, TrainObserver* observer) {
  using Exec = execution_space_t<T>;
  using Parameter = parameter_type_t<T>;
  const Queue<Exec> queue;
  // Late gradients require whole parameters on every rank.
  const bool waits_for_all = options.gradients == GradientReduction::all;
  auto parameters =
      waits_for_all ? Parameters<Parameter, Exec>(comm, queue, description, resolve(strategy, description, comm.size()),
                                                  options.seed, ParameterUse::training, options.optimiser)
                    : Parameters<Parameter, Exec>(comm, queue, description, options.seed, ParameterUse::training,
                                                  options.optimiser);
  parameters.set_writes(ParameterWrites::announced);  // only the library writes them here
  Networks<T> networks(comm, queue, description, strategy, parameters,
                       {.backend = options.backend, .update = waits_for_all}, options.seed);
  Optimiser optimiser = optimiser_of(options);
  std::int64_t updates = 0;
  double learning_rate = options.learning_rate;  // of the last update

  const Index batch = std::min(options.batch, source.size());
  const Index steps_per_epoch = (source.size() + batch - 1) / batch;
  const std::int64_t total_steps = options.steps > 0 ? options.steps : options.epochs * steps_per_epoch;
  const int epochs = static_cast<int>((total_steps + steps_per_epoch - 1) / steps_per_epoch);

  TrainReport report;
  LossGuard guard(options.allow_nonfinite);
  std::vector<double> step_seconds;
  double train_seconds = 0;
  Index trained = 0;
  const auto resident = static_cast<std::uint64_t>(resident_memory_bytes());
  // Its set-up is not part of the first step's time.
  report.predicted_memory_bytes =
      maximum(comm, resident + static_cast<std::uint64_t>(networks.of(batch).planned_resident_bytes()));
  // The first step may set up what later ones use.
  const std::int64_t counted_step = steps_per_epoch > 2 && total_steps > 1 ? 1 : 0;
  const TimedSteps timed(options.timed_steps, total_steps);
  networks.of(batch).record_times(timed.times().get());  // nor is the pricing of its nodes part of a timed step
  networks.of(batch).record_times(nullptr);
  std::optional<comm::PartialAllReduce<Parameter>> partial;
  if (!waits_for_all) partial.emplace(comm, parameters.gradients().extent(0));
  for (int epoch = 0; epoch < epochs; ++epoch) {
    source.begin_epoch(epoch);
    const TimeReport before = networks.time();
    double loss_sum = 0, epoch_seconds = 0;
    Index epoch_steps = 0, epoch_samples = 0;
    for (Index first = 0; first < source.size() && std::ssize(report.losses) < total_steps; first += batch) {
      const Index samples = std::min(batch, source.size() - first);
      auto& network = networks.of(samples);
      const auto step = std::ssize(report.losses);
      StepTimes* const times = timed.of(step);
      if (times) network.record_times(times);
      const auto start = Clock::now();
      const std::int64_t timed_from = times ? trace_now() : 0;
      {
        const TimedSpan span(times, StepTimes::Row::input, "mini-batch");
        source.fill(queue, first, samples, network);
        if (times) queue.fence("aloni::nn::train: the time of the input ends");
      }
      const std::optional<Sent> sent_before = step == counted_step ? std::optional<Sent>(comm) : std::nullopt;
      const double done = static_cast<double>(report.losses.size()) / static_cast<double>(total_steps);
      const double next_rate =
          options.schedule == LearningRateSchedule::linear ? options.learning_rate * (1 - done) : learning_rate;
      std::visit([&](auto& o) { o.learning_rate = next_rate; }, optimiser);
      const StepResult result =
          partial ? network.train_step(queue, &*partial) : network.train_step(queue, optimiser, ++updates);
      if (sent_before) {
        const Sent sent(comm);
        report.bytes_sent = sent.bytes - sent_before->bytes;
        report.messages = sent.messages - sent_before->messages;
      }
      guard.check("loss of step " + std::to_string(report.losses.size() + 1), result.loss, learning_rate);
      if (partial) {
        const auto timing = network.stopwatch().measure(Stopwatch::Phase::compute);
        const TimedSpan span(times, StepTimes::Row::compute, "update");
        parameters.update(queue, optimiser, ++updates);
        if (times) queue.fence("aloni::nn::train: the time of the update ends");
      }
      learning_rate = next_rate;
      if (times) {
        times->add(StepTimes::Span{StepTimes::Row::step, "step " + std::to_string(step + 1), timed_from, trace_now()});
        network.record_times(nullptr);  // the network also evaluates
      }
      const double seconds = seconds_since(start);
      step_seconds.push_back(seconds);
      epoch_seconds += seconds;
      timed.after(comm, step);
      report.losses.push_back(result.loss);
      loss_sum += result.loss;
      epoch_samples += samples;
      ++epoch_steps;
      if (options.check_replicas > 0 && std::ssize(report.losses) % options.check_replicas == 0) {
        parameters.check_replicas(comm, queue, "aloni::nn::train: after step " + std::to_string(report.losses.size()));
      }
      if (observer) observer->after_step(std::ssize(report.losses), total_steps, result.loss, seconds);
    }
    if (partial) step_on_late_gradients(queue, *partial, parameters, optimiser, updates);
    add_difference(report.time, before, networks.time());
    train_seconds += epoch_seconds;
    trained += epoch_samples;
    networks.of(batch).synchronise_statistics(queue);
    const auto check_test_loss = [&](double loss) {
      guard.check("loss of the test set after step " + std::to_string(report.losses.size()), loss, learning_rate);
    };
    report.epochs.push_back(
        {loss_sum / static_cast<double>(epoch_steps), source.test(networks, queue, batch, check_test_loss)});
    if (observer) {
      observer->after_epoch(epoch + 1, epochs, report.epochs.back(),
                            static_cast<double>(epoch_samples) / epoch_seconds);
    }
  }
  if (!step_seconds.empty()) {
    const auto middle = step_seconds.begin() + std::ssize(step_seconds) / 2;
    std::nth_element(step_seconds.begin(), middle, step_seconds.end());
    report.step_seconds = *middle;
    report.samples_per_second = static_cast<double>(trained) / train_seconds;
  }
  report.peak_memory_bytes = maximum(comm, static_cast<std::uint64_t>(peak_memory_bytes()));
  report.bytes_sent = maximum(comm, report.bytes_sent);
  report.messages = maximum(comm, report.messages);
  report.times = timed.times();
  return report;
}

}  // namespace

template <class T>
TrainReport train(const comm::Communicator& comm, const NetworkDescription& description, const Strategy& strategy,
                  const LabelledImages& train_set, const LabelledImages& test_set, const TrainOptions& options,
                  TrainObserver* observer) {
  check_replicated<T>(comm, description, strategy, {{"training set", &train_set}, {"test set", &test_set}}, options);
  check_arguments(description, train_set, test_set, options);
  ImageSource<T> source(train_set, test_set, options);
  return run<T>(comm, description, strategy, source, options, observer);
}

template <class T>
TrainReport train_on_synthetic_data(const comm::Communicator& comm, const NetworkDescription& description,
                                    const Strategy& strategy, const TrainOptions& options, TrainObserver* observer) {
  check_replicated<T>(comm, description, strategy, {}, options);
  check_arguments(options);
  check(options.steps > 0, "steps", std::to_string(options.steps), "at least 1: made-up data have no end");
  SyntheticSource<T> source(description, options);
  return run<T>(comm, description, strategy, source, options, observer);
}

#define INSTANTIATE(T, Exec)                                                                                        \
  template TrainReport train<T>(const comm::Communicator&, const NetworkDescription&, const Strategy&,              \
                                const LabelledImages&, const LabelledImages&, const TrainOptions&, TrainObserver*); \
  template TrainReport train_on_synthetic_data<T>(const comm::Communicator&, const NetworkDescription&,             \
                                                  const Strategy&, const TrainOptions&, TrainObserver*);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
