#include <aloni/nn/trainer.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/memory.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/data/batch.hpp>
#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/network.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::nn {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check(bool good, const char* argument, const std::string& value, const char* expectation) {
  if (!good) throw InvalidArgument("aloni::nn::train", argument, value, expectation);
}

void check_arguments(const NetworkDescription& network, const LabelledImages& train_set, const LabelledImages& test_set,
                     const TrainOptions& o) {
  check(o.batch >= 1, "batch", std::to_string(o.batch), "at least 1 sample");
  check(o.epochs >= 0, "epochs", std::to_string(o.epochs), "at least 0");
  check(o.steps >= 0, "steps", std::to_string(o.steps), "at least 0 (0: all steps of the epochs)");
  check(std::isfinite(o.learning_rate) && o.learning_rate >= 0, "learning rate", std::to_string(o.learning_rate),
        "a finite number ≥ 0");
  check(std::isfinite(o.momentum) && o.momentum >= 0 && o.momentum < 1, "momentum", std::to_string(o.momentum),
        "a number in [0, 1)");
  check(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "weight decay", std::to_string(o.weight_decay),
        "a finite number ≥ 0");
  check(o.shift >= 0, "shift", std::to_string(o.shift), "at least 0 pixels");
  check(train_set.size() > 0, "training set", "0 images", "at least 1");
  check(test_set.size() > 0, "test set", "0 images", "at least 1");
  for (const LabelledImages* set : {&train_set, &test_set}) {
    check(set->image == network.input, "image", views::to_string(set->image), "the extents of the network's input");
  }
  if (network.loss != Loss::softmax_cross_entropy) {
    throw Unsupported(
        "aloni::nn::train", "loss", "binary_cross_entropy",
        "softmax_cross_entropy, as labelled images have class labels; Network::train_step has both losses");
  }
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

/// One network per size of mini-batch: the full size, and the rest at the end of a set.
template <class T>
class Networks {
 public:
  using Exec = execution_space_t<T>;
  using AllParameters = Parameters<parameter_type_t<T>, Exec>;

  Networks(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& description,
           const Strategy& strategy, AllParameters& parameters, local::ConvolutionBackend backend)
      : comm_(comm), queue_(queue), description_(description), strategy_(strategy), parameters_(parameters) {
    options_.backend = backend;
  }

  Network<T, Exec>& of(Index samples) {
    auto& network = networks_[samples];
    if (!network) {
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
  std::map<Index, std::unique_ptr<Network<T, Exec>>> networks_;
};

void add_difference(TimeReport& sum, const TimeReport& before, const TimeReport& after) {
  sum.compute += after.compute - before.compute;
  sum.halo += after.halo - before.halo;
  sum.collective += after.collective - before.collective;
  sum.input += after.input - before.input;
}

template <class T>
double accuracy(Networks<T>& networks, const Queue<execution_space_t<T>>& queue, const LabelledImages& set,
                Index batch) {
  std::vector<Index> order(set.labels.size());
  std::iota(order.begin(), order.end(), Index{0});
  Index correct = 0;
  for (Index first = 0; first < set.size(); first += batch) {
    const Index samples = std::min(batch, set.size() - first);
    auto& network = networks.of(samples);
    fill_batch(queue, set, std::span<const Index>(order).subspan(first, samples), network);
    correct += network.evaluate(queue).correct;
  }
  return static_cast<double>(correct) / static_cast<double>(set.size());
}

/// Adds the gradients that were too late for the last step of an epoch.
template <class T, class Exec>
void step_on_late_gradients(const Queue<Exec>& queue, comm::PartialAllReduce<T>& partial,
                            Parameters<T, Exec>& parameters, const SgdOptions& sgd) {
  const auto rest = Kokkos::create_mirror_view(parameters.gradients());
  const int contributions = partial.flush(std::span<T>(rest.data(), rest.extent(0)));
  if (contributions == 0) return;
  Kokkos::deep_copy(queue.space(), parameters.gradients(), rest);
  parameters.sgd(queue, sgd);
  queue.fence("aloni::nn::train: the host's gradients are released");
}

}  // namespace

template <class T>
TrainReport train(const comm::Communicator& comm, const NetworkDescription& description, const Strategy& strategy,
                  const LabelledImages& train_set, const LabelledImages& test_set, const TrainOptions& options,
                  TrainObserver* observer) {
  using Exec = execution_space_t<T>;
  using Parameter = parameter_type_t<T>;
  check_arguments(description, train_set, test_set, options);
  const Queue<Exec> queue;
  // Late gradients require whole parameters on every rank.
  const bool waits_for_all = options.gradients == GradientReduction::all;
  auto parameters = waits_for_all
                        ? Parameters<Parameter, Exec>(comm, queue, description,
                                                      resolve(strategy, description, comm.size()), options.seed)
                        : Parameters<Parameter, Exec>(comm, queue, description, options.seed);
  Networks<T> networks(comm, queue, description, strategy, parameters, options.backend);
  SgdOptions sgd{options.learning_rate, options.momentum, options.weight_decay};

  const Index batch = std::min(options.batch, train_set.size());
  const Index steps_per_epoch = (train_set.size() + batch - 1) / batch;
  const std::int64_t total_steps = options.steps > 0 ? options.steps : options.epochs * steps_per_epoch;
  const int epochs = static_cast<int>((total_steps + steps_per_epoch - 1) / steps_per_epoch);

  TrainReport report;
  std::vector<double> step_seconds;
  std::vector<Index> order(train_set.labels.size());
  std::vector<Shift> shifts;
  double train_seconds = 0;
  Index trained = 0;
  networks.of(batch);  // its set-up is not part of the first step's time
  std::optional<comm::PartialAllReduce<Parameter>> partial;
  if (!waits_for_all) partial.emplace(comm, parameters.gradients().extent(0));
  for (int epoch = 0; epoch < epochs; ++epoch) {
    shuffle(order, options.seed, epoch);
    const TimeReport before = networks.time();
    double loss_sum = 0, epoch_seconds = 0;
    Index epoch_steps = 0, epoch_samples = 0;
    for (Index first = 0; first < train_set.size() && std::ssize(report.losses) < total_steps; first += batch) {
      const Index samples = std::min(batch, train_set.size() - first);
      auto& network = networks.of(samples);
      const auto start = Clock::now();
      const auto chosen = std::span<const Index>(order).subspan(first, samples);
      draw_shifts(shifts, chosen, options, epoch);
      fill_batch(queue, train_set, chosen, network, shifts);
      const StepResult result = network.train_step(queue, partial ? &*partial : nullptr);
      {
        const auto timing = network.stopwatch().measure(Stopwatch::Phase::compute);
        if (options.schedule == LearningRateSchedule::linear) {
          const double done = static_cast<double>(report.losses.size()) / static_cast<double>(total_steps);
          sgd.learning_rate = options.learning_rate * (1 - done);
        }
        parameters.sgd(queue, sgd);
      }
      const double seconds = seconds_since(start);
      step_seconds.push_back(seconds);
      epoch_seconds += seconds;
      report.losses.push_back(result.loss);
      loss_sum += result.loss;
      epoch_samples += samples;
      ++epoch_steps;
      if (observer) observer->after_step(std::ssize(report.losses), total_steps, result.loss, seconds);
    }
    if (partial) step_on_late_gradients(queue, *partial, parameters, sgd);
    add_difference(report.time, before, networks.time());
    train_seconds += epoch_seconds;
    trained += epoch_samples;
    networks.of(batch).synchronise_statistics(queue);
    report.epochs.push_back({loss_sum / static_cast<double>(epoch_steps), accuracy(networks, queue, test_set, batch)});
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
  report.peak_memory_bytes = static_cast<std::uint64_t>(comm.all_reduce(peak_memory_bytes(), comm::Reduction::max));
  return report;
}

#define INSTANTIATE(T, Exec)                                                                           \
  template TrainReport train<T>(const comm::Communicator&, const NetworkDescription&, const Strategy&, \
                                const LabelledImages&, const LabelledImages&, const TrainOptions&, TrainObserver*);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
