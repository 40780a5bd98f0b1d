// Split equals unsplit, for every layer, every grid of the ranks given, replicated grids too.
#include "split_harness.hpp"
#include "support/sanitizer.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/config.hpp>

#include <cstdio>
#include <numeric>

namespace aloni::nn::test {
namespace {

using local::ConvolutionBackend;
using views::ProcessGrid;

/// Deterministic stream of random integers.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  /// In [low, high].
  Index operator()(Index low, Index high) {
    return low + static_cast<Index>(random::integer(seed_, 77, count_++) % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t seed_, count_ = 0;
};

Window random_window(Dice& dice, int spatial_rank, const Extents& in, Index largest_kernel, bool pooling) {
  Window w;
  for (int i = 3 - spatial_rank; i < 3; ++i) {
    const Index extent = in.values[1 + i];
    w.dilation[i] = pooling ? 1 : dice(1, 2);
    w.kernel[i] = dice(1, largest_kernel);
    // Padding of a pooling window stays below the window: no window lies outside entirely.
    const Index most = pooling ? (w.kernel[i] - 1) / 2 : 4;
    w.pad_low[i] = dice(0, most);
    w.pad_high[i] = dice(0, most);
    while ((w.kernel[i] - 1) * w.dilation[i] + 1 > extent + w.pad_low[i] + w.pad_high[i]) {
      w.dilation[i] = 1;
      --w.kernel[i];
      if (pooling) w.pad_low[i] = w.pad_high[i] = 0;
    }
    w.stride[i] = dice(1, 3);
  }
  return w;
}

/// Output extents between 1 and twice the input's and 2 more, at most 12: whatever remainder.
std::array<Index, 3> random_output(Dice& dice, int spatial_rank, const Extents& in) {
  std::array<Index, 3> output{1, 1, 1};
  for (int i = 3 - spatial_rank; i < 3; ++i) output[i] = dice(1, std::min<Index>(12, 2 * in.values[1 + i] + 2));
  return output;
}

/// A divisor of both numbers of channels, often 1, often the largest.
Index random_groups(Dice& dice, Index channels, Index filters) {
  const Index largest = std::gcd(channels, filters);
  switch (dice(0, 3)) {
    case 0:
      return largest;
    case 1: {
      Index groups = dice(1, largest);
      while (largest % groups != 0) --groups;
      return groups;
    }
    default:
      return 1;
  }
}

/// Any kernel, stride, dilation, padding and output padding that leave an output of 1 to 14 elements.
TransposedConvolution random_transposed(Dice& dice, int spatial_rank, const Extents& in) {
  TransposedConvolution op;
  for (int i = 3 - spatial_rank; i < 3; ++i) {
    const Index most = spatial_rank == 3 ? 9 : 14;
    Window& w = op.window;
    const auto full = [&] { return (in.values[1 + i] - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1; };
    w.kernel[i] = dice(1, spatial_rank == 3 ? 3 : 5);
    w.stride[i] = dice(1, 3);
    w.dilation[i] = dice(1, 2);
    if (full() > most + 4) w.stride[i] = w.dilation[i] = 1;
    op.output_padding[i] = dice(0, std::max(w.stride[i], w.dilation[i]) - 1);
    w.pad_low[i] = dice(0, std::min<Index>(3, full() - 1));
    w.pad_high[i] = dice(0, std::min<Index>(3, full() - 1 - w.pad_low[i]));
  }
  op.filters = dice(1, 6);
  op.bias = dice(0, 1) == 1;
  op.groups = random_groups(dice, in[Dim::channel], op.filters);
  return op;
}

enum class Kinds { exact, all };

/// A chain of one to four layers; with Kinds::exact only such as give integers for integers.
NetworkDescription random_network(Dice& dice, Kinds kinds) {
  NetworkDescription net;
  net.spatial_rank = static_cast<int>(dice(1, 3));
  net.loss = Loss::binary_cross_entropy;
  const Index largest = net.spatial_rank == 3 ? 6 : net.spatial_rank == 2 ? 11 : 24;
  net.input = Extents{{1, 1, 1, 1, dice(1, 6)}};
  for (int i = 3 - net.spatial_rank; i < 3; ++i) net.input.values[1 + i] = dice(1, largest);
  const Index layers = dice(1, 4);
  Index convolutions = 0;
  std::string previous = "input";
  bool flat = false;
  for (Index l = 0; l < layers; ++l) {
    const Extents in = l == 0 ? net.input : infer_extents(net, 1).back();
    const std::string name = "layer" + std::to_string(l);
    Operation op = Relu{};
    // The range of kinds ends with those that divide.
    switch (dice(0, kinds == Kinds::exact ? 8 : 16)) {
      case 0:
      case 1:
      case 2:
        if (flat || convolutions == 2) break;
        ++convolutions;
        if (dice(0, 2) == 0) {
          op = random_transposed(dice, net.spatial_rank, in);
        } else {
          Convolution conv{dice(1, 6), random_window(dice, net.spatial_rank, in, net.spatial_rank == 3 ? 4 : 7, false),
                           dice(0, 1) == 1};
          conv.groups = random_groups(dice, in[Dim::channel], conv.filters);
          op = conv;
        }
        break;
      case 3:
      case 4:
        if (!flat) op = Pooling{PoolingKind::max, random_window(dice, net.spatial_rank, in, 4, true), true};
        break;
      case 5:
        if (!flat && l > 0) {
          op = Flatten{};
          flat = true;
        }
        break;
      case 7:
        if (!flat) op = AdaptivePooling{PoolingKind::max, random_output(dice, net.spatial_rank, in)};
        break;
      case 8:
        if (!flat) op = Upsampling{UpsamplingMode::nearest, {1, 1, 1}, random_output(dice, net.spatial_rank, in)};
        break;
      case 9:
        if (!flat)
          op = Pooling{PoolingKind::average, random_window(dice, net.spatial_rank, in, 4, true), dice(0, 1) == 1};
        break;
      case 10:
        op = BatchNorm{StatisticsScope::all, 0.1, 1e-3};
        break;
      case 11:
        if (!flat) op = AdaptivePooling{PoolingKind::average, random_output(dice, net.spatial_rank, in)};
        break;
      case 12:
        if (!flat) op = Upsampling{UpsamplingMode::linear, {1, 1, 1}, random_output(dice, net.spatial_rank, in)};
        break;
      case 13:
        if (!flat) {
          op = GlobalAveragePooling{};
          flat = true;
        }
        break;
      case 14: {
        Index groups = dice(1, in[Dim::channel]);
        while (in[Dim::channel] % groups != 0) --groups;
        op = GroupNorm{groups, 1e-3};
        break;
      }
      case 15:
        op = LayerNorm{1e-3};
        break;
      default:
        break;
    }
    net.layers.push_back({name, op, {previous}});
    previous = name;
  }
  return net;
}

/// With cuts of channels and filters, of either overlap.
std::vector<LayerSplit> splits_for(int ranks, int spatial_rank) {
  std::vector<Dim> dims{Dim::sample, Dim::width, Dim::channel};
  if (spatial_rank >= 2) dims.push_back(Dim::height);
  if (spatial_rank >= 3) dims.push_back(Dim::depth);
  std::vector<LayerSplit> splits;
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size != 0) continue;
    for (int filters = 1; filters <= size; ++filters) {
      if (size % filters != 0) continue;
      for (const ProcessGrid& g : views::all_grids(size / filters, dims)) {
        for (const Overlap overlap : {Overlap::interior_first, Overlap::blocking})
          splits.emplace_back(g, filters, overlap);
      }
    }
  }
  return splits;
}

std::vector<ProcessGrid> grids_for(int ranks, int spatial_rank) {
  std::vector<Dim> dims{Dim::sample, Dim::width};
  if (spatial_rank >= 2) dims.push_back(Dim::height);
  if (spatial_rank >= 3) dims.push_back(Dim::depth);
  std::vector<ProcessGrid> grids;
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size != 0) continue;
    for (const ProcessGrid& g : views::all_grids(size, dims)) grids.push_back(g);
  }
  return grids;
}

template <class T>
void compare_random_networks(Kinds kinds, Values values, double tolerance, std::uint64_t first_seed, int count,
                             ConvolutionBackend backend) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  for (std::uint64_t seed = first_seed; seed < first_seed + aloni::test::share_of(count); ++seed) {
    Dice dice(seed);
    const NetworkDescription net = random_network(dice, kinds);
    const Index samples = dice(1, 5);
    SCOPED_TRACE("seed " + std::to_string(seed));
    // A grid drawn for each network; all grids come up over the seeds, and each is visited by the tests below.
    const auto grids = splits_for(comm.size(), net.spatial_rank);
    const int tries = static_cast<int>(std::min<std::size_t>(grids.size(), 3));
    for (int t = 0; t < tries; ++t) {
      const auto& grid = grids[dice(0, static_cast<Index>(grids.size()) - 1)];
      if (!expect_split_equals_unsplit<T>(comm, net, Strategy::uniform(grid), samples, values, seed, tolerance,
                                          backend))
        return;
    }
  }
}

TEST(Split, GivesTheSameBitsOnIntegersInFloat) {
  compare_random_networks<float>(Kinds::exact, Values::integers, 0.0, 1000, 40, ConvolutionBackend::automatic);
}
TEST(Split, GivesTheSameBitsOnIntegersInDouble) {
  compare_random_networks<double>(Kinds::exact, Values::integers, 0.0, 2000, 25, ConvolutionBackend::automatic);
}
TEST(Split, GivesTheSameBitsOnIntegersWithTheReference) {
  compare_random_networks<float>(Kinds::exact, Values::integers, 0.0, 3000, 15, ConvolutionBackend::reference);
}
TEST(Split, GivesTheSameBitsOnIntegersWithOneDnn) {
  if (!config::has_onednn) return;
  compare_random_networks<float>(Kinds::exact, Values::integers, 0.0, 4000, 25, ConvolutionBackend::onednn);
}
TEST(Split, GivesTheSameBitsOnIntegersWithKokkosKernels) {
  if (!config::has_kokkos_kernels) return;
  compare_random_networks<float>(Kinds::exact, Values::integers, 0.0, 5000, 15, ConvolutionBackend::kokkos_kernels);
  compare_random_networks<double>(Kinds::exact, Values::integers, 0.0, 5500, 15, ConvolutionBackend::kokkos_kernels);
}
TEST(Split, EqualsUnsplitOnRealNumbersForAllLayers) {
  compare_random_networks<double>(Kinds::all, Values::reals, 1e-11, 6000, 60, ConvolutionBackend::automatic);
}

NetworkDescription lenet_like() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {14, 13}, 2);
  net.loss = Loss::softmax_cross_entropy;
  net.layers = {{"conv1", Convolution{4, square_window(2, 5, 1, 2)}, {"input"}},
                {"relu1", Relu{}, {"conv1"}},
                {"pool1", Pooling{PoolingKind::max, square_window(2, 3, 2, 1)}, {"relu1"}},
                {"conv2", Convolution{5, square_window(2, 3)}, {"pool1"}},
                {"relu2", Relu{}, {"conv2"}},
                {"flatten", Flatten{}, {"relu2"}},
                {"fc1", Dense{12}, {"flatten"}},
                {"relu3", Relu{}, {"fc1"}},
                {"fc2", Dense{10}, {"relu3"}}};
  return net;
}

TEST(Split, EqualsUnsplitOnEveryGridOfTheRanks) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  for (const auto& grid : grids_for(comm.size(), 2)) {
    expect_split_equals_unsplit<double>(comm, lenet_like(), Strategy::uniform(grid), 6, Values::reals, 7, 1e-11);
    expect_split_equals_unsplit<float>(comm, lenet_like(), Strategy::uniform(grid), 3, Values::integers, 8, 0.0);
  }
}

NetworkDescription chain(int spatial_rank, std::vector<LayerDescription> layers) {
  NetworkDescription net;
  net.spatial_rank = spatial_rank;
  net.input = Extents{{1, spatial_rank == 3 ? 4 : 1, spatial_rank >= 2 ? 8 : 1, 6, 3}};
  net.loss = Loss::binary_cross_entropy;
  net.layers = std::move(layers);
  return net;
}

/// Networks of adaptive pooling and up-sampling whose every quotient is by a power of two: exact on integers.
std::vector<NetworkDescription> resampling_networks() {
  const auto linear = [](std::array<Index, 3> output) { return Upsampling{UpsamplingMode::linear, {1, 1, 1}, output}; };
  const auto nearest = [](std::array<Index, 3> output) {
    return Upsampling{UpsamplingMode::nearest, {1, 1, 1}, output};
  };
  std::vector<NetworkDescription> nets;
  for (int rank = 1; rank <= 3; ++rank) {
    const auto double_or_keep = square_extents(rank, 2);
    nets.push_back(chain(rank, {{"up", Upsampling{UpsamplingMode::linear, double_or_keep}, {"input"}}}));
    nets.push_back(chain(rank, {{"up", Upsampling{UpsamplingMode::nearest, double_or_keep}, {"input"}}}));
    nets.push_back(chain(rank, {{"pool", AdaptivePooling{PoolingKind::max, square_extents(rank, 5)}, {"input"}}}));
  }
  nets.push_back(chain(2, {{"pool", AdaptivePooling{PoolingKind::average, {1, 4, 3}}, {"input"}}}));
  nets.push_back(chain(2, {{"up", linear({0, 16, 4}), {"input"}}}));
  nets.push_back(chain(2, {{"up", nearest({0, 3, 17}), {"input"}}}));
  nets.push_back(chain(3, {{"pool", AdaptivePooling{PoolingKind::average, {2, 8, 3}}, {"input"}}}));
  // From a single pixel and back; between layers that need ghosts of their own; several readers.
  nets.push_back(chain(2, {{"one", AdaptivePooling{PoolingKind::max, {1, 1, 1}}, {"input"}},
                           {"up", nearest({0, 5, 7}), {"one"}},
                           {"relu", Relu{}, {"up"}}}));
  nets.push_back(chain(2, {{"conv", Convolution{4, square_window(2, 3, 2, 1)}, {"input"}},
                           {"up", Upsampling{UpsamplingMode::linear, square_extents(2, 2)}, {"conv"}},
                           {"sum", Add{}, {"up", "up"}},
                           {"last", Convolution{2, square_window(2, 3, 1, 1)}, {"sum"}}}));
  nets.push_back(chain(2, {{"a", Upsampling{UpsamplingMode::nearest, square_extents(2, 2)}, {"input"}},
                           {"b", Upsampling{UpsamplingMode::linear, square_extents(2, 2)}, {"input"}},
                           {"c", Convolution{3, square_window(2, 3, 1, 1)}, {"a"}},
                           {"sum", Add{}, {"c", "b"}},
                           {"pool", AdaptivePooling{PoolingKind::max, {1, 7, 5}}, {"sum"}}}));
  return nets;
}

TEST(Split, GivesTheSameBitsWithAdaptivePoolingAndUpsamplingOnEveryGrid) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  std::uint64_t seed = 40;
  for (const NetworkDescription& net : resampling_networks()) {
    SCOPED_TRACE("network " + std::to_string(seed - 40));
    for (const auto& grid : grids_for(comm.size(), net.spatial_rank)) {
      if (!expect_split_equals_unsplit<double>(comm, net, Strategy::uniform(grid), 3, Values::integers, seed, 0.0))
        return;
    }
    ++seed;
  }
}

TEST(Split, GivesTheSameOutputBitsForRealNumbersWithAdaptivePoolingAndUpsampling) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  for (const Operation& op : std::vector<Operation>{AdaptivePooling{PoolingKind::average, {1, 5, 4}},
                                                    Upsampling{UpsamplingMode::linear, {1, 1, 1}, {0, 13, 11}},
                                                    Upsampling{UpsamplingMode::linear, {1, 3, 5}}}) {
    const auto net = chain(2, {{"layer", op, {"input"}}});
    const auto self = comm.split(comm.rank(), 0);
    nn::test::Run<float> one(self, net, Strategy::uniform({}), 3, Values::reals, 9, ConvolutionBackend::automatic);
    one.step();
    for (const auto& grid : grids_for(comm.size(), 2)) {
      nn::test::Run<float> many(comm, net, Strategy::uniform(grid), 3, Values::reals, 9, ConvolutionBackend::automatic);
      many.step();
      EXPECT_EQ(difference(many.network.output(), many.network.output_box(), one.network.output()), 0.0)
          << kind(op) << ", grid " << to_string(grid);
    }
  }
}

TEST(Split, EqualsUnsplitWhenLayersHaveDifferentGrids) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  const auto grids = grids_for(comm.size(), 2);
  Dice dice(99);
  for (int t = 0; t < 12; ++t) {
    Strategy strategy;
    for (const auto& layer : lenet_like().layers) {
      strategy.rules.push_back({layer.name, grids[dice(0, static_cast<Index>(grids.size()) - 1)], 0});
    }
    if (!expect_split_equals_unsplit<double>(comm, lenet_like(), strategy, 5, Values::reals, 10 + t, 1e-11)) return;
  }
}

/// Group and layer normalisation between windows, with and without parameters, and behind the spatial extents.
NetworkDescription normalised() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {7, 5}, 2);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv1", Convolution{6, square_window(2, 3, 1, 1)}, {"input"}},
                {"group", GroupNorm{3, 1e-3}, {"conv1"}},
                {"relu", Relu{}, {"group"}},
                {"conv2", Convolution{4, square_window(2, 3, 2, 1)}, {"relu"}},
                {"layer", LayerNorm{1e-3}, {"conv2"}},
                {"instance", GroupNorm{4, 1e-3, false}, {"layer"}},
                {"whole", GroupNorm{1, 1e-3}, {"instance"}},
                {"mean", GlobalAveragePooling{}, {"whole"}},
                {"features", LayerNorm{1e-3, false}, {"mean"}},
                {"pairs", GroupNorm{2, 1e-3}, {"features"}}};
  return net;
}

TEST(Split, NormalisesSamplesAndCellsOnEveryGrid) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  for (const auto& grid : grids_for(comm.size(), 2)) {
    expect_split_equals_unsplit<double>(comm, normalised(), Strategy::uniform(grid), 3, Values::reals, 17, 1e-10);
    expect_split_equals_unsplit<float>(comm, normalised(), Strategy::uniform(grid), 2, Values::reals, 18, 1e-3);
  }
}

TEST(Split, NormalisesWhenLayersHaveDifferentGrids) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  const auto grids = grids_for(comm.size(), 2);
  Dice dice(101);
  for (int t = 0; t < 8; ++t) {
    Strategy strategy;
    for (const auto& layer : normalised().layers) {
      strategy.rules.push_back({layer.name, grids[dice(0, static_cast<Index>(grids.size()) - 1)], 0});
    }
    if (!expect_split_equals_unsplit<double>(comm, normalised(), strategy, 3, Values::reals, 30 + t, 1e-10)) return;
  }
}

TEST(Split, AddsTheGradientsOfSeveralReaders) {
  // A residual block: readers with and without ghosts, and one that reads the same tensor twice.
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {9, 8}, 2);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv", Convolution{3, square_window(2, 3, 1, 1)}, {"input"}},
                {"pool", Pooling{PoolingKind::max, square_window(2, 3, 1, 1)}, {"conv"}},
                {"conv2", Convolution{3, square_window(2, 5, 1, 2)}, {"conv"}},
                {"sum", Add{}, {"pool", "conv", "conv2"}},
                {"relu", Relu{}, {"sum"}},
                {"twice", Add{}, {"relu", "relu"}}};
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  for (const auto& grid : grids_for(comm.size(), 2)) {
    expect_split_equals_unsplit<float>(comm, net, Strategy::uniform(grid), 4, Values::integers, 5, 0.0);
  }
  // The branches in distributions of their own.
  Strategy mixed;
  const std::string p = std::to_string(comm.size());
  mixed.rules = {{"pool", ProcessGrid::parse("n" + p), 0},
                 {"conv2", ProcessGrid::parse("w" + p), 0},
                 {"*", ProcessGrid::parse("h" + p), 0}};
  expect_split_equals_unsplit<float>(comm, net, mixed, 4, Values::integers, 6, 0.0);
}

TEST(Split, EvaluatesWithFusedReluAsWithout) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {20, 18}, 16);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv1", Convolution{32, square_window(2, 3, 1, 1)}, {"input"}},       {"relu1", Relu{}, {"conv1"}},
                {"conv2", Convolution{16, square_window(2, 3, 2, 1)}, {"relu1"}},       {"relu2", Relu{}, {"conv2"}},
                {"up", TransposedConvolution{8, square_window(2, 4, 2, 1)}, {"relu2"}}, {"relu3", Relu{}, {"up"}}};
  for (const auto& split : splits_for(comm.size(), 2)) {
    SCOPED_TRACE(to_string(split));
    const Queue<> queue;
    Parameters<float> parameters(queue, net, 3);
    Network<float> plain(comm, queue, net, Strategy::uniform(split), 2, parameters, {.fuse_inference = false});
    Network<float> fused(comm, queue, net, Strategy::uniform(split), 2, parameters);
    for (auto* network : {&plain, &fused}) {
      const auto& whole = network->input_distribution().extents();
      fill<float>(network->input(), network->input_box(), whole, Values::reals, 5, 2);
      network->forward(queue, Mode::evaluation);
    }
    const auto a = on_host(plain.output()), b = on_host(fused.output());
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(a.data()[i] - b.data()[i])));
      largest = std::max(largest, static_cast<double>(a.data()[i]));
    }
    EXPECT_LE(worst, 1e-6 * largest);
    if (a.size() > 0) {
      EXPECT_GT(largest, 0);
    }
  }
}

TEST(Split, SumsGradientsBesideTheBackwardPassAsBehindIt) {
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  // More than one bucket of 1 MiB.
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {9, 8}, 3);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv", Convolution{8, square_window(2, 3, 1, 1)}, {"input"}},
                {"norm", BatchNorm{}, {"conv"}},
                {"flatten", Flatten{}, {"norm"}},
                {"fc1", Dense{700}, {"flatten"}},
                {"relu", Relu{}, {"fc1"}},
                {"fc2", Dense{500}, {"relu"}},
                {"fc3", Dense{3}, {"fc2"}}};
  for (const char* text : {"n1", "n2", "h2", "f2"}) {
    const auto split = LayerSplit::parse(text);
    if (comm.size() % split.size() != 0) continue;
    SCOPED_TRACE(text);
    nn::test::Run<float> run(comm, net, Strategy::uniform(split), 6, Values::reals, 5, ConvolutionBackend::automatic);
    auto& network = run.network;
    fill<float>(network.input(), network.input_box(), network.input_distribution().extents(), Values::reals, 5, 2);
    fill<float>(network.targets(), network.output_box(), network.output_distribution().extents(), Values::integers, 5,
                3);
    const auto loss = network.train_step(run.queue).loss;
    const auto together = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, run.parameters.gradients());
    network.forward(run.queue, Mode::training);
    // The gradient of the loss is still there.
    network.backward(run.queue);
    network.reduce_gradients(run.queue);
    const auto behind = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, run.parameters.gradients());
    double worst = 0, largest = 0;
    for (Index i = 0; i < run.parameters.size(); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(together(i) - behind(i))));
      largest = std::max(largest, static_cast<double>(std::abs(behind(i))));
    }
    EXPECT_LE(worst, 1e-5 * largest);
    EXPECT_GT(largest, 0);
    EXPECT_TRUE(std::isfinite(loss));
    EXPECT_DOUBLE_EQ(comm.all_reduce(loss, comm::Reduction::max), comm.all_reduce(loss, comm::Reduction::min));
  }
}

TEST(Split, HandlesMoreRanksThanRowsAndSamples) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {3, 2}, 1);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv1", Convolution{2, square_window(2, 3, 1, 1)}, {"input"}},
                {"relu", Relu{}, {"conv1"}},
                {"conv2", Convolution{2, square_window(2, 5, 1, 2)}, {"relu"}}};
  const auto comm = comm::from_mpi(MPI_COMM_WORLD);
  for (const auto& grid : grids_for(comm.size(), 2)) {
    expect_split_equals_unsplit<float>(comm, net, Strategy::uniform(grid), 1, Values::integers, 3, 0.0);
  }
}

}  // namespace
}  // namespace aloni::nn::test
