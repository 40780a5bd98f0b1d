// Parameters split over ranks: the blocks that each rank keeps, and that they learn the same values as whole
// parameters.
#include "host_flat.hpp"
#include "random_network.hpp"
#include "split_harness.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/partial_all_reduce.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aloni::nn::test {
namespace test_parameters {

/// Has groups that blocks of channels and filters split, a transposed convolution, and layers whose parameters stay
/// whole.
NetworkDescription net_of_convolutions() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {8, 7}, 6);
  net.loss = Loss::binary_cross_entropy;
  net.layers = {{"conv", Convolution{10, square_window(2, 3, 1, 1)}, {"input"}},
                {"norm", BatchNorm{}, {"conv"}},
                {"groups", Convolution{15, square_window(2, 3, 2, 1), true, 5}, {"norm"}},
                {"depthwise", Convolution{15, square_window(2, 3, 1, 1), false, 15}, {"groups"}},
                {"up", TransposedConvolution{4, square_window(2, 2, 2, 0)}, {"depthwise"}},
                {"sigmoid", Sigmoid{}, {"up"}},  // the dense layer learns from values of one magnitude
                {"flatten", Flatten{}, {"sigmoid"}},
                {"fc", Dense{7}, {"flatten"}}};
  return net;
}

std::vector<LayerSplit> splits(int ranks) {
  std::vector<LayerSplit> some;
  for (const char* text : {"1", "n2", "c2", "f2", "c3", "f3", "h2c2", "n2f2", "c2f2", "c4", "f4"}) {
    const LayerSplit split = LayerSplit::parse(text);
    if (ranks % split.size() == 0) some.push_back(split);
  }
  return some;
}

TEST(Parameters, KeepOnlyTheSplitWeightsThatTheRankUses) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  const NetworkDescription net = net_of_convolutions();
  for (const LayerSplit& split : splits(comm.size())) {
    SCOPED_TRACE(to_string(split));
    const auto all = resolve(Strategy::uniform(split), net, comm.size());
    const NetworkPlan plan = plan_network(net, all, comm.size(), 3);
    const Parameters<float> parameters(comm, queue, net, all, 1);
    Index kept = 0;
    for (int i = 0; i < static_cast<int>(parameters.descriptions().size()); ++i) {
      const ParameterDescription& d = parameters.descriptions()[static_cast<std::size_t>(i)];
      const LayerPlan& layer = plan.layers[static_cast<std::size_t>(d.layer)];
      const bool is_weight = layer.convolution && d.name.ends_with(".weight");
      const bool is_split = is_weight && split.grid[Dim::channel] * split.filters > 1;
      EXPECT_EQ(parameters.kept(i), is_weight ? layer.weights_needed(comm.rank()) : views::whole(d.extents)) << d.name;
      EXPECT_EQ(parameters.blocks(i).count(), is_split ? split.grid[Dim::channel] * split.filters : 1) << d.name;
      EXPECT_EQ(static_cast<Index>(parameters.value(i).size()), parameters.kept(i).size()) << d.name;
      EXPECT_EQ(static_cast<Index>(parameters.gradient(i).size()), parameters.kept(i).size()) << d.name;
      if (d.name == "conv.weight") kept = parameters.kept(i).size();
    }
    // Without groups no weight is kept twice.
    const Index copies = comm.size() / (split.grid[Dim::channel] * split.filters);
    EXPECT_EQ(comm.all_reduce(kept, comm::Reduction::sum), 10 * 9 * 6 * copies);
  }
}

TEST(Parameters, HaveTheSameInitialValuesInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const Queue<> queue;
  const NetworkDescription net = net_of_convolutions();
  const Parameters<double> whole(queue, net, 4);
  const auto expected = whole.gather_values(queue);
  for (const LayerSplit& split : splits(comm.size())) {
    SCOPED_TRACE(to_string(split));
    const Parameters<double> parts(comm, queue, net, resolve(Strategy::uniform(split), net, comm.size()), 4);
    EXPECT_EQ(largest_difference(parts.gather_values(queue), expected), 0);
    // Scattering restores the same values.
    const Kokkos::View<double*, Kokkos::HostSpace> counted("aloni::test", expected.extent(0));
    for (std::size_t i = 0; i < counted.extent(0); ++i) counted(i) = static_cast<double>(i);
    parts.scatter_values(queue, counted);
    EXPECT_EQ(largest_difference(parts.gather_values(queue), counted), 0);
  }
  const Kokkos::View<double*, Kokkos::HostSpace> too_long("aloni::test", expected.extent(0) + 1);
  EXPECT_THROW(whole.scatter_values(queue, too_long), InvalidArgument);
}

TEST(Parameters, LearnTheSameInEverySplit) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = net_of_convolutions();
  const auto learn = [&](const comm::Communicator& ranks, const LayerSplit& split, Weights weights) {
    nn::test::Run<double> run(ranks, net, Strategy::uniform(split), 4, Values::reals, 6,
                              local::ConvolutionBackend::automatic, weights);
    auto& network = run.network;
    fill<double>(network.input(), network.input_box(), network.input_distribution().extents(), Values::reals, 6, 2);
    fill<double>(network.targets(), network.output_box(), network.output_distribution().extents(), Values::integers, 6,
                 3);
    for (int step = 0; step < 3; ++step) {
      network.train_step(run.queue);
      run.parameters.sgd(run.queue, {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01});
    }
    // Again with the parts of a step, which sum the gradients in another way.
    network.forward(run.queue, Mode::training);
    network.backward(run.queue);
    network.reduce_gradients(run.queue);
    run.parameters.sgd(run.queue, {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01});
    return run.parameters.gather_values(run.queue);
  };
  const auto expected = learn(comm.split(comm.rank(), 0), {}, Weights::whole);
  for (const LayerSplit& split : splits(comm.size())) {
    SCOPED_TRACE(to_string(split));
    EXPECT_LE(largest_difference(learn(comm, split, Weights::split), expected), 1e-10);
    EXPECT_LE(largest_difference(learn(comm, split, Weights::whole), expected), 1e-10);
  }
}

TEST(Parameters, OfAnotherSplitAreRefused) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() != 2 && comm.size() != 4) return;
  const Queue<> queue;
  const NetworkDescription net = net_of_convolutions();
  const Strategy filters = Strategy::uniform(LayerSplit::parse("f2"));
  Parameters<float> split(comm, queue, net, resolve(filters, net, comm.size()), 1);
  EXPECT_NO_THROW(Network<float>(comm, queue, net, filters, 4, split));
  EXPECT_THROW(Network<float>(comm, queue, net, Strategy::uniform(LayerSplit::parse("c2")), 4, split), InvalidArgument);
  EXPECT_THROW(Network<float>(comm, queue, net, Strategy::uniform({}), 4, split), InvalidArgument);
  // Whole parameters, on fewer ranks.
  EXPECT_THROW(Network<float>(comm.split(comm.rank(), 0), queue, net, Strategy::uniform({}), 4, split),
               InvalidArgument);
  NetworkDescription other = net;
  other.layers[0].operation = Convolution{10, square_window(2, 5, 1, 2)};
  EXPECT_THROW(Network<float>(comm, queue, other, filters, 4, split), InvalidArgument);

  Network<float> network(comm, queue, net, filters, 4, split);
  comm::PartialAllReduce<float> partial(comm, split.gradients().extent(0));
  EXPECT_THROW(network.train_step(queue, &partial), InvalidArgument);
}

}  // namespace test_parameters
}  // namespace aloni::nn::test
