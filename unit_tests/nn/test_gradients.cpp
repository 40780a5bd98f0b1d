// Gradients of every layer and loss against finite differences, in double, on one rank and split.
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <aloni/nn/detail/convolution_direction.hpp>

#include <functional>

namespace aloni::nn::test {
namespace test_gradients {

using views::ProcessGrid;

/// Sum over all ranks of output * weights, with weights fixed by position. The gradient of this function by the
/// output is known.
struct Probe {
  comm::Communicator comm;
  Run<double>& run;

  double value() const {
    run.network.set_dropout_step(0);  // the mask of the first step
    run.network.forward(run.queue, Mode::training);
    const auto y = on_host(run.network.output());
    double sum = 0;
    if (run.network.output_distribution().is_first_copy(comm.rank())) {
      for_each_index(run.network.output_box(), run.network.output_distribution().extents(),
                     [&](const auto& i, Index position) {
                       sum += y(i[0], i[1], i[2], i[3], i[4]) * value_at<double>(Values::reals, run.seed, 3, position);
                     });
    }
    return comm.all_reduce(sum, comm::Reduction::sum);
  }
};

double central_difference(const std::function<double(double)>& f) {
  const double h = 1e-5;
  return (f(h) - f(-h)) / (2 * h);
}

/// Compares up to `count` entries, spread over the tensor, of each parameter's gradient and of the input's gradient.
void expect_gradients(const comm::Communicator& comm, const NetworkDescription& net, const std::string& grid,
                      Index samples, std::uint64_t seed) {
  SCOPED_TRACE("grid " + grid + ", seed " + std::to_string(seed));
  Run<double> run(comm, net, Strategy::uniform(LayerSplit::parse(grid)), samples, Values::reals, seed,
                  local::ConvolutionBackend::automatic);
  run.step();
  const Probe probe{comm, run};
  const auto gradients = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, run.parameters.gradients());
  auto values = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, run.parameters.values());
  const auto input_gradient = on_host(run.network.input_gradient());

  const Index parameters = run.parameters.size();
  for (Index n = 0; n < std::min<Index>(parameters, 12); ++n) {
    const Index p = (n * 7919 + 3) % parameters;
    const double numeric = central_difference([&](double h) {
      const double saved = values(p);
      values(p) = saved + h;
      Kokkos::deep_copy(run.parameters.values(), values);
      const double f = probe.value();
      values(p) = saved;
      Kokkos::deep_copy(run.parameters.values(), values);
      return f;
    });
    EXPECT_NEAR(gradients(p), numeric, 1e-6 * (1 + std::abs(numeric))) << "parameter " << p;
  }

  // Every rank takes part in each evaluation. Each rank that owns a copy of the element perturbs it.
  const Extents& extents = run.network.input_distribution().extents();
  for (Index n = 0; n < std::min<Index>(extents.size(), 12); ++n) {
    const Index target = (n * 104729 + 5) % extents.size();
    auto host = on_host(run.network.input());
    double analytic = 0;
    const double numeric = central_difference([&](double h) {
      auto moved = on_host(run.network.input());
      for_each_index(run.network.input_box(), extents, [&](const auto& i, Index position) {
        moved(i[0], i[1], i[2], i[3], i[4]) = host(i[0], i[1], i[2], i[3], i[4]) + (position == target ? h : 0.0);
        if (position == target) analytic = input_gradient(i[0], i[1], i[2], i[3], i[4]);
      });
      const auto dense =
          Kokkos::create_mirror_view_and_copy(typename Kokkos::DefaultExecutionSpace::memory_space{}, moved);
      Kokkos::deep_copy(run.network.input(), dense);
      return probe.value();
    });
    const auto dense =
        Kokkos::create_mirror_view_and_copy(typename Kokkos::DefaultExecutionSpace::memory_space{}, host);
    Kokkos::deep_copy(run.network.input(), dense);
    bool mine = false;
    for_each_index(run.network.input_box(), extents,
                   [&](const auto&, Index position) { mine = mine || position == target; });
    if (mine) {
      EXPECT_NEAR(analytic, numeric, 1e-6 * (1 + std::abs(numeric))) << "input element " << target;
    }
  }
}

NetworkDescription single(Operation op, int spatial_rank = 2) {
  NetworkDescription net;
  net.spatial_rank = spatial_rank;
  net.loss = Loss::binary_cross_entropy;
  net.input = Extents{{1, spatial_rank == 3 ? 4 : 1, spatial_rank >= 2 ? 6 : 1, 5, 3}};
  net.layers = {{"layer", std::move(op), {"input"}}};
  return net;
}

Window window(std::array<Index, 3> kernel, std::array<Index, 3> stride, std::array<Index, 3> low,
              std::array<Index, 3> high, std::array<Index, 3> dilation = {1, 1, 1}) {
  return {kernel, stride, dilation, low, high};
}

std::vector<std::string> grids(const comm::Communicator& comm, int spatial_rank) {
  const std::string p = std::to_string(comm.size());
  if (comm.size() == 1) return {"1"};
  std::vector<std::string> g{"n" + p, "w" + p};
  if (spatial_rank >= 2) g.push_back("h" + p);
  if (spatial_rank >= 3) g.push_back("d" + p);
  return g;
}

void check_all_grids(const NetworkDescription& net, Index samples = 3) {
  const auto comm = aloni::test::make_communicator();
  std::uint64_t seed = 11;
  for (const auto& grid : grids(comm, net.spatial_rank)) expect_gradients(comm, net, grid, samples, ++seed);
}

/// Also with split channels and filters.
void check_all_splits(const NetworkDescription& net, Index samples = 3) {
  check_all_grids(net, samples);
  const auto comm = aloni::test::make_communicator();
  if (comm.size() == 1) return;
  std::uint64_t seed = 71;
  for (const char* letter : {"c", "f"})
    expect_gradients(comm, net, letter + std::to_string(comm.size()), samples, ++seed);
}

TEST(Gradients, OfConvolutionMatchFiniteDifferences) {
  check_all_grids(single(Convolution{4, window({1, 1, 3}, {1, 1, 2}, {0, 0, 1}, {0, 0, 0}), true}, 1));
  check_all_grids(single(Convolution{4, window({1, 3, 2}, {1, 1, 1}, {0, 1, 0}, {0, 1, 1}), true}));
  check_all_grids(single(Convolution{2, window({1, 3, 2}, {1, 2, 1}, {0, 2, 1}, {0, 0, 1}, {1, 2, 1}), false}));
  check_all_grids(single(Convolution{2, window({2, 3, 3}, {1, 2, 1}, {1, 1, 1}, {0, 1, 1}), true}, 3), 2);
}

TEST(Gradients, OfTransposedConvolutionMatchFiniteDifferences) {
  check_all_grids(single(TransposedConvolution{4, window({1, 1, 3}, {1, 1, 2}, {0, 0, 1}, {0, 0, 0})}, 1));
  check_all_grids(single(TransposedConvolution{2, window({1, 4, 3}, {1, 2, 1}, {0, 1, 1}, {0, 1, 0})}));
}

TEST(Gradients, OfMaxPoolingMatchFiniteDifferences) {
  check_all_grids(single(Pooling{PoolingKind::max, window({1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {0, 1, 0}), true}));
  check_all_grids(single(Pooling{PoolingKind::max, window({2, 2, 3}, {1, 2, 2}, {0, 0, 1}, {0, 0, 1}), true}, 3), 2);
}

TEST(Gradients, OfAveragePoolingMatchFiniteDifferences) {
  check_all_grids(single(Pooling{PoolingKind::average, window({1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {0, 1, 0}), true}));
  check_all_grids(single(Pooling{PoolingKind::average, window({1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {0, 1, 0}), false}));
}

TEST(Gradients, OfAdaptivePoolingMatchFiniteDifferences) {
  for (auto kind : {PoolingKind::max, PoolingKind::average}) {
    check_all_grids(single(AdaptivePooling{kind, {1, 1, 3}}, 1));
    check_all_grids(single(AdaptivePooling{kind, {1, 4, 2}}));
    check_all_grids(single(AdaptivePooling{kind, {1, 9, 1}}));
    check_all_grids(single(AdaptivePooling{kind, {3, 2, 4}}, 3), 2);
  }
}

TEST(Gradients, OfUpsamplingMatchFiniteDifferences) {
  for (auto mode : {UpsamplingMode::nearest, UpsamplingMode::linear}) {
    check_all_grids(single(Upsampling{mode, {1, 1, 3}}, 1));
    check_all_grids(single(Upsampling{mode, square_extents(2, 2)}));
    check_all_grids(single(Upsampling{mode, {1, 1, 1}, {0, 13, 3}}));
    check_all_grids(single(Upsampling{mode, {2, 1, 1}, {0, 7, 9}}, 3), 2);
  }
}

TEST(Gradients, OfBatchNormMatchFiniteDifferencesInEveryScope) {
  for (auto scope : {StatisticsScope::local, StatisticsScope::spatial, StatisticsScope::all}) {
    check_all_grids(single(BatchNorm{scope, 0.1, 1e-3}), 6);
  }
}

TEST(Gradients, OfGroupNormMatchFiniteDifferences) {
  for (Index groups : {1, 3}) check_all_splits(single(GroupNorm{groups, 1e-3}));
  check_all_grids(single(GroupNorm{1, 1e-3, false}, 1));
  check_all_grids(single(GroupNorm{1, 1e-3}, 3), 2);
}

TEST(Gradients, OfLayerNormMatchFiniteDifferences) {
  check_all_splits(single(LayerNorm{1e-3}));
  check_all_grids(single(LayerNorm{1e-3, false}, 1));
  check_all_grids(single(LayerNorm{1e-3}, 3), 2);
}

TEST(Gradients, OfReluFlattenDenseAndGlobalAverageMatchFiniteDifferences) {
  check_all_grids(single(Relu{}));
  check_all_grids(single(GlobalAveragePooling{}));
  auto net = single(Flatten{});
  net.layers.push_back({"fc", Dense{4, true}, {"layer"}});
  check_all_splits(net);
}

TEST(Gradients, OfPointwiseLayersMatchFiniteDifferences) {
  for (const Operation& op : std::vector<Operation>{LeakyRelu{0.1}, Sigmoid{}, Tanh{}, Silu{}, Gelu{}}) {
    SCOPED_TRACE(kind(op));
    check_all_grids(single(op));
    // In place in the output of a convolution, and before a layer that reads ghosts.
    auto net = single(Convolution{3, square_window(2, 3, 1, 1)});
    net.layers.push_back({"f", op, {"layer"}});
    net.layers.push_back({"last", Pooling{PoolingKind::average, square_window(2, 3, 1, 1)}, {"f"}});
    check_all_grids(net);
  }
}

TEST(Gradients, OfDropoutMatchFiniteDifferencesOfTheSameMask) {
  check_all_grids(single(Dropout{0.4}));
  auto net = single(Convolution{3, square_window(2, 3, 1, 1)});
  net.layers.push_back({"dropout", Dropout{0.3}, {"layer"}});
  net.layers.push_back({"silu", Silu{}, {"dropout"}});
  net.layers.push_back({"last", Dropout{0.1}, {"silu"}});
  check_all_grids(net);
}

TEST(Gradients, OfConcatenationMatchFiniteDifferences) {
  auto net = single(Convolution{4, square_window(2, 3, 1, 1)});
  net.layers.push_back({"all", Concatenate{}, {"layer", "input", "layer"}});
  check_all_grids(net);
  net.layers.push_back({"last", Convolution{2, square_window(2, 3, 1, 1)}, {"all"}});
  check_all_grids(net);
}

// "input" and "layer" have several readers, so their gradients are sums.
TEST(Gradients, OfTensorsWithSeveralReadersMatchFiniteDifferences) {
  auto net = single(Convolution{3, square_window(2, 3, 1, 1), true});
  net.layers.push_back({"other", Convolution{3, square_window(2, 1, 1, 0), false}, {"layer"}});
  net.layers.push_back({"norm", LayerNorm{1e-3}, {"layer"}});
  net.layers.push_back({"inner", Add{}, {"other", "norm"}});
  net.layers.push_back({"middle", Add{}, {"inner", "layer"}});
  net.layers.push_back({"outer", Add{}, {"middle", "input"}});
  check_all_grids(net);
}

// Normalisations whose input has another reader add its gradient to theirs: of a concatenation, and of a sum.
TEST(Gradients, OfDenseBlocksMatchFiniteDifferences) {
  const Operation norm = BatchNorm{StatisticsScope::all, 0.1, 1e-3};
  auto net = single(Convolution{4, square_window(2, 3, 1, 1)});
  net.layers.push_back({"norm1", norm, {"layer"}});
  net.layers.push_back({"relu1", Relu{}, {"norm1"}});
  net.layers.push_back({"conv1", Convolution{3, square_window(2, 3, 1, 1)}, {"relu1"}});
  net.layers.push_back({"join1", Concatenate{}, {"conv1", "layer"}});
  net.layers.push_back({"norm2", norm, {"join1"}});
  net.layers.push_back({"conv2", Convolution{2, square_window(2, 1, 1, 0)}, {"norm2"}});
  net.layers.push_back({"join2", Concatenate{}, {"join1", "conv2"}});
  net.layers.push_back({"norm3", norm, {"join2"}});
  net.layers.push_back({"conv3", Convolution{9, square_window(2, 1, 1, 0)}, {"norm3"}});
  net.layers.push_back({"sum", Add{}, {"join2", "conv3"}});
  check_all_grids(net);
}

/// The gradients of a whole step, including the loss.
void expect_loss_gradients(const NetworkDescription& net, Index samples) {
  const auto comm = aloni::test::make_communicator();
  for (const auto& grid : grids(comm, net.spatial_rank)) {
    SCOPED_TRACE("grid " + grid);
    Run<double> run(comm, net, Strategy::uniform(ProcessGrid::parse(grid)), samples, Values::reals, 21,
                    local::ConvolutionBackend::automatic);
    fill<double>(run.network.input(), run.network.input_box(), run.network.input_distribution().extents(),
                 Values::reals, 21, 2);
    if (net.loss == Loss::softmax_cross_entropy) {
      auto labels = Kokkos::create_mirror_view(run.network.labels());
      for (std::size_t i = 0; i < labels.extent(0); ++i) {
        labels(i) = static_cast<int>((run.network.output_box().lower(Dim::sample) + static_cast<Index>(i)) % 4);
      }
      Kokkos::deep_copy(run.network.labels(), labels);
    } else if (net.loss == Loss::pixel_cross_entropy) {
      const auto pixels = run.network.pixel_labels();
      const auto labels = on_host(pixels);
      const Box box = detail::with_channels(run.network.output_box(), {0, 1});
      for_each_index(box, run.network.output_distribution().extents(), [&](const auto& i, Index position) {
        labels(i[0], i[1], i[2], i[3], 0) =
            static_cast<int>(random::integer(21, 9, static_cast<std::uint64_t>(position)) % 4);
      });
      const auto dense =
          Kokkos::create_mirror_view_and_copy(typename Kokkos::DefaultExecutionSpace::memory_space{}, labels);
      Kokkos::deep_copy(pixels, dense);
    } else {
      auto targets = on_host(run.network.targets());
      for_each_index(run.network.output_box(), run.network.output_distribution().extents(),
                     [&](const auto& i, Index position) {
                       targets(i[0], i[1], i[2], i[3], i[4]) = random::uniform<double>(21, 9, position);
                     });
      const auto dense =
          Kokkos::create_mirror_view_and_copy(typename Kokkos::DefaultExecutionSpace::memory_space{}, targets);
      Kokkos::deep_copy(run.network.targets(), dense);
    }
    run.network.train_step(run.queue);
    const auto gradients = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, run.parameters.gradients());
    // On a host train_step overwrites the source of the mirror, so the values are copied.
    std::vector<double> analytic(gradients.data(), gradients.data() + run.parameters.size());
    auto values = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, run.parameters.values());
    for (Index n = 0; n < 12; ++n) {
      const Index p = (n * 7919 + 3) % run.parameters.size();
      const double numeric = central_difference([&](double h) {
        const double saved = values(p);
        values(p) = saved + h;
        Kokkos::deep_copy(run.parameters.values(), values);
        const double loss = run.network.train_step(run.queue).loss;
        values(p) = saved;
        Kokkos::deep_copy(run.parameters.values(), values);
        return loss;
      });
      EXPECT_NEAR(analytic[p], numeric, 1e-7 * (1 + std::abs(numeric))) << "parameter " << p;
    }
  }
}

TEST(Gradients, OfSoftmaxCrossEntropyMatchFiniteDifferences) {
  auto net = single(Convolution{3, square_window(2, 3, 1, 1), true});
  net.loss = Loss::softmax_cross_entropy;
  net.layers.push_back({"flatten", Flatten{}, {"layer"}});
  net.layers.push_back({"fc", Dense{4, true}, {"flatten"}});
  expect_loss_gradients(net, 5);
}

TEST(Gradients, OfSoftmaxCrossEntropyAfterAGlobalAverageMatchFiniteDifferences) {
  auto net = single(Convolution{4, square_window(2, 3, 1, 1), true});
  net.loss = Loss::softmax_cross_entropy;
  net.layers.push_back({"mean", GlobalAveragePooling{}, {"layer"}});
  expect_loss_gradients(net, 5);
}

TEST(Gradients, OfLossesPerPixelMatchFiniteDifferences) {
  for (const Loss loss : {Loss::mean_squared_error, Loss::pixel_cross_entropy, Loss::dice}) {
    SCOPED_TRACE(name(loss));
    auto net = single(Convolution{4, square_window(2, 3, 1, 1), true});
    net.loss = loss;
    expect_loss_gradients(net, 2);
    net.layers.push_back({"mean", GlobalAveragePooling{}, {"layer"}});  // several ranks own each element
    expect_loss_gradients(net, 2);
  }
}

TEST(Gradients, OfBinaryCrossEntropyPerPixelMatchFiniteDifferences) {
  auto net = single(Convolution{1, square_window(2, 3, 1, 1), true});
  expect_loss_gradients(net, 2);
}

}  // namespace test_gradients
}  // namespace aloni::nn::test
