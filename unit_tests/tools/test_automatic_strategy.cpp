// The strategy of a training on four ranks of two nodes: the cost model places the ranks, and the training runs so. For
// a training on one rank the cost model chooses the activations that are computed again.
#include "support/shared_folder.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/model/shipped_machines.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/trainer.hpp>
#include <aloni/tools/automatic_strategy.hpp>
#include <aloni/tools/job_machine.hpp>
#include <aloni/tools/machine_measurement.hpp>

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace aloni::tools {
namespace test_automatic_strategy {

comm::Communicator two_nodes() { return comm::from_mpi(MPI_COMM_WORLD, {.ranks_per_node = 2}); }

/// Wide images: with h2w2 most ghosts belong to rows, which a node of two consecutive ranks exchanges with the other.
nn::NetworkDescription wide_network() {
  const nn::Window window = nn::square_window(2, 3, 1, 1);
  return {.spatial_rank = 2,
          .input = views::make_extents(1, {32, 512}, 2),
          .layers = {{"a", nn::Convolution{4, window}, {"input"}},
                     {"b", nn::Convolution{4, window}, {"a"}},
                     {"mean", nn::GlobalAveragePooling{}, {"b"}},
                     {"fc", nn::Dense{3}, {"mean"}}},
          .loss = nn::Loss::softmax_cross_entropy};
}

const nn::Strategy& quarters() {
  static const nn::Strategy strategy = nn::Strategy::uniform(nn::LayerSplit::parse("h2w2"));
  return strategy;
}

nn::TrainReport train(const comm::Communicator& comm) {
  nn::TrainOptions options;
  options.batch = 2;
  options.steps = 5;
  return nn::train_on_synthetic_data<float>(comm, wide_network(), quarters(), options);
}

/// Bytes to ranks on the other node, of all ranks.
std::int64_t bytes_between_nodes(const comm::Communicator& comm) {
  std::int64_t bytes = 0;
  for (const comm::PeerTraffic& peer : comm.traffic_by_peer())
    if (peer.transport == "mpi")  // messages that nodes consolidate count as collectives
      bytes += static_cast<std::int64_t>(peer.messages.bytes_sent + peer.collectives.bytes_sent);
  return comm.all_reduce(bytes, comm::Reduction::sum);
}

TEST(AutomaticStrategy, PlacedRanksTrainTheSameSamplesWithFewerBytesBetweenNodes) {
  const comm::Communicator comm = two_nodes();
  const comm::Communicator placed = placed_ranks(comm, {0, 2, 1, 3});
  EXPECT_EQ(placed.rank(), comm.rank() == 1 ? 2 : comm.rank() == 2 ? 1 : comm.rank());
  EXPECT_EQ(placed.ranks_by_node(), (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  const std::int64_t start = bytes_between_nodes(comm);
  const nn::TrainReport in_order = train(comm);
  const std::int64_t middle = bytes_between_nodes(comm);
  const nn::TrainReport other = train(placed);
  const std::int64_t end = bytes_between_nodes(comm);
  ASSERT_EQ(in_order.losses.size(), other.losses.size());
  for (std::size_t i = 0; i < in_order.losses.size(); ++i)  // sums over nodes have another order
    EXPECT_NEAR(in_order.losses[i], other.losses[i], 1e-5 * in_order.losses[i]) << "step " << i;
  EXPECT_LT(end - middle, (middle - start) / 2);
}

TEST(AutomaticStrategy, AnEmptyOrderChangesNothing) {
  const comm::Communicator comm = two_nodes();
  EXPECT_EQ(placed_ranks(comm, {}).rank(), comm.rank());
}

TEST(AutomaticStrategy, PlacedRanksKeepTheTuning) {
  const comm::Communicator comm = two_nodes();
  const comm::Tuning tuning{.ranks = 4, .nodes = 2, .measurements = {{comm::AllReduceAlgorithm::ring, 1024, 1e-3, 0}}};
  comm.set_tuning(tuning);
  EXPECT_EQ(placed_ranks(comm, {0, 2, 1, 3}).tuning(), tuning);
}

TEST(AutomaticStrategy, TheOrderOfRanksIsKeptInTheCache) {
  // Ranks 0 and 3 are on one node: neighbours in rows and columns of blocks are on different ones.
  const comm::Communicator comm = placed_ranks(two_nodes(), {0, 2, 3, 1});
  const aloni::test::SharedFolder folder(comm);
  model::Machine machine = model::find_machine("x86_server");
  machine.ranks_per_node = 2;
  machine.links[static_cast<std::size_t>(model::LinkKind::between_nodes)] = {1e-6, 1e-8, 1e-7};
  AutomaticStrategyRequest request{.network = wide_network(), .machine = machine, .cache_folder = folder.path("cache")};
  request.options.batch = 1;
  request.timed = 1;  // the model alone decides
  const AutomaticStrategy chosen = choose_automatically<float>(comm, request);
  ASSERT_FALSE(chosen.from_cache);
  ASSERT_FALSE(chosen.rank_of.empty()) << to_string(chosen.strategy);
  EXPECT_EQ(chosen.rank_of.front(), 0);
  EXPECT_NE(placed_ranks(comm, chosen.rank_of).ranks_by_node(), comm.ranks_by_node());
  if (comm.rank() == 0) {
    std::string text;
    for (const std::string& line : chosen.explanation) text += line + "\n";
    EXPECT_THAT(text, testing::AllOf(testing::HasSubstr(", placed"), testing::HasSubstr("ranks placed: ")));
  }
  const AutomaticStrategy again = choose_automatically<float>(comm, request);
  EXPECT_TRUE(again.from_cache);
  EXPECT_EQ(again.rank_of, chosen.rank_of);
  EXPECT_EQ(to_string(again.strategy), to_string(chosen.strategy));
}

TEST(AutomaticStrategy, OneRankSavesMemoryOnlyWhereItsStepWouldNotFit) {
  const comm::Communicator alone = comm::from_mpi(MPI_COMM_SELF);
  AutomaticStrategyRequest request{.network = nn::make_model("resnet18", {.input = views::Extents{{1, 1, 32, 32, 3}}}),
                                   .machine = model::find_machine("x86_server")};
  request.options.batch = 64;
  const AutomaticStrategy free = choose_automatically<float>(alone, request);
  EXPECT_TRUE(free.memory.empty());
  EXPECT_TRUE(free.explanation.empty());

  const auto peak = [&](const nn::MemoryWish& memory) {
    nn::TrainOptions options = request.options;
    options.memory = memory;
    const nn::NetworkPlan layers = plan_network(request.network, resolve(free.strategy, request.network, 1), 1, 64);
    return memory_of_training(request.network, layers, kernel_place(alone).planning, options, nn::ElementType::float32)
        .peak;
  };
  const Index all = peak({}), one_block = peak({.recompute = "stage1.*"}), least = peak({.recompute = "auto"});
  ASSERT_LT(least, one_block);
  ASSERT_LT(one_block, all);
  request.options.memory.limit = all;
  EXPECT_FALSE(choose_automatically<float>(alone, request).memory.saves());

  request.options.memory.limit = all - 1;
  const AutomaticStrategy tight = choose_automatically<float>(alone, request);
  EXPECT_EQ(tight.memory.recompute, "auto");
  EXPECT_EQ(tight.memory.limit, all - 1);
  ASSERT_FALSE(tight.explanation.empty());
  EXPECT_THAT(tight.explanation.front(), testing::StartsWith("savings    "));

  // A user's own wish is not replaced while it suffices.
  request.options.memory = {.recompute = "stage1.*", .limit = one_block};
  EXPECT_EQ(choose_automatically<float>(alone, request).memory.recompute, "stage1.*");
  request.options.memory.limit = least / 2;
  EXPECT_THROW(choose_automatically<float>(alone, request), InvalidArgument);
}

}  // namespace test_automatic_strategy
}  // namespace aloni::tools
