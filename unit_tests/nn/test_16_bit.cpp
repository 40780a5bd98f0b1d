// Networks with activations of bfloat16 and float16: split equals unsplit, and training converges as with float.
#include "random_network.hpp"
#include "split_harness.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/trainer.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace aloni::nn::test {
namespace test_16_bit {

using comm::bfloat16;
using comm::float16;
using local::ConvolutionBackend;
using views::ProcessGrid;
using Exec = execution_space_t<bfloat16>;

template <class T>
std::optional<std::string> missing() {
  return local::unsupported_reason<T, Exec>(ConvolutionBackend::automatic, {}, local::ConvolutionPass::forward);
}

/// The default backend if it supports T, else the reference, which runs everywhere.
template <class T>
ConvolutionBackend backend() {
  return missing<T>() ? ConvolutionBackend::reference : ConvolutionBackend::automatic;
}

NetworkDescription chain(std::vector<LayerDescription> layers) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {12, 10}, 3);
  net.loss = Loss::binary_cross_entropy;
  net.layers = std::move(layers);
  return net;
}

/// Layers with exact results on small integers. Networks with sums in 16 bits have few layers, so that gradients
/// stay small enough.
std::vector<NetworkDescription> networks() {
  return {chain({{"conv1", Convolution{8, square_window(2, 3, 1, 1)}, {"input"}},
                 {"relu", Relu{}, {"conv1"}},
                 {"conv2", Convolution{16, square_window(2, 3, 2, 1)}, {"relu"}}}),
          chain({{"conv", Convolution{32, square_window(2, 3, 1, 1)}, {"input"}},
                 {"up", TransposedConvolution{16, square_window(2, 2, 2)}, {"conv"}}}),
          chain({{"pool", Pooling{PoolingKind::max, square_window(2, 3, 2, 1)}, {"input"}},
                 {"conv", Convolution{6, square_window(2, 3, 1, 1)}, {"pool"}}}),
          chain({{"up", Upsampling{UpsamplingMode::linear, square_extents(2, 2)}, {"input"}}}),
          chain({{"pool", AdaptivePooling{PoolingKind::max, square_extents(2, 5)}, {"input"}}}),
          chain({{"a", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
                 {"b", Convolution{4, square_window(2, 1)}, {"input"}},
                 {"sum", Add{}, {"a", "b"}}}),
          chain({{"pool", Pooling{PoolingKind::average, square_window(2, 2, 2)}, {"input"}},
                 {"flatten", Flatten{}, {"pool"}},
                 {"dense", Dense{10}, {"flatten"}}})};
}

template <class T>
class Activations : public testing::Test {};
using Types = testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(Activations, Types);

TYPED_TEST(Activations, SplitGivesTheSameBitsOnIntegersOnEveryGrid) {
  const auto comm = aloni::test::make_communicator();
  std::uint64_t seed = 60;
  for (const NetworkDescription& net : networks()) {
    SCOPED_TRACE("network " + std::to_string(seed - 60));
    for (const auto& grid : views::all_grids(comm.size(), {Dim::sample, Dim::height, Dim::width})) {
      if (!expect_split_equals_unsplit<TypeParam>(comm, net, Strategy::uniform(grid), 3, Values::integers, seed, 0.0,
                                                  backend<TypeParam>()))
        return;
    }
    ++seed;
  }
}

/// Sums over ranks are in float: exact on integers, and rounded once as on one rank.
TYPED_TEST(Activations, SplitGivesTheSameBitsWithSplitChannelsAndFilters) {
  const auto comm = aloni::test::make_communicator();
  const std::string ranks = std::to_string(comm.size());
  for (const std::string& split : {"c" + ranks, "f" + ranks}) {
    for (const bool transposed : {false, true}) {
      NetworkDescription net = chain({});
      net.input = views::make_extents(1, {6, 6}, 16);
      const Window window = square_window(2, 3, 1, 1);
      if (transposed) {  // without bias, which is rounded separately on one rank
        net.layers = {{"conv1", TransposedConvolution{.filters = 32, .window = window, .bias = false}, {"input"}},
                      {"conv2", TransposedConvolution{.filters = 24, .window = window, .bias = false}, {"conv1"}}};
      } else {
        net.layers = {{"conv1", Convolution{32, window}, {"input"}}, {"conv2", Convolution{24, window}, {"conv1"}}};
      }
      const Strategy strategy = Strategy::uniform(LayerSplit::parse(split));
      expect_split_equals_unsplit<TypeParam>(comm, net, strategy, 2, Values::integers, 70, 0.0, backend<TypeParam>());
    }
  }
}

/// On three ranks the middle one has two parts with equal extents. A kernel may cache their filters: in oneDNN's
/// order if there are many channels, rounded if there are few.
TYPED_TEST(Activations, KeepsTheFiltersOfEqualPartsApart) {
  const auto comm = aloni::test::make_communicator();
  const std::string ranks = std::to_string(comm.size());
  for (const Index channels : {6, 96}) {
    NetworkDescription net = chain({});
    net.input = views::make_extents(1, {6, 6}, channels);
    Convolution conv{channels == 6 ? 12 : 96, square_window(2, 3, 1, 1)};
    conv.groups = 2;
    net.layers = {{"conv", conv, {"input"}}};
    for (const std::string& split : {"c" + ranks, "f" + ranks}) {
      SCOPED_TRACE(split + " of " + std::to_string(channels) + " channels");
      expect_split_equals_unsplit<TypeParam>(comm, net, Strategy::uniform(LayerSplit::parse(split)), 2,
                                             Values::integers, 71, 0.0, backend<TypeParam>());
    }
  }
}

/// Results differ because sums in another order are rounded differently.
TYPED_TEST(Activations, RandomNetworksAreCloseToTheUnsplitOnes) {
  const auto comm = aloni::test::make_communicator();
  for (std::uint64_t seed = 7000; seed < 7000 + static_cast<std::uint64_t>(aloni::test::random_cases(12)); ++seed) {
    Dice dice(seed);
    const NetworkDescription net = random_network(dice, Kinds::exact);
    const Index samples = dice(1, 5);
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto splits = splits_for(comm.size(), net.spatial_rank);
    const Strategy strategy = random_uniform_strategy(dice, net, splits);
    if (!expect_split_equals_unsplit<TypeParam>(comm, net, strategy, samples, Values::integers, seed, 0.1,
                                                backend<TypeParam>()))
      return;
  }
}

/// Images whose class is the position of a bright spot.
LabelledImages spots(Index count) {
  LabelledImages set;
  set.image = views::make_extents(1, {28, 28}, 1);
  set.classes = 10;
  set.pixels.assign(static_cast<std::size_t>(count) * 28 * 28, 0);
  for (Index i = 0; i < count; ++i) {
    const auto bits = random::integer(5, 1, static_cast<std::uint64_t>(i));
    const Index label = static_cast<Index>(bits % 10), row = 2 + label / 5 * 12, column = 1 + label % 5 * 5;
    for (Index h = 0; h < 8; ++h)
      for (Index w = 0; w < 5; ++w)
        set.pixels[static_cast<std::size_t>((i * 28 + row + h) * 28 + column + w)] =
            static_cast<std::uint8_t>(100 + (bits >> (8 + (h + w) % 16)) % 156);
    set.labels.push_back(static_cast<std::uint8_t>(label));
  }
  return set;
}

template <class T>
std::vector<double> losses_of(const comm::Communicator& comm, const TrainOptions& options) {
  const LabelledImages images = spots(512);
  const Strategy strategy = Strategy::uniform(ProcessGrid::parse("n" + std::to_string(comm.size())));
  return train<T>(comm, lenet5(images.image, images.classes), strategy, images, spots(10), options).losses;
}

TYPED_TEST(Activations, TrainingConvergesAsWithFloat) {
  const auto comm = aloni::test::make_communicator();
  TrainOptions options{.batch = 64, .steps = aloni::test::share_of(60), .seed = 5};
  const std::vector<double> expected = losses_of<float>(comm, options);
  options.backend = backend<TypeParam>();
  if (std::is_same_v<TypeParam, float16>) options.update.loss_scaling = LossScaling{};
  const std::vector<double> narrow = losses_of<TypeParam>(comm, options);
  ASSERT_EQ(narrow.size(), expected.size());
  // Rounding differences grow with the steps, as those of the order of sums do.
  for (std::size_t i = 0; i < std::min<std::size_t>(20, narrow.size()); ++i)
    EXPECT_NEAR(narrow[i], expected[i], 0.01 * expected[i]) << "step " << i;
  if (options.steps < 60) return;
  EXPECT_LT(std::accumulate(narrow.end() - 10, narrow.end(), 0.0) / 10, 0.5 * narrow.front());
}

TEST(Bfloat16, RefusalNamesTheAlternative) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = networks()[0];
  const auto make = [&](ConvolutionBackend backend) {
    const Queue<Exec> queue;
    Parameters<float, Exec> parameters(comm, queue, net, 1);
    Network<bfloat16, Exec>(comm, queue, net, Strategy::uniform({}), 2, parameters, {.backend = backend});
  };
  for (const auto backend : {ConvolutionBackend::direct, ConvolutionBackend::automatic}) {
    if (backend == ConvolutionBackend::automatic && !missing<bfloat16>()) continue;
    try {
      make(backend);
      ADD_FAILURE() << "no error";
    } catch (const Unsupported& e) {
      EXPECT_NE(std::string(e.what()).find("float"), std::string::npos) << e.what();
    }
  }
  EXPECT_NO_THROW(make(ConvolutionBackend::reference));
}

}  // namespace test_16_bit
}  // namespace aloni::nn::test
