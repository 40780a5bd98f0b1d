// Masks of dropout follow from global indices: equal on all splits, new in each step, absent in evaluation.
#include "random_network.hpp"
#include "split_harness.hpp"
#include "support/sanitizer.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/nn/plan/plan_step.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn::test {
namespace test_dropout {

NetworkDescription net_of(std::vector<LayerDescription> layers) {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {9, 7}, 3);
  net.loss = Loss::binary_cross_entropy;
  net.layers = std::move(layers);
  return net;
}

TEST(Dropout, HasTheSameBitsInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const auto net = net_of({{"first", Dropout{0.3}, {"input"}},
                           {"pool", Pooling{PoolingKind::max, square_window(2, 3, 1, 1)}, {"first"}},
                           {"second", Dropout{0.6}, {"pool"}},
                           {"again", Pooling{PoolingKind::max, square_window(2, 3, 2, 1)}, {"second"}},
                           {"flatten", Flatten{}, {"again"}},
                           {"third", Dropout{0.1}, {"flatten"}}});
  int number = 0;
  for (const LayerSplit& split : splits_for(comm.size(), 2)) {
    if (!aloni::test::is_in_share(number++)) continue;
    SCOPED_TRACE(to_string(split) + " " + std::string(name(split.overlap)));
    const Strategy strategy = strategy_of(net, std::vector(net.layers.size(), split));
    // Where windows overlap, the order in which gradients are added depends on the split.
    if (!expect_split_equals_unsplit<float>(comm, net, strategy, 4, Values::reals, 33, 1e-6)) return;
  }
  const auto alone = net_of({{"layer", Dropout{0.3}, {"input"}}});
  for (const LayerSplit& split : splits_for(comm.size(), 2)) {
    if (!aloni::test::is_in_share(number++)) continue;
    const Strategy strategy = strategy_of(alone, {split});
    if (!expect_split_equals_unsplit<float>(comm, alone, strategy, 4, Values::reals, 34, 0.0)) return;
  }
}

/// The output of one step on an input of ones; elements in the order of the indices of this rank's part.
std::vector<double> output_of(Run<double>& run, Mode mode) {
  Kokkos::deep_copy(run.network.input(), 1.0);
  run.network.forward(run.queue, mode);
  run.queue.fence("test");
  std::vector<double> values;
  const auto y = on_host(run.network.output());
  for_each_index(run.network.output_box(), run.network.output_distribution().extents(),
                 [&](const auto& i, Index) { values.push_back(y(i[0], i[1], i[2], i[3], i[4])); });
  return values;
}

Run<double> run_of(const comm::Communicator& comm, const NetworkDescription& net, Index samples = 5) {
  return {comm, net, Strategy::uniform({}), samples, Values::reals, 1, local::ConvolutionBackend::automatic};
}

TEST(Dropout, DrawsAnotherMaskInEachStepAndRepeatsTheMaskOfAGivenStep) {
  const auto comm = aloni::test::make_communicator();
  auto run = run_of(comm, net_of({{"layer", Dropout{0.5}, {"input"}}}));
  EXPECT_EQ(run.network.dropout_step(), 0u);
  const auto first = output_of(run, Mode::training);
  const auto second = output_of(run, Mode::training);
  EXPECT_EQ(run.network.dropout_step(), 2u);
  EXPECT_NE(first, second);
  run.network.set_dropout_step(0);
  EXPECT_EQ(output_of(run, Mode::training), first);
  EXPECT_EQ(output_of(run, Mode::training), second);
}

TEST(Dropout, DropsItsShareOfTheElementsAndKeepsTheMean) {
  const auto comm = aloni::test::make_communicator();
  for (const double rate : {0.0, 0.2, 0.75}) {
    auto run = run_of(comm, net_of({{"layer", Dropout{rate}, {"input"}}}), 100);
    const auto y = output_of(run, Mode::training);
    const auto zeros = static_cast<double>(std::ranges::count(y, 0.0));
    const auto elements = static_cast<double>(y.size());
    EXPECT_NEAR(zeros / elements, rate, 4 * std::sqrt(rate * (1 - rate) / elements)) << rate;
    for (const double v : y) EXPECT_DOUBLE_EQ(v == 0 ? 0 : v * (1 - rate), v == 0 ? 0 : 1);
  }
}

TEST(Dropout, OfSeveralLayersDrawsSeveralMasks) {
  const auto comm = aloni::test::make_communicator();
  auto run = run_of(comm, net_of({{"a", Dropout{0.5}, {"input"}}, {"b", Dropout{0.5}, {"a"}}}), 100);
  const auto y = output_of(run, Mode::training);
  const auto kept = static_cast<double>(std::ranges::count(y, 4.0)) / static_cast<double>(y.size());
  EXPECT_NEAR(kept, 0.25, 0.02);
}

TEST(Dropout, PassesItsInputOnInEvaluation) {
  const auto comm = aloni::test::make_communicator();
  for (const auto& net :
       {net_of({{"layer", Dropout{0.5}, {"input"}}}),
        net_of({{"relu", Relu{}, {"input"}}, {"a", Dropout{0.5}, {"relu"}}, {"b", LeakyRelu{}, {"a"}}}),
        net_of({{"relu", Relu{}, {"input"}}, {"a", Dropout{0.5}, {"relu"}}, {"b", Add{}, {"a", "relu"}}})}) {
    auto run = run_of(comm, net);
    const double expected = net.layers.back().name == "b" && net.layers.back().inputs.size() == 2 ? 2 : 1;
    for (const double v : output_of(run, Mode::evaluation)) EXPECT_EQ(v, expected);
    output_of(run, Mode::training);
    for (const double v : output_of(run, Mode::evaluation)) EXPECT_EQ(v, expected);
  }
}

/// The nodes of a layer in an inference step.
int inference_nodes(const NetworkDescription& net, const std::string& layer) {
  const NetworkPlan layers = plan_network(net, resolve(Strategy::uniform({}), net, 1), 1, 2);
  const StepPlan plan = plan_step(net, layers, 0, StepKind::inference, {});
  const int wanted = find_layer(net, layer);
  return static_cast<int>(std::ranges::count(plan.nodes, wanted, &PlanNode::layer));
}

TEST(Dropout, CopiesNothingInEvaluationWhereItSharesABuffer) {
  const auto tail = Convolution{2, square_window(2, 3, 1, 1)};
  EXPECT_EQ(inference_nodes(net_of({{"conv", tail, {"input"}}, {"d", Dropout{}, {"conv"}}}), "d"), 0);
  EXPECT_EQ(inference_nodes(net_of({{"conv", tail, {"input"}},
                                    {"relu", Relu{}, {"conv"}},
                                    {"d", Dropout{}, {"relu"}},
                                    {"last", tail, {"d"}}}),
                            "d"),
            0);
  // The network's input belongs to the user. A tensor with two readers stays as it is.
  EXPECT_EQ(inference_nodes(net_of({{"d", Dropout{}, {"input"}}}), "d"), 1);
  EXPECT_EQ(inference_nodes(
                net_of({{"conv", tail, {"input"}}, {"d", Dropout{}, {"conv"}}, {"sum", Add{}, {"d", "conv"}}}), "d"),
            1);
}

TEST(Dropout, RefusesARateOutsideItsRange) {
  for (const double rate : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(infer_extents(net_of({{"d", Dropout{rate}, {"input"}}}), 1), InvalidArgument) << rate;
  for (const double slope : {-0.1, std::numeric_limits<double>::infinity()})
    EXPECT_THROW(infer_extents(net_of({{"l", LeakyRelu{slope}, {"input"}}}), 1), InvalidArgument) << slope;
}

TEST(Dropout, RefusesSeedsThatDifferBetweenRanks) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() == 1) return;
  const auto net = net_of({{"layer", Dropout{0.5}, {"input"}}});
  const Queue<Kokkos::DefaultExecutionSpace> queue;
  Parameters<double> parameters(comm, queue, net, 1);
  const NetworkOptions options{.dropout_seed = static_cast<std::uint64_t>(comm.rank())};
  EXPECT_THROW(Network<double>(comm, queue, net, Strategy::uniform({}), 2, parameters, options), InvalidArgument);
}

}  // namespace test_dropout
}  // namespace aloni::nn::test
