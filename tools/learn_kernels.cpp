#include <aloni/tools/learn_kernels.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/host_random.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/nn/data/memory_array.hpp>
#include <aloni/nn/safetensors.hpp>
#include <aloni/nn/trainer.hpp>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <span>
#include <system_error>
#include <utility>

namespace aloni::tools {

namespace {

using model::KernelCall;
using model::LearnedKernel;

constexpr int hidden_layers = 5;
constexpr Index hidden_width = 50;

/// Removes the file at the end of the scope.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& folder) {
    static std::atomic<int> number = 0;
    const std::filesystem::path place =
        folder.empty() ? std::filesystem::temp_directory_path() : std::filesystem::path(folder);
    path_ = place / ("learned-kernel-" + std::to_string(getpid()) + "-" + std::to_string(number++) + ".safetensors");
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile() {
    std::error_code ignored;  // the file may not have been written
    std::filesystem::remove(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void check_times(const std::vector<KernelTime>& times) {
  constexpr const char* operation = "aloni::tools::learn_kernel";
  if (times.size() < least_times_to_learn)
    throw InvalidArgument(operation, "times", std::to_string(times.size()),
                          "at least " + std::to_string(least_times_to_learn) + " times");
  for (const KernelTime& time : times) {
    if (time.call.kind != times.front().call.kind || time.call.type != times.front().call.type)
      throw InvalidArgument(operation, "times", std::string(name(time.call.kind)),
                            "times of one kind and one type of elements");
    if (!(time.seconds > 0))
      throw InvalidArgument(operation, "seconds", std::to_string(time.seconds), "more than 0 seconds");
  }
}

/// A random order that depends on the seed alone.
std::vector<std::size_t> shuffled(std::size_t size, std::uint64_t seed) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = size; i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random::host_uniform(seed, 0, i) * static_cast<double>(i))]);
  return order;
}

struct Moments {
  double mean = 0, deviation = 1;
};
Moments moments_of(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  Moments m{std::accumulate(values.begin(), values.end(), 0.0) / n};
  double squares = 0;
  for (const double value : values) squares += (value - m.mean) * (value - m.mean);
  m.deviation = std::sqrt(squares / n);
  if (m.deviation < 1e-9) m.deviation = 1;  // a feature that never changes
  return m;
}

/// The bound of the model: rates that only a tenth of the problems exceeds, and the time of the shortest one.
void set_bound(LearnedKernel& learned, const std::vector<KernelTime>& times, std::span<const std::size_t> trained) {
  std::vector<double> per_flop, per_byte, seconds;
  for (const std::size_t i : trained) {
    const KernelTime& time = times[i];
    if (time.call.flops > 0) per_flop.push_back(time.seconds / time.call.flops);
    if (time.call.bytes > 0) per_byte.push_back(time.seconds / time.call.bytes);
    seconds.push_back(time.seconds);
  }
  const auto tenth = [](std::vector<double>& all) {
    std::ranges::sort(all);
    return all.empty() ? 0 : all[all.size() / 10];
  };
  learned.per_flop = tenth(per_flop);
  learned.per_byte = tenth(per_byte);
  learned.per_call = std::ranges::min(seconds) / 2;
}

/// The normalisation of the model. Limits are those of all times: a problem that was left out is no extrapolation.
void set_scales(LearnedKernel& learned, const std::vector<KernelTime>& times, std::span<const std::size_t> trained) {
  const std::size_t features = times.front().call.features.size();
  for (std::size_t f = 0; f < features; ++f) {
    std::vector<double> values;
    for (const std::size_t i : trained) values.push_back(std::log1p(times[i].call.features[f]));
    const Moments m = moments_of(values);
    learned.mean.push_back(m.mean);
    learned.deviation.push_back(m.deviation);
    const auto feature = [&](const KernelTime& time) { return time.call.features[f]; };
    const auto [least, largest] = std::ranges::minmax(times, {}, feature);
    learned.least.push_back(feature(least));
    learned.largest.push_back(feature(largest));
  }
  std::vector<double> factors;
  for (const std::size_t i : trained) factors.push_back(std::log(times[i].seconds / bound_of(learned, times[i].call)));
  const Moments m = moments_of(factors);
  learned.seconds_mean = m.mean;
  learned.seconds_deviation = m.deviation;
}

nn::Dataset set_of(const LearnedKernel& learned, const std::vector<KernelTime>& times,
                   std::span<const std::size_t> chosen) {
  const std::size_t features = learned.mean.size();
  std::vector<float> inputs, targets;
  for (const std::size_t i : chosen) {
    for (std::size_t f = 0; f < features; ++f)
      inputs.push_back(
          static_cast<float>((std::log1p(times[i].call.features[f]) - learned.mean[f]) / learned.deviation[f]));
    targets.push_back(
        static_cast<float>((std::log(times[i].seconds / bound_of(learned, times[i].call)) - learned.seconds_mean) /
                           learned.seconds_deviation));
  }
  return {.inputs = nn::memory_array("features", std::move(inputs),
                                     views::make_extents(1, {1, 1}, static_cast<Index>(features))),
          .targets = nn::memory_array("seconds", std::move(targets), views::make_extents(1, {1, 1}, 1)),
          .target_kind = nn::TargetKind::elements};
}

std::string layer_name(int layer) { return "dense" + std::to_string(layer); }

nn::NetworkDescription network_for(Index features) {
  nn::NetworkDescription net;
  net.input = views::make_extents(1, {1, 1}, features);
  net.loss = nn::Loss::mean_squared_error;
  std::string last = "flat";
  net.layers.push_back({last, nn::Flatten{}, {"input"}});
  for (int layer = 0; layer < hidden_layers; ++layer) {
    net.layers.push_back({layer_name(layer), nn::Dense{.features = hidden_width}, {last}});
    last = "relu" + std::to_string(layer);
    net.layers.push_back({last, nn::Relu{}, {layer_name(layer)}});
  }
  net.layers.push_back({layer_name(hidden_layers), nn::Dense{.features = 1}, {last}});
  return net;
}

std::vector<float> tensor(const nn::Safetensors& file, const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(file.entries().at(name).bytes) / sizeof(float));
  file.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

model::Perceptron train_network(const comm::Communicator& comm, const LearnedKernel& learned,
                                const std::vector<KernelTime>& times, std::span<const std::size_t> trained,
                                std::span<const std::size_t> validated, const LearnOptions& options,
                                std::uint64_t seed) {
  const ScratchFile file(options.scratch_folder);
  nn::TrainOptions recipe;
  recipe.batch = std::min<Index>(options.batch, static_cast<Index>(trained.size()));
  recipe.epochs = options.most_epochs;
  recipe.seed = seed;
  recipe.optimiser = nn::AdamOptions{.learning_rate = 1e-3};
  recipe.schedule = {.schedule = nn::PlateauSchedule{.factor = 0.1, .patience = 15}};
  recipe.early_stop = {.patience = 20};
  recipe.export_weights = file.path();
  const auto features = static_cast<Index>(learned.mean.size());
  nn::train<float>(comm, network_for(features), nn::Strategy::uniform({}), set_of(learned, times, trained),
                   set_of(learned, times, validated), recipe);

  model::Perceptron network;
  const nn::Safetensors weights(io::real_file_system(), file.path());
  for (int layer = 0; layer <= hidden_layers; ++layer) {
    model::DenseLayer dense{.inputs = static_cast<int>(layer == 0 ? features : hidden_width),
                            .outputs = static_cast<int>(layer == hidden_layers ? 1 : hidden_width),
                            .weights = tensor(weights, layer_name(layer) + ".weight"),
                            .biases = tensor(weights, layer_name(layer) + ".bias")};
    network.layers.push_back(std::move(dense));
  }
  return network;
}

}  // namespace

LearnedKernel learn_kernel(const comm::Communicator& comm, const std::vector<KernelTime>& times,
                           const LearnOptions& options) {
  check_times(times);
  const std::vector<std::size_t> order = shuffled(times.size(), options.seed);
  const std::size_t kept = times.size() * 4 / 5, trained = kept * 4 / 5;
  const std::span all(order);
  LearnedKernel learned{.kind = times.front().call.kind,
                        .type = times.front().call.type,
                        .ranks_per_node = options.ranks_per_node,
                        .threads_per_rank = options.threads_per_rank};
  set_bound(learned, times, all.first(kept));
  set_scales(learned, times, all.first(kept));

  std::vector<std::size_t> parts(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept));
  for (int network = 0; network < options.networks; ++network) {
    learned.networks.push_back(train_network(comm, learned, times, std::span(parts).first(trained),
                                             std::span(parts).subspan(trained), options,
                                             options.seed + static_cast<std::uint64_t>(network)));
    // The next fifth comes last, where the networks find their validation set.
    std::ranges::rotate(parts, parts.end() - static_cast<std::ptrdiff_t>(kept - trained));
  }
  double error = 0;
  for (const std::size_t i : all.subspan(kept))
    error += std::abs(predict(learned, times[i].call) / times[i].seconds - 1);
  learned.relative_error = error / static_cast<double>(times.size() - kept);
  return learned;
}

}  // namespace aloni::tools
