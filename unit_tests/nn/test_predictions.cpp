// predict() and evaluate() on files: equal for every split, and errors of one rank reach all.
#include "data/damaged_array.hpp"
#include "data/data_files.hpp"
#include "random_network.hpp"
#include "split_harness.hpp"
#include "support/sanitizer.hpp"
#include "support/shared_folder.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/nn/data/memory_array.hpp>
#include <aloni/nn/data/npy.hpp>
#include <aloni/nn/data/synthetic_array.hpp>
#include <aloni/nn/inference.hpp>
#include <aloni/nn/weights_file.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn::test {
namespace test_predictions {

constexpr Index samples = 5;

NetworkDescription network_of(int spatial_rank, bool pixels) {
  NetworkDescription n;
  n.spatial_rank = spatial_rank;
  n.input = spatial_rank == 3 ? views::make_extents(1, {6, 8, 7}, 2) : views::make_extents(1, {9, 8}, 2);
  n.loss = pixels ? Loss::mean_squared_error : Loss::softmax_cross_entropy;
  n.layers = {{"conv", Convolution{4, square_window(spatial_rank, 3, 1, 1)}, {"input"}},
              {"norm", BatchNorm{}, {"conv"}},
              {"tanh", Tanh{}, {"norm"}},
              {"last", Convolution{6, square_window(spatial_rank, 3, 1, 1)}, {"tanh"}}};
  if (!pixels) n.layers.push_back({"mean", GlobalAveragePooling{}, {"last"}});
  return n;
}

/// Weights of a file, the same for all ranks. Collective.
std::string weights_in(const comm::Communicator& comm, const aloni::test::SharedFolder& folder,
                       const NetworkDescription& net) {
  const Queue<> queue;
  const Parameters<float> parameters(queue, net, 7);
  write_weights(comm, queue, net, parameters, folder.path("weights"));
  return folder.path("weights");
}

std::vector<float> values_in(const std::string& path) {
  const auto array = open_npy(path);
  const auto one = static_cast<std::size_t>(array->extents().size());
  std::vector<float> all(one * static_cast<std::size_t>(array->size()));
  for (Index n = 0; n < array->size(); ++n) {
    const auto sample = std::span(all).subspan(static_cast<std::size_t>(n) * one, one);
    array->read(n, whole(array->extents()), std::as_writable_bytes(sample));
  }
  return all;
}

using Outputs = std::vector<std::pair<int, bool>>;  ///< spatial rank, and whether the output has pixels

template <class T>
void expect_equal_predictions(const Outputs& kinds, double tolerance) {
  const auto comm = aloni::test::make_communicator();
  const auto self = comm.split(comm.rank(), 0);
  const aloni::test::SharedFolder folder(comm);
  const std::string alone = folder.path("alone" + std::to_string(comm.rank()) + ".npy"), y = folder.path("y.npy");
  for (const auto& [spatial_rank, pixels] : kinds) {
    const NetworkDescription net = network_of(spatial_rank, pixels);
    const TrainedWeights weights{.file = weights_in(comm, folder, net)};
    const Dataset inputs{.inputs = synthetic_values(samples, net.input, 3)};
    predict<T>(self, net, Strategy::uniform({}), weights, inputs, alone);
    const std::vector<float> expected = values_in(alone);
    const auto [least, most] = std::ranges::minmax(expected);
    ASSERT_GT(most - least, 0.01);
    int number = 0;
    for (const LayerSplit& split : splits_for(comm.size(), spatial_rank)) {
      if (!aloni::test::is_in_share(number++)) continue;
      const Index batch = 1 + number % 4;  // the last mini-batch is mostly incomplete, also with few samples
      SCOPED_TRACE(to_string(split) + ", batch " + std::to_string(batch));
      const Strategy strategy = strategy_of(net, std::vector(net.layers.size(), split));
      predict<T>(comm, net, strategy, weights, inputs, y, {.batch = batch});
      const std::vector<float> found = values_in(y);
      ASSERT_EQ(found.size(), expected.size());
      double worst = 0;
      for (std::size_t i = 0; i < found.size(); ++i)
        worst = std::max(worst, static_cast<double>(std::abs(found[i] - expected[i])));
      EXPECT_LE(worst, tolerance);
      if (comm.all_reduce(testing::Test::HasFailure() ? 1 : 0, comm::Reduction::max) == 1) return;
    }
  }
}

TEST(Predictions, OfFloatAreEqualInEverySplit) { expect_equal_predictions<float>({{2, false}, {3, true}}, 1e-5); }

TEST(Predictions, OfDoubleAreEqualInEverySplit) { expect_equal_predictions<double>({{2, true}}, 1e-6); }

TEST(Predictions, HaveTheResultsOfTheNetwork) {
  const auto comm = aloni::test::make_communicator();
  const aloni::test::SharedFolder folder(comm);
  const NetworkDescription net = network_of(2, true);
  const TrainedWeights weights{.file = weights_in(comm, folder, net)};
  Extents target = infer_extents(net, 1).back();
  const Dataset set{.inputs = synthetic_values(samples, net.input, 3),
                    .targets = synthetic_values(samples, target, 4),
                    .target_kind = TargetKind::elements};
  const Strategy strategy = Strategy::uniform(views::ProcessGrid::parse("h" + std::to_string(comm.size())));
  predict<float>(comm, net, strategy, weights, set, folder.path("y.npy"), {.batch = 2});
  const std::vector<float> y = values_in(folder.path("y.npy"));
  double squares = 0, errors = 0;
  std::vector<float> t(static_cast<std::size_t>(target.size()));
  for (Index n = 0; n < samples; ++n) {
    set.targets->read(n, whole(target), std::as_writable_bytes(std::span(t)));
    for (std::size_t i = 0; i < t.size(); ++i) {
      const double difference = y[static_cast<std::size_t>(n) * t.size() + i] - t[i];
      squares += difference * difference;
      errors += std::abs(difference);
    }
  }
  for (const Index batch : {1, 2, 5, 64}) {
    const TestResult result = evaluate<float>(comm, net, strategy, weights, set, {.batch = batch});
    EXPECT_NEAR(*result.loss, squares / static_cast<double>(y.size()), 1e-5);
    EXPECT_FALSE(result.accuracy);
    ASSERT_EQ(result.metrics.size(), 1u);
    EXPECT_NEAR(result.metrics[0].value, errors / static_cast<double>(y.size()), 1e-5);
  }
}

TEST(Predictions, AreRefusedOnAllRanksAndLeaveTheOlderFile) {
  const auto comm = aloni::test::make_communicator();
  const aloni::test::SharedFolder folder(comm);
  const NetworkDescription net = network_of(2, true);
  const TrainedWeights weights{.file = weights_in(comm, folder, net)};
  const Dataset inputs{.inputs = synthetic_values(samples, net.input, 3)};
  const Strategy strategy = Strategy::uniform(views::ProcessGrid::parse("n" + std::to_string(comm.size())));
  const std::string y = folder.path("y.npy");
  if (comm.rank() == 0) aloni::test::write_file(folder, "y.npy", "old");
  comm.barrier();
  const Dataset other{.inputs = synthetic_values(samples, views::make_extents(1, {8, 9}, 2), 3)};
  EXPECT_THROW(predict<float>(comm, net, strategy, weights, other, y), InvalidArgument);
  EXPECT_THROW(predict<float>(comm, net, strategy, weights, inputs, y, {.batch = 0}), InvalidArgument);
  EXPECT_THROW(predict<float>(comm, net, strategy, {}, inputs, y), InvalidArgument);
  EXPECT_THROW(predict<float>(comm, net, strategy, {.file = weights.file, .checkpoints = "x"}, inputs, y),
               InvalidArgument);
  EXPECT_THROW(predict<float>(comm, net, strategy, {.checkpoints = folder.path("none")}, inputs, y), FileError);
  EXPECT_THROW(predict<float>(comm, network_of(2, false), strategy, {.file = folder.path("none")}, inputs, y), Error);

  // One rank cannot read a sample of the second mini-batch.
  const bool fails = comm.rank() == comm.size() - 1;
  const Dataset broken{.inputs = std::make_shared<aloni::test::DamagedArray>(
                           inputs.inputs, fails ? std::optional(samples - 1) : std::nullopt)};
  const Strategy by_height = Strategy::uniform(views::ProcessGrid::parse("h" + std::to_string(comm.size())));
  const auto run = [&] { predict<float>(comm, net, by_height, weights, broken, y, {.batch = 3}); };
  if (fails) {
    EXPECT_THROW(run(), FileError);
  } else {
    EXPECT_THROW(run(), PeerFailed);
  }
  comm.barrier();
  std::ifstream file(y);
  std::string text;
  file >> text;
  EXPECT_EQ(text, "old");
  if (comm.rank() == 0) {
    EXPECT_EQ(io::real_file_system().list(folder.path("")).size(), 2u) << "weights and y.npy";
  }
}

}  // namespace test_predictions
}  // namespace aloni::nn::test
