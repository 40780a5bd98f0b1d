// Split equals unsplit for every layer and every grid of the given ranks, replicated grids included.
#include "random_network.hpp"
#include "split_harness.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/config.hpp>
#include <aloni/nn/data/synthetic.hpp>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace aloni::nn::test {
namespace test_split {

using local::ConvolutionBackend;
using views::ProcessGrid;

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

std::vector<ProcessGrid> some_grids(int ranks, int spatial_rank) {
  return aloni::test::some_of(grids_for(ranks, spatial_rank), 16);
}

/// Seeds of `count` random networks. Networks with a layer that no network before has come first, so that few have all
/// kinds of layers that ten times as many have. test_verify proves the plans of thousands.
std::vector<std::uint64_t> seeds_of_networks(Kinds kinds, std::uint64_t first, int count) {
  std::set<std::string> seen;
  std::vector<std::uint64_t> seeds, others;
  for (std::uint64_t seed = first; seed < first + 10 * static_cast<std::uint64_t>(count); ++seed) {
    Dice dice(seed);
    bool adds = false;
    for (const LayerDescription& layer : random_network(dice, kinds).layers)
      adds = seen.insert(kind(layer.operation)).second || adds;
    (adds ? seeds : others).push_back(seed);
  }
  if (!aloni::test::sanitized) {
    EXPECT_LE(std::ssize(seeds), count) << "too few networks for all kinds of layers";
  }
  seeds.insert(seeds.end(), others.begin(), others.end());
  seeds.resize(static_cast<std::size_t>(count));
  return seeds;
}

template <class T>
void compare_random_networks(Kinds kinds, Values values, double tolerance, std::uint64_t first_seed, int count,
                             ConvolutionBackend backend) {
  const auto comm = aloni::test::make_communicator();
  for (const std::uint64_t seed : seeds_of_networks(kinds, first_seed, aloni::test::random_cases(count))) {
    Dice dice(seed);
    const NetworkDescription net = random_network(dice, kinds);
    const Index samples = dice(1, 5);
    SCOPED_TRACE("seed " + std::to_string(seed));
    // Each network draws some splits; over the seeds all occur. The tests below visit every grid.
    const auto splits = splits_for(comm.size(), net.spatial_rank);
    for (int t = 0; t < 3; ++t) {
      const Strategy strategy = t < 2 ? random_uniform_strategy(dice, net, splits) : random_strategy(dice, net, splits);
      if (!expect_split_equals_unsplit<T>(comm, net, strategy, samples, values, seed, tolerance, backend)) return;
    }
  }
}

TEST(Split, GivesTheSameBitsOnIntegersInFloat) {
  compare_random_networks<float>(Kinds::exact, Values::integers, 0.0, 1000, 9, ConvolutionBackend::automatic);
}
TEST(Split, GivesTheSameBitsOnIntegersInDouble) {
  compare_random_networks<double>(Kinds::exact, Values::integers, 0.0, 2000, 8, ConvolutionBackend::automatic);
}
TEST(Split, GivesTheSameBitsOnIntegersWithTheReference) {
  compare_random_networks<float>(Kinds::exact, Values::integers, 0.0, 3000, 8, ConvolutionBackend::reference);
}
TEST(Split, GivesTheSameBitsOnIntegersWithOneDnn) {
  if (!config::has_onednn) return;
  compare_random_networks<float>(Kinds::exact, Values::integers, 0.0, 4000, 8, ConvolutionBackend::onednn);
}
TEST(Split, GivesTheSameBitsOnIntegersWithKokkosKernels) {
  if (!config::has_kokkos_kernels) return;
  compare_random_networks<float>(Kinds::exact, Values::integers, 0.0, 5000, 8, ConvolutionBackend::kokkos_kernels);
  compare_random_networks<double>(Kinds::exact, Values::integers, 0.0, 5500, 8, ConvolutionBackend::kokkos_kernels);
}
TEST(Split, EqualsUnsplitOnRealNumbersForAllLayers) {
  compare_random_networks<double>(Kinds::all, Values::reals, 1e-11, 6000, 14, ConvolutionBackend::automatic);
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
  const auto comm = aloni::test::make_communicator();
  for (const auto& grid : some_grids(comm.size(), 2)) {
    expect_split_equals_unsplit<double>(comm, lenet_like(), Strategy::uniform(grid), 6, Values::reals, 7, 1e-11);
    expect_split_equals_unsplit<float>(comm, lenet_like(), Strategy::uniform(grid), 3, Values::integers, 8, 0.0);
  }
}

/// Splits of two-dimensional layers: all on a few ranks. Many ranks share the cores, and are slow.
std::vector<LayerSplit> some_splits(int ranks) {
  return aloni::test::some_of(splits_for(ranks, 2), ranks > 4 ? 12 : 32);
}

/// Up to six of the splits that divide channels or filters, drawn from all of them.
std::vector<LayerSplit> some_splits_of_channels(int ranks) {
  std::vector<LayerSplit> all = splits_for(ranks, 2), some;
  std::erase_if(all, [](const LayerSplit& s) {
    return s.tensor_grid()[Dim::channel] == 1 || s.overlap != Overlap::interior_first;
  });
  Dice dice(64);
  while (!all.empty() && some.size() < 6) {
    const auto k = static_cast<std::ptrdiff_t>(dice(0, std::ssize(all) - 1));
    some.push_back(all[static_cast<std::size_t>(k)]);
    all.erase(all.begin() + k);
  }
  return some;
}

TEST(Split, EqualsUnsplitWithDenseLayersInBlocksOfInputsAndFeatures) {
  const auto comm = aloni::test::make_communicator();
  NetworkDescription net = lenet_like();
  net.loss = Loss::binary_cross_entropy;  // the last layer needs no softmax, and is split too
  for (const LayerSplit& split : some_splits_of_channels(comm.size())) {
    Strategy strategy{.rules = {{"fc*", split, 0}, {"relu3", split, 0}, {"*", LayerSplit{}, 0}}};
    expect_split_equals_unsplit<double>(comm, net, strategy, 5, Values::reals, 51, 1e-11);
    expect_split_equals_unsplit<float>(comm, net, strategy, 3, Values::integers, 52, 0.0);
    if (!expect_split_equals_unsplit<double>(comm, net, Strategy::uniform(split), 2, Values::reals, 53, 1e-11)) return;
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

/// Networks of adaptive pooling and up-sampling in which every division is by a power of two: exact on integers.
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
  // From a single pixel and back; between layers that need ghosts themselves; several readers.
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
  const auto comm = aloni::test::make_communicator();
  std::uint64_t seed = 40;
  for (const NetworkDescription& net : resampling_networks()) {
    SCOPED_TRACE("network " + std::to_string(seed - 40));
    int number = 0;
    for (const auto& grid : some_grids(comm.size(), net.spatial_rank)) {
      if (!aloni::test::is_in_share(number++)) continue;
      if (!expect_split_equals_unsplit<double>(comm, net, Strategy::uniform(grid), 3, Values::integers, seed, 0.0))
        return;
    }
    ++seed;
  }
}

TEST(Split, GivesTheSameOutputBitsOnRealNumbersWithAdaptivePoolingAndUpsampling) {
  const auto comm = aloni::test::make_communicator();
  for (const Operation& op : std::vector<Operation>{AdaptivePooling{PoolingKind::average, {1, 5, 4}},
                                                    Upsampling{UpsamplingMode::linear, {1, 1, 1}, {0, 13, 11}},
                                                    Upsampling{UpsamplingMode::linear, {1, 3, 5}}}) {
    const auto net = chain(2, {{"layer", op, {"input"}}});
    const auto self = comm.split(comm.rank(), 0);
    nn::test::Run<float> one(self, net, Strategy::uniform({}), 3, Values::reals, 9, ConvolutionBackend::automatic);
    one.step();
    for (const auto& grid : some_grids(comm.size(), 2)) {
      nn::test::Run<float> many(comm, net, Strategy::uniform(grid), 3, Values::reals, 9, ConvolutionBackend::automatic);
      many.step();
      EXPECT_EQ(difference(many.network.output(), many.network.output_box(), one.network.output()), 0.0)
          << kind(op) << ", grid " << to_string(grid);
    }
  }
}

TEST(Split, EqualsUnsplitWhenLayersHaveDifferentGrids) {
  const auto comm = aloni::test::make_communicator();
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

/// Group and layer normalisation between windows, with and without parameters, and after a global average.
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

TEST(Split, NormalisesSamplesAndPixelsOnEveryGrid) {
  const auto comm = aloni::test::make_communicator();
  for (const auto& grid : some_grids(comm.size(), 2)) {
    expect_split_equals_unsplit<double>(comm, normalised(), Strategy::uniform(grid), 3, Values::reals, 17, 1e-10);
    expect_split_equals_unsplit<float>(comm, normalised(), Strategy::uniform(grid), 2, Values::reals, 18, 1e-3);
  }
}

TEST(Split, NormalisesSamplesAndPixelsWithSplitChannels) {
  const auto comm = aloni::test::make_communicator();
  for (const LayerSplit& split : some_splits_of_channels(comm.size())) {
    expect_split_equals_unsplit<double>(comm, normalised(), Strategy::uniform(split), 3, Values::reals, 19, 1e-10);
    if (!expect_split_equals_unsplit<float>(comm, normalised(), Strategy::uniform(split), 2, Values::reals, 20, 1e-3))
      return;
  }
}

TEST(Split, NormalisesWhenLayersHaveDifferentGrids) {
  const auto comm = aloni::test::make_communicator();
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
  // A residual block: readers with and without ghosts, and a reader that reads one tensor twice.
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
  const auto comm = aloni::test::make_communicator();
  for (const auto& grid : some_grids(comm.size(), 2)) {
    expect_split_equals_unsplit<float>(comm, net, Strategy::uniform(grid), 4, Values::integers, 5, 0.0);
  }
  // The branches have different distributions.
  Strategy mixed;
  const std::string p = std::to_string(comm.size());
  mixed.rules = {{"pool", ProcessGrid::parse("n" + p), 0},
                 {"conv2", ProcessGrid::parse("w" + p), 0},
                 {"*", ProcessGrid::parse("h" + p), 0}};
  expect_split_equals_unsplit<float>(comm, net, mixed, 4, Values::integers, 6, 0.0);
}

/// Concatenations of tensors with other readers, of one tensor twice, of a concatenation, and of flat tensors.
NetworkDescription concatenations() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {9, 8}, 2);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv", Convolution{3, square_window(2, 3, 1, 1)}, {"input"}},
                {"relu", Relu{}, {"conv"}},
                {"three", Concatenate{}, {"relu", "input", "relu"}},
                {"rectified", Relu{}, {"three"}},
                {"conv2", Convolution{4, square_window(2, 5, 1, 2)}, {"rectified"}},
                {"more", Concatenate{}, {"conv2", "relu"}},
                {"again", Concatenate{}, {"more", "conv2"}},
                {"pool", Pooling{PoolingKind::max, square_window(2, 3, 2, 1)}, {"again"}},
                {"flatten", Flatten{}, {"pool"}},
                {"dense", Dense{5}, {"flatten"}},
                {"last", Concatenate{}, {"dense", "flatten"}}};
  return net;
}

TEST(Split, ConcatenatesChannelsInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = concatenations();
  int number = 0;
  for (const LayerSplit& split : some_splits(comm.size())) {
    if (!aloni::test::is_in_share(number++)) continue;
    SCOPED_TRACE(to_string(split) + " " + std::string(name(split.overlap)));
    const Strategy strategy = strategy_of(net, std::vector(net.layers.size(), split));
    if (!expect_split_equals_unsplit<float>(comm, net, strategy, 3, Values::integers, 60, 0.0)) return;
  }
}

TEST(Split, ConcatenatesChannelsInTheOrderOfTheInputs) {
  const auto comm = aloni::test::make_communicator();
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {4, 5}, 3);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"relu", Relu{}, {"input"}}, {"all", Concatenate{}, {"relu", "input"}}};
  for (const LayerSplit& split : some_splits(comm.size())) {
    SCOPED_TRACE(to_string(split));
    nn::test::Run<double> run(comm, net, Strategy::uniform(split), 2, Values::integers, 70,
                              ConvolutionBackend::automatic);
    run.step();
    const Extents whole = run.network.output_distribution().extents();
    const auto y = on_host(run.network.output());
    for_each_index(run.network.output_box(), whole, [&](const auto& i, Index position) {
      const Index channel = position % 6;
      const double x = value_at<double>(Values::integers, 70, 2, position / 6 * 3 + channel % 3);
      EXPECT_EQ(y(i[0], i[1], i[2], i[3], i[4]), channel < 3 ? std::max(x, 0.0) : x) << "position " << position;
    });
  }
}

TEST(Split, ConcatenatesTensorsOfDifferentSplits) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = concatenations();
  const std::vector<LayerSplit> splits = splits_for(comm.size(), 2);
  Dice dice(102);
  for (int t = 0; t < aloni::test::random_cases(12); ++t) {
    const Strategy strategy = random_strategy(dice, net, splits);
    if (!expect_split_equals_unsplit<double>(comm, net, strategy, 3, Values::integers, 61 + t, 0.0)) return;
  }
}

TEST(Split, KeepsTheFiltersOfEqualPartsApart) {
  // On three ranks the middle one has the last third of one group's channels and the first third of the next group's.
  // These two parts have equal extents, and a kernel may cache reordered filters.
  const auto comm = aloni::test::make_communicator();
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {12, 12}, 96);
  net.loss = Loss::binary_cross_entropy;
  Convolution conv{64, square_window(2, 3, 1, 1)};
  conv.groups = 2;
  net.layers = {{"conv", conv, {"input"}}};
  const std::string ranks = std::to_string(comm.size());
  for (const std::string& split : {"c" + ranks, "f" + ranks})
    expect_split_equals_unsplit<float>(comm, net, Strategy::uniform(LayerSplit::parse(split)), 1, Values::integers, 3,
                                       0.0);
}

/// A network whose ghosts need one exchange: a row of windows of all kinds, and a sum and a concatenation that bypass
/// some of them.
NetworkDescription recomputing_network() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {26, 23}, 3);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv1", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
                {"relu1", Relu{}, {"conv1"}},
                {"conv2", Convolution{4, square_window(2, 5, 1, 4, 2)}, {"relu1"}},
                {"relu2", Relu{}, {"conv2"}},
                {"sum", Add{}, {"relu2", "relu1"}},
                {"both", Concatenate{}, {"sum", "relu1"}},
                {"pool", Pooling{PoolingKind::max, square_window(2, 3, 2, 1)}, {"both"}},
                {"up", TransposedConvolution{2, square_window(2, 4, 2, 1)}, {"pool"}},
                {"fine", Upsampling{UpsamplingMode::nearest, {1, 1, 1}, {1, 31, 30}}, {"up"}},
                {"last", Convolution{2, square_window(2, 3, 1, 1)}, {"fine"}}};
  return net;
}

TEST(Split, GivesTheSameBitsWithOneExchangeForAChain) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = recomputing_network();
  for (const auto& grid : some_grids(comm.size(), 2)) {
    const LayerSplit recomputing(grid, 1, Overlap::recompute_halo);
    SCOPED_TRACE(to_string(recomputing));
    expect_split_equals_unsplit<double>(comm, net, Strategy::uniform(recomputing), 3, Values::integers, 8, 0.0);
    // At a layer with the same split but another overlap one chain ends and another begins.
    Strategy broken = Strategy::uniform(recomputing);
    broken.rules.insert(broken.rules.begin(), {"sum", LayerSplit(grid), 0});
    expect_split_equals_unsplit<double>(comm, net, broken, 2, Values::integers, 9, 0.0);
    const auto plan = plan_network(net, resolve(Strategy::uniform(recomputing), net, comm.size()), comm.size(), 3);
    for (std::size_t l = 1; l < plan.layers.size(); ++l) {
      const bool concatenates = net.layers[l].name == "both";
      for (const LayerInput& input : plan.layers[l].inputs)
        EXPECT_EQ(input.mode, concatenates ? InputMode::separate : InputMode::shared) << net.layers[l].name;
    }
  }
}

TEST(Split, SendsGhostsOfAChainOnce) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = recomputing_network();
  for (const auto& grid : grids_for(comm.size(), 2)) {
    // A copy is sent by one of the ranks that have it, so only grids of all ranks allow counting.
    if (grid.size() < comm.size()) continue;
    const Strategy recomputing = Strategy::uniform(LayerSplit(grid, 1, Overlap::recompute_halo));
    SCOPED_TRACE(to_string(recomputing));
    const Queue<> queue;
    Parameters<float> parameters(queue, net, 3);
    Network<float> network(comm, queue, net, recomputing, 2, parameters);
    const auto sent = [&] {
      std::uint64_t bytes = 0;
      for (const auto& peer : comm.traffic_by_peer()) bytes += peer.messages.bytes_sent;
      return bytes;
    };
    const auto before = sent();
    network.forward(queue, Mode::evaluation);
    const auto plan = plan_network(net, resolve(recomputing, net, comm.size()), comm.size(), 2);
    const int me = comm.rank();
    std::uint64_t expected = 0;
    for (int r = 0; r < comm.size(); ++r) {
      if (r == me) continue;
      const Box ghosts = intersect(plan.layers[0].input_needed(r), plan.input.owned(me));
      expected += static_cast<std::uint64_t>(ghosts.size()) * sizeof(float);
    }
    EXPECT_EQ(sent() - before, expected);
  }
}

TEST(Split, EvaluatesWithFusedReluAsWithout) {
  const auto comm = aloni::test::make_communicator();
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {20, 18}, 16);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv1", Convolution{32, square_window(2, 3, 1, 1)}, {"input"}},       {"relu1", Relu{}, {"conv1"}},
                {"conv2", Convolution{16, square_window(2, 3, 2, 1)}, {"relu1"}},       {"relu2", Relu{}, {"conv2"}},
                {"up", TransposedConvolution{8, square_window(2, 4, 2, 1)}, {"relu2"}}, {"relu3", Relu{}, {"up"}}};
  int number = 0;
  for (const auto& split : some_splits(comm.size())) {
    if (!aloni::test::is_in_share(number++)) continue;
    SCOPED_TRACE(to_string(split) + " " + std::string(name(split.overlap)));
    const Strategy strategy = strategy_of(net, std::vector(net.layers.size(), split));
    const Queue<> queue;
    Parameters<float> parameters(queue, net, 3);
    Network<float> plain(comm, queue, net, strategy, 2, parameters, {.fuse_inference = false});
    Network<float> fused(comm, queue, net, strategy, 2, parameters);
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

/// Losses of training steps and of an evaluation are the same with and without an option that merges kernels, and the
/// merged ones need no more memory.
void expect_same_training(const comm::Communicator& comm, const NetworkDescription& net,
                          bool NetworkOptions::*const merges) {
  int number = 0;
  for (const auto& split : some_splits(comm.size())) {
    if (!aloni::test::is_in_share(number++)) continue;
    SCOPED_TRACE(to_string(split) + " " + std::string(name(split.overlap)));
    const Strategy strategy = strategy_of(net, std::vector(net.layers.size(), split));
    const Queue<> queue;
    std::vector<double> losses[2];
    std::size_t bytes[2];
    for (const bool fused : {false, true}) {
      Parameters<double> parameters(comm, queue, net, resolve(strategy, net, comm.size()), 3);
      NetworkOptions options{.input_gradient = true};
      options.*merges = fused;
      Network<double> network(comm, queue, net, strategy, 4, parameters, options);
      for (std::uint64_t step = 0; step < 3; ++step) {
        fill_synthetic(queue, net, 3, step, network);
        losses[fused].push_back(network.train_step(queue).loss);
        parameters.sgd(queue, {.learning_rate = 0.1});
      }
      fill_synthetic(queue, net, 3, 7, network);
      losses[fused].push_back(network.evaluate(queue).loss);
      bytes[fused] = static_cast<std::size_t>(network.planned_bytes());
    }
    EXPECT_EQ(losses[true], losses[false]);
    EXPECT_LE(bytes[true], bytes[false]);
  }
}

TEST(Split, TrainsWithReluInBatchNormalisationAsWithout) {
  const auto comm = aloni::test::make_communicator();
  // A ReLU with ghosts, one with two readers, one with a window.
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {16, 12}, 4);
  net.loss = Loss::binary_cross_entropy;
  const Window three = square_window(2, 3, 1, 1);
  net.layers = {{"conv1", Convolution{8, three}, {"input"}},
                {"bn1", BatchNorm{}, {"conv1"}},
                {"relu1", Relu{}, {"bn1"}},
                {"conv2", Convolution{8, three}, {"relu1"}},
                {"bn2", BatchNorm{}, {"conv2"}},
                {"relu2", Relu{}, {"bn2"}},
                {"sum", Add{}, {"relu1", "relu2"}},
                {"bn3", BatchNorm{}, {"sum"}},
                {"relu3", Relu{}, {"bn3"}},
                {"pool", Pooling{PoolingKind::max, square_window(2, 2, 2)}, {"relu3"}},
                {"conv3", Convolution{2, three}, {"pool"}},
                {"bn4", BatchNorm{}, {"conv3"}},
                {"relu4", Relu{}, {"bn4"}}};
  expect_same_training(comm, net, &NetworkOptions::fuse_batch_norm);
}

TEST(Split, TrainsWithReluInMaxPoolingAsWithout) {
  const auto comm = aloni::test::make_communicator();
  // ReLUs behind a convolution and a sum, and one with two readers, which has nodes of its own. Windows that overlap,
  // and some with padding.
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {32, 24}, 4);
  net.loss = Loss::binary_cross_entropy;
  const Window three = square_window(2, 3, 1, 1);
  net.layers = {{"conv1", Convolution{8, three}, {"input"}},
                {"relu1", Relu{}, {"conv1"}},
                {"pool1", Pooling{PoolingKind::max, square_window(2, 2, 2)}, {"relu1"}},
                {"conv2", Convolution{8, three}, {"pool1"}},
                {"sum", Add{}, {"conv2", "pool1"}},
                {"relu2", Relu{}, {"sum"}},
                {"pool2", Pooling{PoolingKind::max, square_window(2, 3, 1, 1)}, {"relu2"}},
                {"conv3", Convolution{8, three}, {"pool2"}},
                {"relu3", Relu{}, {"conv3"}},
                {"pool3", Pooling{PoolingKind::max, square_window(2, 2, 2)}, {"relu3"}},
                {"pool4", Pooling{PoolingKind::max, square_window(2, 3, 2, 1)}, {"relu3"}},
                {"both", Concatenate{}, {"pool3", "pool4"}},
                {"conv4", Convolution{2, three}, {"both"}}};
  expect_same_training(comm, net, &NetworkOptions::fuse_pooling);
}

TEST(Split, SumsGradientsDuringTheBackwardPassAsAfterIt) {
  const auto comm = aloni::test::make_communicator();
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
  double alone = 0;  // the loss on one rank
  {
    nn::test::Run<float> run(comm.split(comm.rank(), 0), net, Strategy::uniform({}), 6, Values::reals, 5,
                             ConvolutionBackend::automatic);
    fill<float>(run.network.input(), run.network.input_box(), run.network.input_distribution().extents(), Values::reals,
                5, 2);
    fill<float>(run.network.targets(), run.network.output_box(), run.network.output_distribution().extents(),
                Values::integers, 5, 3);
    alone = run.network.train_step(run.queue).loss;
  }
  for (const char* text : {"n1", "n2", "h2", "f2"}) {
    const auto split = LayerSplit::parse(text);
    if (comm.size() % split.size() != 0) continue;
    SCOPED_TRACE(text);
    nn::test::Run<float> run(comm, net, Strategy::uniform(split), 6, Values::reals, 5, ConvolutionBackend::automatic,
                             nn::test::Weights::split);
    auto& network = run.network;
    fill<float>(network.input(), network.input_box(), network.input_distribution().extents(), Values::reals, 5, 2);
    fill<float>(network.targets(), network.output_box(), network.output_distribution().extents(), Values::integers, 5,
                3);
    const auto loss = network.train_step(run.queue).loss;
    EXPECT_NEAR(loss, alone, 1e-5 * alone);
    const auto together = run.parameters.gather_gradients(run.queue);
    network.forward(run.queue, Mode::training);
    // The gradient of the loss is unchanged.
    network.backward(run.queue);
    network.reduce_gradients(run.queue);
    const auto behind = run.parameters.gather_gradients(run.queue);
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < behind.extent(0); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(together(i) - behind(i))));
      largest = std::max(largest, static_cast<double>(std::abs(behind(i))));
    }
    EXPECT_LE(worst, 1e-5 * largest);
    EXPECT_GT(largest, 0);
    EXPECT_TRUE(std::isfinite(loss));
    EXPECT_DOUBLE_EQ(comm.all_reduce(loss, comm::Reduction::max), comm.all_reduce(loss, comm::Reduction::min));
  }
}

NetworkDescription one_convolution(Index height, Index channels, Index filters) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {height, 64}, channels);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv", Convolution{filters, square_window(2, 3, 1, 1)}, {"input"}}};
  return net;
}

TEST(Split, GivesTheSameBitsWhenRowsAndSumsTravelInChunks) {
  // Several MiB of partial sums, and of gathered rows.
  const auto comm = aloni::test::make_communicator();
  for (const char* text : {"c2", "f2", "c2f2", "h2c2", "n2f2"}) {
    const auto split = LayerSplit::parse(text);
    if (comm.size() > 4 || comm.size() % split.size() != 0) continue;
    for (const Index samples : {1, 3}) {
      if (aloni::test::sanitized && samples > 1) continue;
      expect_split_equals_unsplit<double>(comm, one_convolution(samples == 1 ? 160 : 64, 33, 34),
                                          Strategy::uniform(split), samples, Values::integers, 11, 0.0);
    }
  }
}

TEST(Split, GivesTheSameBitsWhenInteriorsAreComputedInSlabs) {
  // Messages between nodes make progress only in calls of the library.
  if (aloni::test::sanitized) return;
  const auto comm = comm::from_mpi(MPI_COMM_WORLD, {.ranks_per_node = 1});
  if (comm.size() != 2) return;
  expect_split_equals_unsplit<float>(comm, one_convolution(120, 56, 56), Strategy::uniform(LayerSplit::parse("h2")), 2,
                                     Values::integers, 12, 0.0);
}

TEST(Split, HandlesMoreRanksThanRowsAndSamples) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {3, 2}, 1);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv1", Convolution{2, square_window(2, 3, 1, 1)}, {"input"}},
                {"relu", Relu{}, {"conv1"}},
                {"conv2", Convolution{2, square_window(2, 5, 1, 2)}, {"relu"}}};
  const auto comm = aloni::test::make_communicator();
  for (const auto& grid : some_grids(comm.size(), 2)) {
    expect_split_equals_unsplit<float>(comm, net, Strategy::uniform(grid), 1, Values::integers, 3, 0.0);
  }
}

}  // namespace test_split
}  // namespace aloni::nn::test
