// Updates of parameters: in the graph of a step and after it, by each optimiser, with and without clipping, in every
// split.
#include "host_flat.hpp"
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/partial_all_reduce.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn::test {
namespace test_update {

NetworkDescription net() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 7}, 6);
  net.loss = Loss::mean_squared_error;
  net.layers = {{"conv", Convolution{10, square_window(2, 3, 1, 1)}, {"input"}},
                {"norm", BatchNorm{}, {"conv"}},
                {"relu", Relu{}, {"norm"}},
                {"groups", Convolution{15, square_window(2, 3, 2, 1), true, 5}, {"relu"}},
                {"up", TransposedConvolution{4, square_window(2, 2, 2, 0)}, {"groups"}}};
  return net;
}

std::vector<LayerSplit> splits(int ranks) {
  std::vector<LayerSplit> some;
  for (const char* text : {"1", "n2", "h2", "c2", "f2", "h3", "f3", "n2f2", "c2f2", "h2w2"}) {
    const LayerSplit split = LayerSplit::parse(text);
    if (ranks % split.size() == 0) some.push_back(split);
  }
  return some;
}

/// The optimiser of a step: the learning rate falls.
Optimiser sgd_at(std::int64_t step) {
  return SgdOptions{.learning_rate = 0.1 / static_cast<double>(step), .momentum = 0.9, .weight_decay = 0.01};
}
Optimiser adam_at(std::int64_t step) {
  return AdamOptions{.learning_rate = 0.01 / static_cast<double>(step),
                     .epsilon = 1e-3,
                     .weight_decay = 0.01,
                     .decay = WeightDecay::decoupled};
}
Optimiser nesterov_at(std::int64_t step) {
  return SgdOptions{
      .learning_rate = 0.1 / static_cast<double>(step), .momentum = 0.8, .weight_decay = 0.01, .nesterov = true};
}
Optimiser lars_at(std::int64_t step) {
  return LarsOptions{
      .learning_rate = 2.0 / static_cast<double>(step), .momentum = 0.9, .weight_decay = 0.01, .trust = 0.01};
}
using OptimiserAt = Optimiser (*)(std::int64_t);

/// An update whose options depend on its number.
struct Rule {
  const char* name;
  OptimiserAt at;
  UpdateOptions options = {};

  OptimiserKind kind() const { return kind_of(at(1)); }
  friend std::ostream& operator<<(std::ostream& out, const Rule& rule) { return out << rule.name; }
};

enum class Update { in_the_graph, after_the_step };

/// A network with its parameters and one mini-batch.
struct Learner {
  Queue<> queue;
  Parameters<double> parameters;
  Network<double> network;

  Learner(const comm::Communicator& comm, const LayerSplit& split, Weights weights, OptimiserKind kind,
          const NetworkOptions& options, const UpdateOptions& update = {})
      : parameters(weights == Weights::whole
                       ? Parameters<double>(comm, queue, net(), 6, ParameterUse::training, kind, update)
                       : Parameters<double>(comm, queue, net(), resolve(Strategy::uniform(split), net(), comm.size()),
                                            6, ParameterUse::training, kind, update)),
        network(comm, queue, net(), Strategy::uniform(split), 4, parameters, options) {
    fill<double>(network.input(), network.input_box(), network.input_distribution().extents(), Values::reals, 6, 2);
    fill<double>(network.targets(), network.output_box(), network.output_distribution().extents(), Values::reals, 6, 3);
  }
};

struct Learned {
  HostFlat values;
  std::vector<HostFlat> states;
  std::vector<double> losses;
};

Learned learn(const comm::Communicator& comm, const LayerSplit& split, Weights weights, const Rule& rule, Update update,
              std::uint64_t schedule_seed = 0) {
  Learner l(comm, split, weights, rule.kind(),
            {.update = update == Update::in_the_graph, .schedule_seed = schedule_seed}, rule.options);
  Learned learned;
  for (std::int64_t step = 1; step <= 4; ++step) {
    if (update == Update::in_the_graph) {
      learned.losses.push_back(l.network.train_step(l.queue, rule.at(step), step).loss);
    } else {
      learned.losses.push_back(l.network.train_step(l.queue).loss);
      l.network.evaluate(l.queue);  // leaves the gradients as they are
      l.parameters.update(l.queue, rule.at(step), step);
    }
    l.network.evaluate(l.queue);
  }
  l.parameters.check_replicas(comm, l.queue, "test_update");  // all ranks that keep a tensor have the same bits
  learned.values = l.parameters.gather_values(l.queue);
  for (std::size_t k = 0; k < properties_of(rule.kind()).states.size(); ++k)
    learned.states.push_back(l.parameters.gather_state(l.queue, static_cast<int>(k)));
  return learned;
}

class UpdateBy : public testing::TestWithParam<Rule> {};
INSTANTIATE_TEST_SUITE_P(Rules, UpdateBy,
                         testing::Values(Rule{"sgd", &sgd_at}, Rule{"nesterov", &nesterov_at}, Rule{"adam", &adam_at},
                                         Rule{"lars", &lars_at}, Rule{"clipped_sgd", &sgd_at, {.max_norm = 0.1}},
                                         Rule{"clipped_adam", &adam_at, {.max_norm = 0.1}},
                                         Rule{"clipped_lars", &lars_at, {.max_norm = 0.1}},
                                         Rule{"scaled_adam", &adam_at, {.loss_scaling = LossScaling{}}}),
                         [](const auto& p) { return std::string(p.param.name); });

TEST_P(UpdateBy, InEverySplitEqualsThatOfOneRank) {
  const auto comm = aloni::test::make_communicator();
  const Learned expected = learn(comm.split(comm.rank(), 0), {}, Weights::whole, GetParam(), Update::after_the_step);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  for (const LayerSplit& split : splits(comm.size())) {
    for (const Weights weights : {Weights::whole, Weights::split}) {
      SCOPED_TRACE(to_string(split) + (weights == Weights::split ? ", split weights" : ""));
      const Learned found = learn(comm, split, weights, GetParam(), Update::in_the_graph);
      EXPECT_LE(largest_difference(found.values, expected.values), 1e-10);
      for (std::size_t k = 0; k < expected.states.size(); ++k)
        EXPECT_LE(largest_difference(found.states[k], expected.states[k]), 1e-10) << "state " << k;
      for (std::size_t i = 0; i < expected.losses.size(); ++i)
        EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-10) << "step " << i;
    }
  }
}

TEST_P(UpdateBy, InTheGraphHasTheBitsOfTheOneAfterTheStep) {
  const auto comm = aloni::test::make_communicator();
  for (const LayerSplit& split : splits(comm.size())) {
    SCOPED_TRACE(to_string(split));
    const Learned after = learn(comm, split, Weights::split, GetParam(), Update::after_the_step);
    for (const std::uint64_t schedule_seed : {0, 7}) {  // in random allowed orders too
      const Learned inside = learn(comm, split, Weights::split, GetParam(), Update::in_the_graph, schedule_seed);
      EXPECT_EQ(largest_difference(inside.values, after.values), 0);
      for (std::size_t k = 0; k < after.states.size(); ++k)
        EXPECT_EQ(largest_difference(inside.states[k], after.states[k]), 0);
      EXPECT_EQ(inside.losses, after.losses);
    }
  }
}

/// Algorithm 1 of Kingma and Ba in double, with the gradients of the network.
TEST(Update, ByAdamFollowsTheAlgorithm) {
  const auto comm = aloni::test::make_communicator();
  Learner l(comm, {}, Weights::whole, OptimiserKind::adam, {});
  const HostFlat w = l.parameters.gather_values(l.queue), m("m", w.extent(0)), v("v", w.extent(0));
  for (int t = 1; t <= 3; ++t) {
    l.network.train_step(l.queue);
    const HostFlat g = l.parameters.gather_gradients(l.queue);
    l.parameters.update(l.queue, AdamOptions{.learning_rate = 0.02, .beta1 = 0.7, .beta2 = 0.9, .epsilon = 1e-2}, t);
    for (std::size_t i = 0; i < w.extent(0); ++i) {
      m(i) = 0.7 * m(i) + 0.3 * g(i);
      v(i) = 0.9 * v(i) + 0.1 * g(i) * g(i);
      w(i) -= 0.02 * (m(i) / (1 - std::pow(0.7, t))) / (std::sqrt(v(i) / (1 - std::pow(0.9, t))) + 1e-2);
    }
    EXPECT_LE(largest_difference(l.parameters.gather_values(l.queue), w), 1e-12) << "update " << t;
  }
}

/// The square root of the sum of squares of the elements [first, end).
double norm_of(const HostFlat& all, std::size_t first, std::size_t end) {
  double sum = 0;
  for (std::size_t i = first; i < end; ++i) sum += all(i) * all(i);
  return std::sqrt(sum);
}

/// Momentum with the gradients that torch.nn.utils.clip_grad_norm_ leaves, in double.
TEST(Update, ClipsGradientsByTheirGlobalNorm) {
  const auto comm = aloni::test::make_communicator();
  Learner once(comm, {}, Weights::whole, OptimiserKind::sgd, {});
  once.network.train_step(once.queue);
  const HostFlat first = once.parameters.gather_gradients(once.queue);
  const double norm = norm_of(first, 0, first.extent(0));
  for (const double max_norm : {0.3 * norm, 3 * norm}) {
    Learner l(comm, {}, Weights::whole, OptimiserKind::sgd, {}, {.max_norm = max_norm});
    const HostFlat w = l.parameters.gather_values(l.queue), v("v", w.extent(0));
    for (int t = 1; t <= 3; ++t) {
      l.network.train_step(l.queue);
      const HostFlat g = l.parameters.gather_gradients(l.queue);
      l.parameters.sgd(l.queue, {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.02});
      const double present = norm_of(g, 0, g.extent(0)), clip = std::min(1.0, max_norm / (present + 1e-6));
      if (t == 1) {
        EXPECT_EQ(clip < 1, max_norm < norm);
      }
      for (std::size_t i = 0; i < w.extent(0); ++i) {
        v(i) = 0.9 * v(i) + clip * g(i) + 0.02 * w(i);
        w(i) -= 0.1 * v(i);
      }
      EXPECT_NEAR(l.parameters.norms()->norm(l.queue), present, 1e-12 * present);
      EXPECT_LE(largest_difference(l.parameters.gather_values(l.queue), w), 1e-12) << "update " << t;
      EXPECT_EQ(largest_difference(l.parameters.gather_gradients(l.queue), g), 0);  // stay as they are
    }
  }
}

/// All scales are powers of two, so that no number is rounded. Both have a factor of the gradients, with which the
/// compiler contracts products and sums alike.
TEST(Update, ByScaledGradientsHasTheBitsOfThatByTheGradients) {
  const auto comm = aloni::test::make_communicator();
  const LossScaling scaling{.initial = 1024, .interval = 2};
  const UpdateOptions never_clipped{.max_norm = 1e9};
  for (const Rule& rule : {Rule{"sgd", &sgd_at, never_clipped}, Rule{"nesterov", &nesterov_at, never_clipped},
                           Rule{"adam", &adam_at, never_clipped}, Rule{"lars", &lars_at, never_clipped},
                           Rule{"clipped_lars", &lars_at, {.max_norm = 0.1}}}) {
    Rule scaled = rule;
    scaled.options.loss_scaling = scaling;
    for (const LayerSplit& split : splits(comm.size())) {
      SCOPED_TRACE(std::string(rule.name) + ", " + to_string(split));
      const Learned expected = learn(comm, split, Weights::split, rule, Update::in_the_graph);
      const Learned found = learn(comm, split, Weights::split, scaled, Update::in_the_graph);
      EXPECT_EQ(largest_difference(found.values, expected.values), 0);
      for (std::size_t k = 0; k < expected.states.size(); ++k)
        EXPECT_EQ(largest_difference(found.states[k], expected.states[k]), 0) << "state " << k;
      EXPECT_EQ(found.losses, expected.losses);
    }
  }
}

TEST(Update, IsSkippedOnAllRanksWhereOneHasGradientsThatAreNotFinite) {
  const auto comm = aloni::test::make_communicator();
  const LossScaling scaling{.initial = 64, .interval = 2};
  for (const Rule& rule : {Rule{"sgd", &sgd_at}, Rule{"adam", &adam_at}, Rule{"lars", &lars_at}}) {
    for (const LayerSplit& split : splits(comm.size())) {
      SCOPED_TRACE(std::string(rule.name) + ", " + to_string(split));
      Learner l(comm, split, Weights::split, rule.kind(), {}, {.max_norm = 100, .loss_scaling = scaling});
      const auto step = [&](std::optional<double> poison) {
        l.network.train_step(l.queue);
        const auto& segment = l.parameters.segments().back();  // split, if any is
        if (poison && comm.rank() % segment.blocks == 0 && segment.values.extent(0) > 0)
          Kokkos::deep_copy(Kokkos::subview(segment.gradients, 0), *poison);
        l.parameters.update(l.queue, rule.at(1), 1);
        return l.parameters.adapt_loss_scale(l.queue);
      };
      EXPECT_TRUE(step({}));
      for (const double poison : {std::numeric_limits<double>::infinity(), std::nan("")}) {
        const HostFlat values = l.parameters.gather_values(l.queue), state = l.parameters.gather_state(l.queue, 0);
        const double before = l.parameters.loss_scale();
        EXPECT_FALSE(step(poison));
        EXPECT_EQ(largest_difference(l.parameters.gather_values(l.queue), values), 0);
        EXPECT_EQ(largest_difference(l.parameters.gather_state(l.queue, 0), state), 0);
        EXPECT_EQ(l.parameters.loss_scale(), before / 2);
      }
      EXPECT_EQ(l.parameters.loss_scale_state(), (LossScale{.value = 16, .skipped = 2, .skipped_in_all = 2}));
      const HostFlat values = l.parameters.gather_values(l.queue);
      EXPECT_TRUE(step({}));
      EXPECT_GT(largest_difference(l.parameters.gather_values(l.queue), values), 0);
      EXPECT_TRUE(step({}));
      EXPECT_EQ(l.parameters.loss_scale(), 32);
    }
  }
}

TEST(Update, EachLossScalesItsGradient) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  for (const Loss loss : {Loss::softmax_cross_entropy, Loss::binary_cross_entropy, Loss::pixel_cross_entropy,
                          Loss::mean_squared_error, Loss::dice}) {
    NetworkDescription one = net();
    one.loss = loss;
    if (loss == Loss::softmax_cross_entropy) {
      one.layers.push_back({"flatten", Flatten{}, {one.layers.back().name}});
      one.layers.push_back({"dense", Dense{5}, {"flatten"}});
    }
    const auto gradients = [&](const UpdateOptions& update) {
      Parameters<double> parameters(comm, queue, one, 6, ParameterUse::training, OptimiserKind::sgd, update);
      Network<double> network(comm, queue, one, Strategy::uniform(LayerSplit::parse("n" + std::to_string(comm.size()))),
                              4, parameters);
      fill<double>(network.input(), network.input_box(), network.input_distribution().extents(), Values::reals, 6, 2);
      if (targets_of(loss) == LossTargets::elements)
        fill<double>(network.targets(), network.output_box(), network.output_distribution().extents(), Values::reals, 6,
                     3);
      const double of_step = network.train_step(queue).loss;
      return std::pair(of_step, parameters.gather_gradients(queue));
    };
    const auto [expected_loss, expected] = gradients({});
    const auto [scaled_loss, scaled] = gradients({.loss_scaling = LossScaling{.initial = 256}});
    EXPECT_EQ(scaled_loss, expected_loss);
    double largest = 0;
    Index wrong = 0;
    for (std::size_t i = 0; i < expected.extent(0); ++i) {
      wrong += scaled(i) != 256 * expected(i);
      largest = std::max(largest, std::abs(expected(i)));
    }
    EXPECT_EQ(wrong, 0) << name(loss);
    EXPECT_GT(largest, 0) << name(loss);
  }
}

TEST(Update, PassesANormThatIsNotANumberOn) {
  const auto comm = aloni::test::make_communicator();
  Learner l(comm, {}, Weights::whole, OptimiserKind::sgd, {}, {.max_norm = 1});
  l.network.train_step(l.queue);
  Kokkos::deep_copy(l.parameters.vector_gradient(1), std::nan(""));
  l.parameters.sgd(l.queue, {});
  EXPECT_TRUE(std::isnan(l.parameters.gather_values(l.queue)(0)));
}

/// Algorithm 1 of You, Gitman and Ginsburg in double, with the gradients of the network.
TEST(Update, ByLarsFollowsTheAlgorithm) {
  const auto comm = aloni::test::make_communicator();
  Learner l(comm, {}, Weights::whole, OptimiserKind::lars, {});
  const LarsOptions options{.learning_rate = 1.5, .momentum = 0.7, .weight_decay = 0.03, .trust = 0.02, .epsilon = 0.1};
  const HostFlat w = l.parameters.gather_values(l.queue), v("v", w.extent(0));
  for (int t = 1; t <= 3; ++t) {
    l.network.train_step(l.queue);
    const HostFlat g = l.parameters.gather_gradients(l.queue);
    l.parameters.update(l.queue, options, t);
    std::size_t first = 0;
    for (const ParameterDescription& tensor : l.parameters.descriptions()) {
      const std::size_t end = first + static_cast<std::size_t>(tensor.extents.size());
      const bool adapts = tensor.name.ends_with(".weight");
      const double size = norm_of(w, first, end), slope = norm_of(g, first, end);
      const double rate = adapts ? 0.02 * size / (slope + 0.03 * size + 0.1) : 1, decay = adapts ? 0.03 : 0;
      for (std::size_t i = first; i < end; ++i) {
        v(i) = 0.7 * v(i) + 1.5 * rate * (g(i) + decay * w(i));
        w(i) -= v(i);
      }
      first = end;
    }
    EXPECT_LE(largest_difference(l.parameters.gather_values(l.queue), w), 1e-12) << "update " << t;
  }
}

TEST(Update, ByLarsHasRateOneWhereANormIsZero) {
  const auto comm = aloni::test::make_communicator();
  Learner l(comm, {}, Weights::whole, OptimiserKind::lars, {});
  l.network.train_step(l.queue);
  const auto weight = l.parameters.value(0);
  Kokkos::deep_copy(weight, 0.0);
  const HostFlat g = l.parameters.gather_gradients(l.queue);
  l.parameters.update(l.queue, LarsOptions{.learning_rate = 0.5}, 1);
  const HostFlat w = l.parameters.gather_values(l.queue);
  for (std::size_t i = 0; i < weight.size(); ++i) EXPECT_EQ(w(i), -0.5 * g(i));
}

/// The loop of torch.optim.SGD with nesterov=True, in double, with the gradients of the network.
TEST(Update, ByNesterovMomentumFollowsTheAlgorithm) {
  const auto comm = aloni::test::make_communicator();
  Learner l(comm, {}, Weights::whole, OptimiserKind::sgd, {});
  const HostFlat w = l.parameters.gather_values(l.queue), v("v", w.extent(0));
  for (int t = 1; t <= 4; ++t) {
    l.network.train_step(l.queue);
    const HostFlat g = l.parameters.gather_gradients(l.queue);
    l.parameters.sgd(l.queue, {.learning_rate = 0.05, .momentum = 0.8, .weight_decay = 0.02, .nesterov = true});
    for (std::size_t i = 0; i < w.extent(0); ++i) {
      const double d = g(i) + 0.02 * w(i);
      v(i) = 0.8 * v(i) + d;
      w(i) -= 0.05 * (d + 0.8 * v(i));
    }
    EXPECT_LE(largest_difference(l.parameters.gather_values(l.queue), w), 1e-12) << "update " << t;
  }
}

/// Without batch normalisation, whose statistics are those of a micro-batch.
NetworkDescription without_statistics() {
  NetworkDescription network = net();
  network.layers[1] = {"norm", LayerNorm{}, {"conv"}};
  return network;
}

/// Gives a network the samples first, first + 1, … of a mini-batch.
void fill_from(Network<double>& network, Index first, double factor = 1) {
  const auto one = [&](const auto& view, const Box& box, const Extents& whole, std::uint64_t stream) {
    const Index offset = first * (whole.size() / whole[Dim::sample]);
    const auto host = on_host(view);
    for_each_index(box, whole, [&](const auto& i, Index position) {
      host(i[0], i[1], i[2], i[3], i[4]) = factor * value_at<double>(Values::reals, 6, stream, position + offset);
    });
    Kokkos::deep_copy(view, Kokkos::create_mirror_view_and_copy(Network<double>::Mem{}, host));
  };
  one(network.input(), network.input_box(), network.input_distribution().extents(), 2);
  one(network.targets(), network.output_box(), network.output_distribution().extents(), 3);
}

/// Mini-batches of 10 samples, as 4, 4 and 2.
struct MicroBatches {
  Queue<> queue;
  Parameters<double> parameters;
  Network<double> four, two;

  MicroBatches(const comm::Communicator& comm, const LayerSplit& split, const NetworkOptions& options)
      : parameters(comm, queue, without_statistics(),
                   resolve(Strategy::uniform(split), without_statistics(), comm.size()), 6, ParameterUse::accumulation,
                   OptimiserKind::adam, {.max_norm = 0.1}),
        four(comm, queue, without_statistics(), Strategy::uniform(split), 4, parameters, options),
        two(comm, queue, without_statistics(), Strategy::uniform(split), 2, parameters, options) {}

  void add_all_but_the_last(double factor = 1) {
    for (const Index first : {0, 4}) {
      fill_from(four, first, factor);
      four.add_gradients(queue);
    }
    fill_from(two, 8, factor);
  }
};

TEST(Update, OfMicroBatchesOfTwoSizesIsThatOfTheMiniBatch) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  const Queue<> queue;
  Parameters<double> alone(self, queue, without_statistics(), 6, ParameterUse::training, OptimiserKind::adam,
                           {.max_norm = 0.1});
  Network<double> whole(self, queue, without_statistics(), Strategy::uniform({}), 10, alone, {.update = true});
  fill_from(whole, 0);
  std::vector<double> expected;
  for (std::int64_t step = 1; step <= 3; ++step) expected.push_back(whole.train_step(queue, adam_at(step), step).loss);
  const HostFlat values = alone.gather_values(queue);
  for (const LayerSplit& split : splits(comm.size())) {
    for (const bool beside : {true, false}) {
      for (const std::uint64_t schedule_seed : {0, 7}) {  // in random allowed orders too
        SCOPED_TRACE(to_string(split) + (beside ? ", sums beside the backward pass" : ""));
        MicroBatches micro(comm, split,
                           {.update = true, .schedule_seed = schedule_seed, .sums_beside_backward = beside});
        for (std::int64_t step = 1; step <= 3; ++step) {
          micro.add_all_but_the_last();
          EXPECT_EQ(micro.parameters.gradient_sum()->samples(), 8);
          EXPECT_NEAR(micro.two.train_step(micro.queue, adam_at(step), step).loss,
                      expected[static_cast<std::size_t>(step) - 1], 1e-10);
          EXPECT_EQ(micro.parameters.gradient_sum()->samples(), 0);
        }
        EXPECT_LE(largest_difference(micro.parameters.gather_values(micro.queue), values), 1e-10);
      }
    }
  }
}

/// Gradients that are not finite stay in their mini-batch. A mini-batch may be one micro-batch.
TEST(Update, MicroBatchesForgetThoseOfTheMiniBatchBefore) {
  const auto comm = aloni::test::make_communicator();
  for (const LayerSplit& split : splits(comm.size())) {
    SCOPED_TRACE(to_string(split));
    MicroBatches micro(comm, split, {});
    fill_from(micro.two, 8);
    const double loss = micro.two.train_step(micro.queue).loss;
    const HostFlat expected = micro.parameters.gather_gradients(micro.queue);
    micro.add_all_but_the_last(std::numeric_limits<double>::quiet_NaN());
    EXPECT_TRUE(std::isnan(micro.two.train_step(micro.queue).loss));
    fill_from(micro.two, 8);
    EXPECT_EQ(micro.two.train_step(micro.queue).loss, loss);
    EXPECT_EQ(largest_difference(micro.parameters.gather_gradients(micro.queue), expected), 0);
    micro.add_all_but_the_last();
    EXPECT_TRUE(std::isfinite(micro.two.train_step(micro.queue).loss));
    EXPECT_GT(largest_difference(micro.parameters.gather_gradients(micro.queue), expected), 0);
  }
}

/// Of two micro-batches of four samples, all labels of one are right, and one label of the other.
TEST(Update, MicroBatchesCountCorrectPredictions) {
  const auto comm = aloni::test::make_communicator();
  NetworkDescription classes;
  classes.spatial_rank = 2;
  classes.input = views::make_extents(1, {1, 1}, 3);
  classes.layers = {{"flatten", Flatten{}, {"input"}}};
  const Queue<> queue;
  Parameters<double> parameters(comm, queue, classes, 1, ParameterUse::accumulation);
  Network<double> network(comm, queue, classes, Strategy::uniform({}), 4, parameters);
  Kokkos::deep_copy(network.input(), 0.0);
  Kokkos::deep_copy(Kokkos::subview(network.input(), Kokkos::ALL, 0, 0, 0, 2), 5.0);  // all are of class 2
  Kokkos::deep_copy(network.labels(), 2);
  network.add_gradients(queue);
  Kokkos::deep_copy(network.labels(), 1);
  if (network.labels().extent(0) > 0 && network.output_box().lower(Dim::sample) == 0)
    Kokkos::deep_copy(Kokkos::subview(network.labels(), 0), 2);
  EXPECT_EQ(network.train_step(queue).correct, 5);
}

TEST(Update, MicroBatchesNeedParametersWithASum) {
  const auto comm = aloni::test::make_communicator();
  Learner plain(comm, {}, Weights::whole, OptimiserKind::sgd, {});
  EXPECT_EQ(plain.parameters.gradient_sum(), nullptr);
  EXPECT_THROW(plain.network.add_gradients(plain.queue), InvalidArgument);
}

TEST(Update, BySgdHasTheBitsOfItsFormula) {
  const auto comm = aloni::test::make_communicator();
  Learner l(comm, {}, Weights::whole, OptimiserKind::sgd, {});
  const HostFlat w = l.parameters.gather_values(l.queue);
  l.network.train_step(l.queue);
  const HostFlat g = l.parameters.gather_gradients(l.queue);
  l.parameters.sgd(l.queue, {.learning_rate = 0.5, .momentum = 0, .weight_decay = 0});
  for (std::size_t i = 0; i < w.extent(0); ++i) w(i) -= 0.5 * g(i);
  EXPECT_EQ(largest_difference(l.parameters.gather_values(l.queue), w), 0);
}

TEST(Update, StateCanBeWrittenAndReadInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  for (const LayerSplit& split : splits(comm.size())) {
    const Parameters<double> parameters(comm, queue, net(), resolve(Strategy::uniform(split), net(), comm.size()), 1,
                                        ParameterUse::training, OptimiserKind::adam);
    const HostFlat numbers("aloni::test", parameters.gather_values(queue).extent(0));
    for (std::size_t i = 0; i < numbers.extent(0); ++i) numbers(i) = static_cast<double>(i);
    parameters.scatter_state(queue, 1, numbers);
    EXPECT_EQ(largest_difference(parameters.gather_state(queue, 1), numbers), 0);
    EXPECT_EQ(largest_difference(parameters.gather_state(queue, 0), HostFlat("zero", numbers.extent(0))), 0);
    EXPECT_EQ(parameters.state(0, 1).size(), parameters.value(0).size());
  }
}

TEST(Update, MemoryIsThatOfThePlan) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  for (const Rule& rule :
       {Rule{"sgd", &sgd_at}, Rule{"adam", &adam_at}, Rule{"lars", &lars_at}, Rule{"clipped", &sgd_at, {.max_norm = 1}},
        Rule{"scaled", &sgd_at, {.loss_scaling = LossScaling{}}}}) {
    const OptimiserKind kind = rule.kind();
    for (const LayerSplit& split : splits(comm.size())) {
      const bool accumulates = split.filters > 1;
      const auto all = resolve(Strategy::uniform(split), net(), comm.size());
      const Parameters<float> parameters(comm, queue, net(), all, 1,
                                         accumulates ? ParameterUse::accumulation : ParameterUse::training, kind,
                                         rule.options);
      const StepPlan plan =
          plan_step(net(), plan_network(net(), all, comm.size(), 4), comm.rank(), StepKind::training, {},
                    {.accumulates = accumulates, .optimiser = kind, .update_options = rule.options});
      const PlanMemoryUse use = memory_of(plan);
      EXPECT_EQ(use.of(BufferRole::gradient_sums), accumulates ? use.of(BufferRole::parameter_gradients) : 0);
      const Index planned = use.of(BufferRole::parameters) + use.of(BufferRole::parameter_gradients) +
                            use.of(BufferRole::gradient_sums) + use.of(BufferRole::optimiser);
      Index unused = 0;  // an empty tensor has one element, so that it has an address
      for (int i = 0; i < static_cast<int>(parameters.descriptions().size()); ++i)
        unused += parameters.kept(i).empty() ? 1 : 0;
      const Index sums = accumulates ? 1 : 0;
      const auto arrays = static_cast<Index>(2 + properties_of(kind).states.size()) + sums;
      EXPECT_EQ(parameters.bytes(), planned + (arrays * unused + (1 + sums) * Parameters<float>::tail) * 4)
          << to_string(split);
    }
  }
}

TEST(Update, RefusesAnOptimiserThatDoesNotFit) {
  const auto comm = aloni::test::make_communicator();
  Learner sgd(comm, {}, Weights::whole, OptimiserKind::sgd, {}),
      inside(comm, {}, Weights::whole, OptimiserKind::adam, {.update = true});
  EXPECT_THROW(sgd.parameters.update(sgd.queue, AdamOptions{}, 1), InvalidArgument);
  EXPECT_THROW(sgd.parameters.update(sgd.queue, SgdOptions{}, 0), InvalidArgument);
  EXPECT_THROW(sgd.parameters.sgd(sgd.queue, {.momentum = 1}), InvalidArgument);
  EXPECT_THROW(inside.parameters.sgd(inside.queue, {}), InvalidArgument);
  EXPECT_THROW(sgd.network.train_step(sgd.queue, SgdOptions{}, 1), InvalidArgument);  // without options.update
  EXPECT_THROW(inside.network.train_step(inside.queue), InvalidArgument);
  EXPECT_THROW(inside.network.train_step(inside.queue, SgdOptions{}, 1), InvalidArgument);
  EXPECT_THROW(inside.network.train_step(inside.queue, AdamOptions{.beta1 = 1}, 1), InvalidArgument);
  EXPECT_THROW(inside.network.train_step(inside.queue, AdamOptions{}, 0), InvalidArgument);
  for (const double max_norm : {0.0, -1.0, std::nan("")}) {
    EXPECT_THROW(Parameters<double>(comm, sgd.queue, net(), 1, ParameterUse::training, OptimiserKind::sgd,
                                    {.max_norm = max_norm}),
                 InvalidArgument);
  }
  EXPECT_THROW(Parameters<double>(comm, sgd.queue, net(), 1, ParameterUse::training, OptimiserKind::sgd,
                                  {.loss_scaling = LossScaling{.initial = 0}}),
               InvalidArgument);
  EXPECT_THROW(sgd.parameters.adapt_loss_scale(sgd.queue), InvalidArgument);
  comm::PartialAllReduce<double> partial(comm, inside.parameters.gradients().extent(0));
  EXPECT_THROW(inside.network.train_step(inside.queue, &partial), InvalidArgument);
  EXPECT_THROW(Network<double>(comm, sgd.queue, net(), {}, 4, sgd.parameters, {.inference = true, .update = true}),
               InvalidArgument);
}

/// The result of each step, and the gradients that it leaves. Each rank has the same sample. `partial`: one rank is
/// enough for a round, and the ranks come late by turns.
std::vector<std::pair<double, HostFlat>> steps_on_equal_samples(const comm::Communicator& comm, bool partial) {
  NetworkDescription small;
  small.spatial_rank = 2;
  small.input = views::make_extents(1, {8, 7}, 6);
  small.loss = Loss::mean_squared_error;
  small.layers = {{"conv", Convolution{4, square_window(2, 3, 1, 1)}, {"input"}}, {"relu", Relu{}, {"conv"}}};
  const Queue<> queue;
  Parameters<double> parameters(comm, queue, small, 1);
  const Strategy by_sample = Strategy::uniform(LayerSplit::parse("n" + std::to_string(comm.size())));
  Network<double> network(comm, queue, small, by_sample, comm.size(), parameters);
  const auto give = [](const auto& view, views::Box box, const views::Extents& whole, std::uint64_t stream) {
    box.set(views::Dim::sample, 0, 1);
    fill<double>(view, box, whole, Values::reals, 1, stream);
  };
  give(network.input(), network.input_box(), network.input_distribution().extents(), 1);
  give(network.targets(), network.output_box(), network.output_distribution().extents(), 2);
  std::optional<comm::PartialAllReduce<double>> rounds;
  if (partial) rounds.emplace(comm, parameters.gradients().extent(0), comm::PartialOptions{.quorum = 1});
  std::vector<std::pair<double, HostFlat>> results;
  for (int step = 0; step < 12; ++step) {
    if (partial && step % comm.size() == comm.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const double loss = network.train_step(queue, rounds ? &*rounds : nullptr).loss;
    const HostFlat gradients("aloni::test", static_cast<std::size_t>(parameters.size()));
    const auto all = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameters.gradients());
    for (std::size_t i = 0; i < gradients.extent(0); ++i) gradients(i) = all(i);
    results.emplace_back(loss, gradients);
  }
  return results;
}

TEST(Update, OfAPartialSumHasTheLossOfItsContributions) {
  const auto comm = aloni::test::make_communicator();
  // Gradients are divided by the samples of all ranks, so one contribution is the gradient of one rank divided by them.
  const auto [loss, gradients] = steps_on_equal_samples(comm.split(comm.rank(), 0), false).front();
  for (const auto& [partial_loss, sums] : steps_on_equal_samples(comm, true)) {
    EXPECT_NEAR(partial_loss, loss, 1e-12 * loss);
    const double contributions = std::round(comm.size() * sums(0) / gradients(0));
    EXPECT_GE(contributions, 1);
    EXPECT_LE(contributions, comm.size() == 1 ? 1 : comm.size() * 5);  // those of max_lag late rounds
    for (std::size_t i = 0; i < sums.extent(0); ++i)
      EXPECT_NEAR(sums(i), contributions / comm.size() * gradients(i), 1e-12) << i;
  }
}

}  // namespace test_update
}  // namespace aloni::nn::test
