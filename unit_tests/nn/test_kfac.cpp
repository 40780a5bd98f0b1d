// K-FAC: factors and preconditioned gradients against their definitions, equal results in every split, and restarts.
#include "checkpoint/training_of_images.hpp"
#include "host_flat.hpp"
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/kfac.hpp>
#include <aloni/nn/plan/kfac_cost.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace aloni::nn::test {
namespace test_kfac {

using Exec = Kokkos::DefaultExecutionSpace;
using NetworkRun = Run<double>;  // a test has a member Run
using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> splits(int ranks) {
  std::vector<std::string> some;
  for (const char* text : {"1", "n2", "h2", "w2", "n2h2", "h2w2", "n4"})
    if (ranks % LayerSplit::parse(text).size() == 0) some.emplace_back(text);
  return some;
}

std::vector<LayerSplit> resolved(const std::string& split, const NetworkDescription& net, int ranks) {
  return resolve(Strategy::uniform(LayerSplit::parse(split)), net, ranks);
}

// --- factors ---

/// One convolution: its inputs and the gradients of its outputs are values of formulas.
NetworkDescription one_convolution(int spatial_rank) {
  NetworkDescription net;
  net.spatial_rank = spatial_rank;
  net.loss = Loss::mean_squared_error;
  Window window;
  if (spatial_rank == 2) {
    net.input = views::make_extents(1, {9, 8}, 3);
    window = {
        .kernel = {1, 3, 2}, .stride = {1, 2, 1}, .dilation = {1, 1, 2}, .pad_low = {0, 1, 1}, .pad_high = {0, 2, 0}};
  } else {
    net.input = views::make_extents(1, {4, 6, 5}, 2);
    window = square_window(3, 3, 1, 1);
  }
  net.layers = {{"conv", Convolution{4, window}, {"input"}}};
  return net;
}

/// Σ a aᵀ and Σ g gᵀ by their definitions, from x and g of all samples.
template <class X, class G>
std::pair<std::vector<double>, std::vector<double>> factors_of(const Window& w, const X& x, const G& g) {
  const auto extent = [](const auto& v, int i) { return static_cast<Index>(v.extent(i)); };
  const Index channels = extent(x, 4), filters = extent(g, 4);
  const Index columns = w.kernel[0] * w.kernel[1] * w.kernel[2] * channels + 1;
  std::vector<double> a(static_cast<std::size_t>(columns * columns)), gg(static_cast<std::size_t>(filters * filters));
  std::vector<double> patch;
  for (Index n = 0; n < extent(g, 0); ++n)
    for (Index od = 0; od < extent(g, 1); ++od)
      for (Index oh = 0; oh < extent(g, 2); ++oh)
        for (Index ow = 0; ow < extent(g, 3); ++ow) {
          patch.clear();
          for (Index kd = 0; kd < w.kernel[0]; ++kd)
            for (Index kh = 0; kh < w.kernel[1]; ++kh)
              for (Index kw = 0; kw < w.kernel[2]; ++kw)
                for (Index c = 0; c < channels; ++c) {
                  const Index d = od * w.stride[0] + kd * w.dilation[0] - w.pad_low[0],
                              h = oh * w.stride[1] + kh * w.dilation[1] - w.pad_low[1],
                              v = ow * w.stride[2] + kw * w.dilation[2] - w.pad_low[2];
                  const bool inside =
                      d >= 0 && d < extent(x, 1) && h >= 0 && h < extent(x, 2) && v >= 0 && v < extent(x, 3);
                  patch.push_back(inside ? x(n, d, h, v, c) : 0.0);
                }
          patch.push_back(1);
          for (Index i = 0; i < columns; ++i)
            for (Index j = 0; j < columns; ++j)
              a[static_cast<std::size_t>(i * columns + j)] +=
                  patch[static_cast<std::size_t>(i)] * patch[static_cast<std::size_t>(j)];
          for (Index i = 0; i < filters; ++i)
            for (Index j = 0; j < filters; ++j)
              gg[static_cast<std::size_t>(i * filters + j)] += g(n, od, oh, ow, i) * g(n, od, oh, ow, j);
        }
  return {a, gg};
}

/// The formula of fill() over a whole tensor, times a factor.
auto whole_tensor(const Extents& e, std::uint64_t seed, std::uint64_t stream, double factor) {
  Kokkos::View<double*****, Kokkos::LayoutRight, Kokkos::HostSpace> v("aloni::test", e.values[0], e.values[1],
                                                                      e.values[2], e.values[3], e.values[4]);
  for_each_index(views::whole(e), e, [&](const auto& i, Index position) {
    v(i[0], i[1], i[2], i[3], i[4]) = factor * value_at<double>(Values::reals, seed, stream, position);
  });
  return v;
}

TEST(FactorSums, AreThoseOfAllPatchesInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  constexpr Index samples = 4;
  for (const int spatial_rank : {2, 3}) {
    const NetworkDescription net = one_convolution(spatial_rank);
    for (const std::string& split : splits(comm.size())) {
      SCOPED_TRACE(std::to_string(spatial_rank) + "-D, " + split);
      NetworkRun run(comm, net, Strategy::uniform(LayerSplit::parse(split)), samples, Values::reals, 7,
                     local::ConvolutionBackend::automatic);
      const KfacPlan plan = plan_kfac(net, resolved(split, net, comm.size()), comm.size());
      FactorSums<double, Exec> sums(run.queue, plan);
      run.network.record_factors(&sums);
      for (int repeat = 0; repeat < 2; ++repeat) {  // the second sum is that of its own step
        sums.clear(run.queue.space());
        sums.begin(samples);
        run.step();
      }
      run.network.record_factors(nullptr);
      run.step();  // adds nothing
      auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, sums.values());
      comm.all_reduce(std::span(host.data(), host.extent(0)), comm::Reduction::sum);
      const auto x = whole_tensor(run.network.input_distribution().extents(), 7, 2, 1);
      const auto g = whole_tensor(run.network.output_distribution().extents(), 7, 3, samples);
      const auto [a, gg] = factors_of(std::get<Convolution>(net.layers[0].operation).window, x, g);
      ASSERT_EQ(host.extent(0), a.size() + gg.size());
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(host(sums.begin_of_a(0) + i), a[i], 1e-9) << i;
      for (std::size_t i = 0; i < gg.size(); ++i) ASSERT_NEAR(host(sums.begin_of_g(0) + i), gg[i], 1e-9) << i;
      EXPECT_EQ(sums.samples(), samples);
    }
  }
}

// --- directions ---

NetworkDescription dense_net() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {2, 1}, 2);
  net.loss = Loss::mean_squared_error;
  net.layers = {{"flatten", Flatten{}, {"input"}},
                {"first", Dense{3}, {"flatten"}},
                {"tanh", Tanh{}, {"first"}},
                {"second", Dense{2}, {"tanh"}}};
  return net;
}

/// x with a x = b, by Gaussian elimination with pivots.
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k; i < n; ++i)
      if (std::abs(a[i][k]) > std::abs(a[pivot][k])) pivot = i;
    std::swap(a[k], a[pivot]);
    std::swap(b[k], b[pivot]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const double f = a[i][k] / a[k][k];
      for (std::size_t j = k; j < n; ++j) a[i][j] -= f * a[k][j];
      b[i] -= f * b[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

/// The gradient of a layer as rows of weights with the bias as last column, one row after another.
template <class Parameters>
std::vector<double> gradient_of(const Parameters& parameters, int layer, Index rows) {
  const auto w = on_host(parameters.gradient(parameters.find(layer, 0)));
  const auto b =
      Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, parameters.vector_gradient(parameters.find(layer, 1)));
  const Index weights = static_cast<Index>(w.size()) / rows;
  std::vector<double> all;
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < weights; ++j) all.push_back(w.data()[i * weights + j]);
    all.push_back(b(static_cast<std::size_t>(i)));
  }
  return all;
}

struct Fisher {
  Index rows, columns;
  std::vector<double> gradient, a, g;  ///< a, g: of one sample, with ∇W = g aᵀ
};

// With one sample the Fisher matrix of a layer, vec(∇W) vec(∇W)ᵀ, is the Kronecker product of its factors.
TEST(Kfac, MultipliesByTheInverseOfTheExactFisherBlock) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = dense_net();
  constexpr double damping = 0.05, learning_rate = 0.1;
  for (const double kl_clip : {0.0, 1e-4}) {
    NetworkRun run(comm, net, Strategy::uniform({}), 1, Values::reals, 11, local::ConvolutionBackend::automatic);
    Kfac<double, Exec> kfac(comm, run.queue, net, resolved("1", net, comm.size()), run.parameters,
                            {.damping = damping, .kl_clip = kl_clip});
    run.network.record_factors(kfac.begin(1, 1));
    run.step();
    std::vector<Fisher> blocks;
    for (const KfacLayer& layer : kfac.plan().layers) {
      Fisher f{layer.rows, layer.columns, gradient_of(run.parameters, layer.layer, layer.rows), {}, {}};
      for (Index i = 0; i < f.rows; ++i) f.g.push_back(f.gradient[static_cast<std::size_t>((i + 1) * f.columns - 1)]);
      for (Index j = 0; j < f.columns; ++j) f.a.push_back(f.gradient[static_cast<std::size_t>(j)] / f.g[0]);
      blocks.push_back(f);
    }
    kfac.precondition(run.queue, learning_rate, 1);
    std::vector<std::vector<double>> expected;
    double sum = 0;
    for (const Fisher& f : blocks) {
      double aa = 0, gg = 0;
      for (const double a : f.a) aa += a * a;
      for (const double g : f.g) gg += g * g;
      const double pi = std::sqrt(aa / static_cast<double>(f.columns) / (gg / static_cast<double>(f.rows)));
      const std::size_t n = f.gradient.size(), columns = f.a.size();
      std::vector<std::vector<double>> fisher(n, std::vector<double>(n));
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j) {
          const std::size_t r = i / columns, c = i % columns, s = j / columns, d = j % columns;
          ASSERT_NEAR(f.g[r] * f.g[s] * f.a[c] * f.a[d], f.gradient[i] * f.gradient[j], 1e-12);
          fisher[i][j] = (f.g[r] * f.g[s] + (r == s ? std::sqrt(damping) / pi : 0)) *
                         (f.a[c] * f.a[d] + (c == d ? std::sqrt(damping) * pi : 0));
        }
      expected.push_back(solve(fisher, f.gradient));
      for (std::size_t i = 0; i < n; ++i) sum += expected.back()[i] * f.gradient[i];
    }
    const double divergence = learning_rate * learning_rate * sum;
    const double scale = kl_clip > 0 ? std::min(1.0, std::sqrt(kl_clip / divergence)) : 1.0;
    EXPECT_EQ(scale<1, kl_clip> 0);
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      const std::vector<double> v = gradient_of(run.parameters, kfac.plan().layers[k].layer, blocks[k].rows);
      for (std::size_t i = 0; i < v.size(); ++i) EXPECT_NEAR(v[i], scale * expected[k][i], 1e-10) << k << ", " << i;
    }
  }
}

// --- splits ---

NetworkDescription mixed_net() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 7}, 3);
  net.loss = Loss::mean_squared_error;
  net.layers = {{"conv1", Convolution{4, square_window(2, 3, 1, 1), false}, {"input"}},
                {"norm", BatchNorm{}, {"conv1"}},
                {"relu", Relu{}, {"norm"}},
                {"conv2", Convolution{5, square_window(2, 3, 2, 1)}, {"relu"}},
                {"flatten", Flatten{}, {"conv2"}},
                {"fc", Dense{6}, {"flatten"}}};
  return net;
}

HostFlat learn(const comm::Communicator& comm, const std::string& split, const KfacOptions& options,
               std::vector<double>* losses = nullptr) {
  const NetworkDescription net = mixed_net();
  const Queue<> queue;
  Parameters<double> parameters(comm, queue, net, 6);
  Network<double> network(comm, queue, net, Strategy::uniform(LayerSplit::parse(split)), 8, parameters);
  Kfac<double, Exec> kfac(comm, queue, net, resolved(split, net, comm.size()), parameters, options);
  for (std::int64_t t = 1; t <= 9; ++t) {
    const auto stream = static_cast<std::uint64_t>(10 * t);
    fill<double>(network.input(), network.input_box(), network.input_distribution().extents(), Values::reals, 6,
                 stream + 2);
    fill<double>(network.targets(), network.output_box(), network.output_distribution().extents(), Values::reals, 6,
                 stream + 3);
    network.record_factors(kfac.begin(8, t));
    const StepResult result = network.train_step(queue);
    if (losses) losses->push_back(result.loss);
    kfac.precondition(queue, 0.05, t);
    parameters.sgd(queue, {.learning_rate = 0.05, .momentum = 0.5});
  }
  parameters.check_replicas(comm, queue, "test_kfac");  // the same bits on all ranks
  return parameters.gather_values(queue);
}

TEST(Kfac, LearnsTheSameInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  for (const KfacOptions& options :
       {KfacOptions{.every = 1}, KfacOptions{.every = 3, .factors_every = 2, .delay = 2}}) {
    const HostFlat alone = learn(self, "1", options);
    for (const std::string& split : splits(comm.size()))
      EXPECT_LE(largest_difference(learn(comm, split, options), alone), 1e-10) << split;
  }
}

TEST(Kfac, TakesTheMemoryThatThePlanSays) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = mixed_net();
  const Queue<> queue;
  Parameters<double> parameters(comm, queue, net, 6);
  for (const std::string& split : splits(comm.size())) {
    const std::vector<LayerSplit> of_layers = resolved(split, net, comm.size());
    const Kfac<double, Exec> kfac(comm, queue, net, of_layers, parameters, KfacOptions{});
    MachineDescription machine;
    machine.on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;
    const NetworkPlan layers = plan_network(net, of_layers, comm.size(), 8);
    const StepPlan step =
        plan_step(net, layers, comm.rank(), StepKind::training, machine, {.activations = ElementType::float64});
    EXPECT_EQ(cost_of_kfac(step, kfac.plan(), comm.rank(), machine).memory, kfac.bytes()) << split;
  }
}

/// An inverse that is there some milliseconds later, from another thread.
FactorSolver slow_solver() {
  return [](std::vector<double> matrix, Index order) {
    return std::async(std::launch::async, [matrix = std::move(matrix), order] {
      std::this_thread::sleep_for(std::chrono::milliseconds(order % 3));
      return serial_factor_solver()(matrix, order).get();
    });
  };
}

TEST(Kfac, HasTheSameBitsWithASolverBesideTheTraining) {
  const auto comm = aloni::test::make_communicator();
  const KfacOptions serial{.every = 3, .delay = 1};
  KfacOptions beside = serial;
  beside.solver = slow_solver();
  EXPECT_EQ(largest_difference(learn(comm, "1", serial), learn(comm, "1", beside)), 0);
}

TEST(Kfac, UsesAnInverseAfterItsDelay) {
  const auto self = aloni::test::make_communicator().split(aloni::test::make_communicator().rank(), 0);
  std::int64_t update = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;  // updates of the call, and of the first use
  KfacOptions options{.every = 4, .delay = 3};
  options.solver = [&](std::vector<double> matrix, Index order) {
    return std::async(std::launch::deferred, [&, matrix = std::move(matrix), order, called = update] {
      runs.emplace_back(called, update);  // runs in future.get()
      return serial_factor_solver()(matrix, order).get();
    });
  };
  const NetworkDescription net = dense_net();
  NetworkRun run(self, net, Strategy::uniform({}), 2, Values::reals, 3, local::ConvolutionBackend::automatic);
  Kfac<double, Exec> kfac(self, run.queue, net, resolved("1", net, 1), run.parameters, options);
  for (update = 1; update <= 9; ++update) {
    run.network.record_factors(kfac.begin(2, update));
    run.step(static_cast<std::uint64_t>(update));
    kfac.precondition(run.queue, 0.1, update);
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> expected;
  for (const auto& times : {std::pair(1, 1), std::pair(5, 8)})
    for (int factors = 0; factors < 4; ++factors) expected.emplace_back(times);
  EXPECT_EQ(runs, expected);
}

TEST(Kfac, NeedsFactors) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = dense_net();
  NetworkRun run(comm, net, Strategy::uniform({}), 2, Values::reals, 3, local::ConvolutionBackend::automatic);
  Kfac<double, Exec> kfac(comm, run.queue, net, resolved("1", net, comm.size()), run.parameters, {});
  EXPECT_THROW(kfac.precondition(run.queue, 0.1, 1), InvalidArgument);
}

TEST(Kfac, ErrorsOfASolverReachAllRanks) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = dense_net();
  NetworkRun run(comm, net, Strategy::uniform({}), 2, Values::reals, 3, local::ConvolutionBackend::automatic);
  KfacOptions options;
  options.solver = [](std::vector<double>, Index) -> std::future<std::vector<double>> {
    throw FactorisationError("test", "column 0", "-1", "a positive pivot");
  };
  Kfac<double, Exec> kfac(comm, run.queue, net, resolved("1", net, comm.size()), run.parameters, options);
  run.network.record_factors(kfac.begin(2, 1));
  run.step();
  const bool owns = std::ranges::any_of(kfac.plan().layers, [&](const KfacLayer& l) { return l.owner == comm.rank(); });
  if (owns) {
    EXPECT_THROW(kfac.precondition(run.queue, 0.1, 1), FactorisationError);
  } else {
    EXPECT_THROW(kfac.precondition(run.queue, 0.1, 1), PeerFailed);
  }
}

// --- training ---

TrainOptions training(std::int64_t steps) {
  TrainOptions options{.batch = 8, .steps = steps, .seed = 5};
  options.optimiser = SgdOptions{.learning_rate = 0.02};
  options.kfac = KfacOptions{.every = 5, .delay = 3};
  return options;
}

TEST(Kfac, TrainsWithTheSameLossesInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  const TrainOptions options = training(12);
  const std::vector<double> expected = train_small_net(self, "1", options).losses;
  TrainOptions plain = options;
  plain.kfac.reset();
  EXPECT_NE(expected.back(), train_small_net(self, "1", plain).losses.back());
  for (const std::string& split : splits(comm.size())) {
    const std::vector<double> losses = train_small_net(comm, split, options).losses;
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) ASSERT_NEAR(losses[i], expected[i], 1e-10) << split << ", " << i;
  }
}

/// Without dropout and normalisation, whose results depend on the micro-batches.
TEST(Kfac, AddsTheFactorsOfMicroBatches) {
  const auto comm = aloni::test::make_communicator();
  NetworkDescription net = small_net();
  net.layers = {{"conv1", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}},
                {"flatten", Flatten{}, {"conv1"}},
                {"fc", Dense{7}, {"flatten"}}};
  TrainOptions options = training(8);
  const auto losses = [&] {
    return train<double>(comm, net, Strategy::uniform({}), noise(38), noise(9), options).losses;
  };
  const std::vector<double> whole = losses();
  options.accumulate = 4;
  const std::vector<double> parts = losses();
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-10) << i;
}

TEST(Kfac, RestartsWithTheSameBits) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  const std::string split = splits(comm.size()).back();
  TrainOptions options = training(14);
  options.kfac->solver = slow_solver();
  const TrainReport whole = train_small_net(comm, split, options);
  for (const std::int64_t step : {1, 5, 7}) {  // after step 7 inverses wait for update 9
    const SharedFolder folder(comm), other(comm);
    for (const SharedFolder* f : {&folder, &other}) {
      TrainOptions first = options;
      std::int64_t asked = 0;
      first.checkpoint.folder = f->path("checkpoints");
      first.checkpoint.stop = [&] { return ++asked == step; };
      EXPECT_TRUE(train_small_net(comm, split, first).stopped);
    }
    TrainOptions second = options;
    second.checkpoint = {.folder = folder.path("checkpoints"), .resume = true};
    const TrainReport resumed = train_small_net(comm, split, second);
    EXPECT_EQ(resumed.resumed_at, step);
    EXPECT_EQ(resumed.losses, whole.losses) << step;
    second.kfac.reset();
    EXPECT_THROW(train_small_net(comm, split, second), InvalidArgument);  // the checkpoint is that of K-FAC
    if (comm.rank() != 0) continue;
    second = options;  // one rank owns all layers
    second.checkpoint = {.folder = other.path("checkpoints"), .resume = true};
    const TrainReport alone = train_small_net(self, "1", second);
    EXPECT_EQ(alone.resumed_at, step);
    ASSERT_EQ(alone.losses.size(), whole.losses.size());
    for (std::size_t i = 0; i < alone.losses.size(); ++i) EXPECT_NEAR(alone.losses[i], whole.losses[i], 1e-10) << i;
  }
}

TEST(Kfac, RefusesATrainingThatItCannotServe) {
  const auto comm = aloni::test::make_communicator();
  TrainOptions options = training(3);
  options.optimiser = AdamOptions{};
  EXPECT_THROW(train_small_net(comm, splits(comm.size()).back(), options), Unsupported);
  options = training(3);
  options.gradients = GradientReduction::majority;
  EXPECT_THROW(train_small_net(comm, "1", options), Unsupported);
  options = training(3);
  options.kfac->damping = -1;
  EXPECT_THROW(train_small_net(comm, "1", options), InvalidArgument);
  if (comm.size() % 2 != 0) return;
  try {
    train_small_net(comm, "f2", training(3));
    ADD_FAILURE();
  } catch (const Unsupported& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("conv1"), HasSubstr("f2")));
  }
}

}  // namespace test_kfac
}  // namespace aloni::nn::test
