#pragma once
// Two networks with the same parameters and data, one of which saves memory: both have the same bits.
#include "random_network.hpp"
#include "split_harness.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn::test {

/// One network with its own parameters. Both networks of a comparison have the same ones at first.
template <class T>
struct Side {
  using Exec = execution_space_t<T>;
  Queue<Exec> queue;
  Parameters<parameter_type_t<T>, Exec> parameters;
  Network<T, Exec> network;

  Side(const comm::Communicator& comm, const NetworkDescription& net, const Strategy& strategy, Index samples,
       std::uint64_t seed, const NetworkOptions& options)
      : parameters(make_parameters<T>(comm, queue, net, strategy, seed, Weights::split)),
        network(comm, queue, net, strategy, samples, parameters, options) {}
};

/// The largest difference of two views with all their elements.
template <class View>
double flat_difference(const View& a, const View& b) {
  const auto x = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, a);
  const auto y = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, b);
  double worst = 0;
  for (std::size_t i = 0; i < x.extent(0); ++i) {
    const double d = std::abs(static_cast<double>(x(i)) - static_cast<double>(y(i)));
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

template <class T>
void expect_same_state(const NetworkDescription& net, Side<T>& plain, Side<T>& saving, const std::string& where) {
  EXPECT_EQ(flat_difference(plain.parameters.gradients(), saving.parameters.gradients()), 0) << "gradients, " << where;
  EXPECT_EQ(flat_difference(plain.parameters.values(), saving.parameters.values()), 0) << "values, " << where;
  for (int i = 0; i < static_cast<int>(net.layers.size()); ++i) {
    if (!std::holds_alternative<BatchNorm>(net.layers[static_cast<std::size_t>(i)].operation)) continue;
    const auto &a = plain.parameters.running_statistics(i), &b = saving.parameters.running_statistics(i);
    EXPECT_EQ(flat_difference(a.mean, b.mean), 0) << "running mean of layer " << i << ", " << where;
    EXPECT_EQ(flat_difference(a.variance, b.variance), 0) << "running variance of layer " << i << ", " << where;
  }
}

/// Changes the options to those of a network that saves memory, and tells how.
using Save = std::function<std::string(NetworkOptions&, const NetworkDescription&, Dice&)>;

/// Forward and backward passes of random networks, in the default order or in random allowed orders with poisoned
/// memory.
template <class T>
void compare_random_networks(std::uint64_t first_seed, int count, const Save& save) {
  const auto comm = aloni::test::make_communicator();
  for (int k = 0; k < aloni::test::random_cases(count); ++k) {
    const std::uint64_t seed = first_seed + static_cast<std::uint64_t>(k);
    Dice dice(seed);
    const NetworkDescription net = random_network(dice, Kinds::all);
    const Index samples = dice(1, 4);
    const auto splits = splits_for(comm.size(), net.spatial_rank);
    const Strategy strategy =
        dice(0, 1) == 0 ? random_uniform_strategy(dice, net, splits) : random_strategy(dice, net, splits);
    const NetworkOptions options{.input_gradient = seed % 2 == 0, .schedule_seed = seed % 3 == 0 ? seed : 0};
    NetworkOptions other = options;
    const std::string where = "seed " + std::to_string(seed) + ", " + save(other, net, dice);
    Side<T> plain(comm, net, strategy, samples, seed, options), saving(comm, net, strategy, samples, seed, other);
    for (std::uint64_t round = 0; round < 2; ++round) {
      for (Side<T>* const side : {&plain, &saving}) {
        Network<T, execution_space_t<T>>& network = side->network;
        fill<T>(network.input(), network.input_box(), network.input_distribution().extents(), Values::reals, seed,
                10 * round + 2);
        network.forward(side->queue, Mode::training);
        fill<T>(network.output_gradient(), network.output_box(), network.output_distribution().extents(), Values::reals,
                seed, 10 * round + 3);
        network.backward(side->queue);
        network.reduce_gradients(side->queue);
      }
      expect_same_state(net, plain, saving, where);
      if (!options.input_gradient) continue;
      const views::Box all{{0, 0, 0, 0, 0}, views::extents_of(plain.network.input_box()).values};
      EXPECT_EQ(difference(saving.network.input_gradient(), all, plain.network.input_gradient()), 0)
          << "input gradient, " << where;
    }
    if (comm.all_reduce(testing::Test::HasFailure() ? 1 : 0, comm::Reduction::max) > 0) return;
  }
}

/// Residual blocks with dropout, and a concatenation: each in a block of its own, and all layers in one block.
inline NetworkDescription blocks_of_layers() {
  NetworkDescription net;
  net.spatial_rank = 2;
  net.input = views::make_extents(1, {12, 12}, 2);
  net.loss = Loss::softmax_cross_entropy;
  net.layers = {{"stem", Convolution{8, square_window(2, 3, 1, 1)}, {"input"}},
                {"a.norm", BatchNorm{}, {"stem"}},
                {"a.relu", Relu{}, {"a.norm"}},
                {"a.drop", Dropout{0.3}, {"a.relu"}},
                {"a.conv", Convolution{8, square_window(2, 3, 1, 1)}, {"a.drop"}},
                {"a.sum", Add{}, {"a.conv", "stem"}},
                {"b.conv", Convolution{4, square_window(2, 3, 1, 1)}, {"a.sum"}},
                {"b.norm", GroupNorm{.groups = 2}, {"b.conv"}},
                {"b.gelu", Gelu{}, {"b.norm"}},
                {"b.join", Concatenate{}, {"b.gelu", "a.sum"}},
                {"b.pool", Pooling{PoolingKind::max, square_window(2, 2, 2)}, {"b.join"}},
                {"c.norm", LayerNorm{}, {"b.pool"}},
                {"c.conv", Convolution{6, square_window(2, 3)}, {"c.norm"}},
                {"c.relu", Relu{}, {"c.conv"}},
                {"mean", GlobalAveragePooling{}, {"c.relu"}},
                {"classes", Dense{5}, {"mean"}}};
  return net;
}

/// Whole steps with updates.
template <class T>
void compare_training(std::uint64_t seed, const Save& save) {
  const auto comm = aloni::test::make_communicator();
  const NetworkDescription net = blocks_of_layers();
  const std::vector<LayerSplit> splits = splits_for(comm.size(), net.spatial_rank);
  Dice dice(seed);
  for (int k = 0; k < aloni::test::share_of(6); ++k) {
    const LayerSplit& split = splits[static_cast<std::size_t>(dice(0, static_cast<Index>(splits.size()) - 1))];
    const Strategy strategy = strategy_of(net, std::vector<LayerSplit>(net.layers.size(), split));
    const NetworkOptions options{.update = true, .dropout_seed = 5};
    NetworkOptions other = options;
    const std::string where = save(other, net, dice) + ", split " + to_string(split);
    const Index samples = 4;
    Side<T> plain(comm, net, strategy, samples, 3, options), saving(comm, net, strategy, samples, 3, other);
    for (std::int64_t step = 1; step <= 3; ++step) {
      std::vector<double> losses;
      for (Side<T>* const side : {&plain, &saving}) {
        Network<T, execution_space_t<T>>& network = side->network;
        fill<T>(network.input(), network.input_box(), network.input_distribution().extents(), Values::reals, 9,
                static_cast<std::uint64_t>(step));
        Kokkos::deep_copy(network.labels(), static_cast<int>(step));
        losses.push_back(network.train_step(side->queue, SgdOptions{.learning_rate = 0.05}, step).loss);
      }
      EXPECT_EQ(losses[0], losses[1]) << "step " << step << ", " << where;
      expect_same_state(net, plain, saving, where);
    }
    if (comm.all_reduce(testing::Test::HasFailure() ? 1 : 0, comm::Reduction::max) > 0) return;
  }
}

}  // namespace aloni::nn::test
