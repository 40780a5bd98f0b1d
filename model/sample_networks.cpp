#include <aloni/model/sample_networks.hpp>

#include <aloni/core/host_random.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>
#include <string>
#include <utility>

namespace aloni::model {

namespace {

constexpr double share_of_volumes = 0.2;
/// Networks like the last layers of large ones: a few pixels of many channels. Weights are most of their bytes.
constexpr double share_of_deep = 0.25;
/// Like the first layers of large ones: many pixels, and enough channels for the peak rate. They take long.
constexpr double share_of_large = 0.02;
/// Like LeNet-5: few channels everywhere.
constexpr double share_of_narrow = 0.2;
/// One network of so many accumulates gradients. Its micro-batches have no update.
constexpr std::size_t accumulating_sample = 6;

/// Numbers of one stream: one stream for each network that is drawn.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  double uniform() { return random::host_uniform(seed_, stream_, next_++); }
  Index one_of(std::initializer_list<Index> values) {
    const auto place = static_cast<std::ptrdiff_t>(uniform() * static_cast<double>(values.size()));
    return *std::next(values.begin(), place);
  }
  /// Logarithmic between the two.
  double between(double least, double most) { return least * std::pow(most / least, uniform()); }
  Index integer(Index least, Index most) {
    return std::clamp(static_cast<Index>(std::lround(between(static_cast<double>(least), static_cast<double>(most)))),
                      least, most);
  }
  /// Most networks have multiples of 16 or 64 channels, but for the first layer and splits of small ones by filter.
  enum class Size { usual, deep, large, narrow };
  Size size() {
    double place = uniform();
    for (const auto& [size, share] :
         {std::pair{Size::deep, share_of_deep}, {Size::large, share_of_large}, {Size::narrow, share_of_narrow}}) {
      place -= share;
      if (place < 0) return size;
    }
    return Size::usual;
  }
  Index channels(Size size) {
    if (size == Size::narrow) return integer(1, 18);
    const double kind = uniform();
    if (size == Size::deep) return kind < 0.5 ? 16 * integer(6, 64) : 64 * integer(2, 16);
    if (size == Size::large) return kind < 0.5 ? 16 * integer(3, 16) : 64 * integer(1, 4);
    if (kind < 0.2) return integer(1, 18);
    const Index unit = kind < 0.3 ? 8 : kind < 0.65 ? 16 : 64;  // rows of 256 bytes share few sets of a cache
    return unit * integer(1, 512 / unit);
  }

 private:
  std::uint64_t seed_, stream_, next_ = 0;
};

/// The splits of networks on two ranks, and the share of networks that have them.
constexpr std::pair<const char*, double> splits[]{{"h2", 0.2}, {"w2", 0.12}, {"c2", 0.1}, {"f2", 0.1}};
/// Outputs of the first convolution, so that each rank has some behind the pooling, and an interior before it.
constexpr Index least_split_extent = 8;

struct Drawn {
  PlannedNetwork sample;
  double flops = 0, bytes = 0;  ///< as SampleLimits
};

Drawn draw(Draws draws, bool pairs) {
  using namespace nn;
  const Draws::Size size = draws.size();
  const bool is_deep = size == Draws::Size::deep, is_large = size == Draws::Size::large;
  const bool is_volume = draws.uniform() < share_of_volumes;
  const Index channels = draws.channels(size), filters = draws.channels(size);
  const int rank = is_volume ? 3 : 2;
  const Index widest = is_volume ? 64 : 256;
  const Index width = is_deep ? draws.integer(1, 16) : draws.integer(is_large ? widest / 3 : 4, widest);
  const Index kernel = draws.one_of({1, 1, 3, 3, 3, 3, 5, 7});
  // Splits divide the height, down to one row of a border.
  const Index height = draws.uniform() < 0.5 ? width : draws.integer(1, width);
  const Index depth = is_volume ? draws.integer(std::min<Index>(2, width), width) : 1;
  const Index stride = draws.one_of({1, 1, 1, 2}), samples = draws.integer(1, is_large ? 4 : is_deep ? 16 : 128);
  const Index second_filters = draws.channels(size), second_kernel = draws.one_of({1, 3, 3, 3, 5});
  const Index window = draws.one_of({2, 3});
  const bool is_maximum = draws.uniform() < 0.6, joins_pixels = draws.uniform() < 0.5;
  const Index features = draws.integer(8, 2048);
  const bool concatenates = draws.uniform() < 0.3;

  Drawn drawn;
  drawn.sample.strategy = nn::Strategy::uniform({});
  drawn.sample.samples = samples;
  drawn.sample.step.input_gradient = true;
  NetworkDescription& net = drawn.sample.network;
  net.spatial_rank = rank;
  net.input = is_volume ? views::make_extents(1, {depth, height, width}, channels)
                        : views::make_extents(1, {height, width}, channels);
  const auto window_of = [&](Index extent) { return square_window(rank, extent, 1, extent / 2); };
  const auto add = [&](const std::string& name, Operation operation, std::vector<std::string> inputs) {
    net.layers.push_back({name, std::move(operation), std::move(inputs)});
  };
  add("conv", Convolution{.filters = filters, .window = square_window(rank, kernel, stride, kernel / 2), .bias = false},
      {"input"});
  add("bn", BatchNorm{}, {"conv"});
  add("relu", Relu{}, {"bn"});
  add("conv2", Convolution{.filters = second_filters, .window = window_of(second_kernel)}, {"relu"});
  add("relu1", Relu{}, {"conv2"});
  add("point", Convolution{.filters = filters, .window = square_window(rank, 1)}, {"relu1"});
  if (concatenates) {  // as in a block of DenseNet, whose concatenations share one memory
    add("both", Concatenate{}, {"relu", "point"});
    add("bn2", BatchNorm{}, {"both"});
    add("relu3", Relu{}, {"bn2"});
    add("conv3", Convolution{.filters = filters, .window = window_of(second_kernel)}, {"relu3"});
    add("all", Concatenate{}, {"both", "conv3"});
    add("last", BatchNorm{}, {"all"});
  } else {
    add("bn2", BatchNorm{}, {"point"});
    add("last", Add{}, {"relu", "bn2"});
  }
  add("relu2", Relu{}, {"last"});
  const auto halved = [&](Index extent) { return (extent - 1) / stride + 1; };
  const Index planes = halved(depth), rows = halved(height), columns = halved(width);
  const Index least = is_volume ? std::min({planes, rows, columns}) : std::min(rows, columns);
  const Index pooled = least < 2 ? 3 : window;  // a window of 3 has a padding of 1
  add("pool",
      Pooling{.kind = is_maximum ? PoolingKind::max : PoolingKind::average,
              .window = square_window(rank, pooled, 2, pooled - 2)},
      {"relu2"});
  // A dense layer for all pixels has no more than a hundred million weights.
  const auto pooled_extent = [&](Index extent) { return (extent + 2 * (pooled - 2) - pooled) / 2 + 1; };
  const Index pixels = (is_volume ? pooled_extent(planes) : 1) * pooled_extent(rows) * pooled_extent(columns);
  const Index last_channels = concatenates ? 3 * filters : filters;
  const bool flattens = joins_pixels && static_cast<double>(pixels * last_channels * features) < 2e7;
  if (flattens) {
    add("flat", Flatten{}, {"pool"});
  } else {
    add("mean", GlobalAveragePooling{}, {"pool"});
    add("flat", Flatten{}, {"mean"});
  }
  add("dense1", Dense{.features = features}, {"flat"});
  add("relu4", Relu{}, {"dense1"});
  add("dense2", Dense{.features = draws.one_of({10, 100, 1000})}, {"relu4"});
  double place = draws.uniform();
  for (const auto& [split, share] : splits) {
    place -= share;
    if (place >= 0) continue;
    const Index extent = split[0] == 'h' ? rows : split[0] == 'w' ? columns : least_split_extent;
    if (extent < least_split_extent) break;
    drawn.sample.ranks = 2;
    drawn.sample.step.largest_overhead = 1;
    drawn.sample.strategy = nn::Strategy::uniform(nn::LayerSplit::parse(split));
    break;
  }
  if (pairs && drawn.sample.ranks == 1) {  // the same kernels, and an update behind sums over ranks
    drawn.sample.ranks = 2;
    drawn.sample.samples = 2 * samples;
    drawn.sample.strategy = nn::Strategy::uniform(nn::LayerSplit::parse("n2"));
  }
  const auto real = [](Index n) { return static_cast<double>(n); };
  const double outputs = real(samples) * real(planes) * real(rows) * real(columns);
  drawn.flops = 2 * outputs *
                (real(channels) * real(filters) * std::pow(real(kernel), rank) +
                 real(filters) * real(second_filters) * (std::pow(real(second_kernel), rank) + 1) +
                 (concatenates ? 2 * real(filters) * real(filters) * std::pow(real(second_kernel), rank) : 0));
  drawn.bytes = 4 * std::max(real(samples) * real(channels) * real(depth) * real(height) * real(width),
                             outputs * real(std::max(last_channels, second_filters)));
  return drawn;
}

}  // namespace

std::vector<PlannedNetwork> sample_networks(int count, std::uint64_t seed, const SampleLimits& limits) {
  std::vector<PlannedNetwork> samples;
  for (std::uint64_t stream = 0; static_cast<int>(samples.size()) < count; ++stream) {
    Drawn drawn = draw(Draws(seed, stream), limits.pairs);
    if (drawn.flops < limits.least_flops || drawn.flops > limits.most_flops || drawn.bytes > limits.most_bytes)
      continue;
    drawn.sample.step.accumulates = samples.size() % accumulating_sample == accumulating_sample - 1;
    samples.push_back(std::move(drawn.sample));
  }
  return samples;
}

Machine machine_of_samples(const Machine& machine) {
  Machine samples = machine;
  samples.ranks_per_node = machine.ranks_per_node % 2 == 0 ? 2 : 1;
  samples.most_nodes = 0;
  samples.planning.nodes = {};
  return samples;
}

}  // namespace aloni::model
