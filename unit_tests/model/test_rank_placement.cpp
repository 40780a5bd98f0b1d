#include "round_times.hpp"

#include <aloni/core/error.hpp>
#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/rank_placement.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/models.hpp>

#include <gmock/gmock.h>
#include <support/random_cases.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

namespace aloni::model {
namespace test_rank_placement {

using testing::HasSubstr;

/// Four convolutions of one size: each exchanges one ghost row, column and corner.
nn::NetworkDescription four_convolutions(Index height, Index width) {
  const nn::Window window = nn::square_window(2, 3, 1, 1);
  return {.spatial_rank = 2,
          .input = views::make_extents(1, {height, width}, 4),
          .layers = {{"a", nn::Convolution{4, window}, {"input"}},
                     {"b", nn::Convolution{4, window}, {"a"}},
                     {"c", nn::Convolution{4, window}, {"b"}},
                     {"d", nn::Convolution{4, window}, {"c"}}},
          .loss = nn::Loss::mean_squared_error};
}

/// Nodes of four ranks. A byte between nodes takes far longer than one within a node.
Machine machine_of_fours(int ranks_per_node = 4) {
  Machine machine = generic_machine();
  machine.ranks_per_node = ranks_per_node;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)] = {10e-6, 1e-8, 1e-6};
  return machine;
}

struct Crossing {
  Index messages = 0, bytes = 0;

  friend bool operator==(const Crossing&, const Crossing&) = default;
};

/// The messages of transfers between nodes, counted where they arrive.
Crossing messages_between_nodes(const nn::NetworkDescription& net, const nn::NetworkPlan& layers,
                                const MachineDescription& machine) {
  Crossing found;
  for (int r = 0; r < layers.input.ranks(); ++r) {
    const nn::StepPlan plan = nn::plan_step(net, layers, r, nn::StepKind::training, machine);
    for (const nn::PlanNode& node : plan.nodes) {
      const auto* transfer = std::get_if<nn::TransferWork>(&node.work);
      if (transfer == nullptr) continue;
      std::set<int> peers;
      for (const nn::TransferItemPlan& item : transfer->items) {
        for (const halo::Message& m : transfer->adjoint ? item.plan.sends : item.plan.receives) {
          if (machine.nodes[static_cast<std::size_t>(m.peer)] == machine.nodes[static_cast<std::size_t>(r)]) continue;
          peers.insert(m.peer);
          found.bytes += m.elements * 4;
        }
      }
      found.messages += static_cast<Index>(peers.size());
    }
  }
  return found;
}

double seconds_of(const nn::NetworkDescription& net, const nn::NetworkPlan& layers, const Machine& machine,
                  const std::vector<int>& rank_of, int most_single_ranks = 8) {
  const MachineKernels kernels(machine, machine.ranks_per_node, machine.threads_per_rank);
  return simulate(net, layers, machine, kernels, {.rank_of = rank_of, .most_single_ranks = most_single_ranks}).seconds;
}

/// The ranks of each node, as sorted lists.
std::set<std::vector<int>> groups_of(const std::vector<int>& nodes) {
  std::map<int, std::vector<int>> ranks;
  for (std::size_t r = 0; r < nodes.size(); ++r) ranks[nodes[r]].push_back(static_cast<int>(r));
  std::set<std::vector<int>> groups;
  for (const auto& [node, group] : ranks) groups.insert(group);
  return groups;
}

TEST(RankPlacement, ANodeGetsASquareOfAGrid) {
  const auto net = four_convolutions(256, 256);
  const auto layers = layers_of(net, "h4w4", 16, 1);
  const Machine machine = machine_of_fours();
  const RankPlacement placed = place_ranks_of_step(net, layers, machine);
  EXPECT_EQ(placed.reason, "");
  ASSERT_EQ(placed.rank_of.size(), 16U);
  EXPECT_EQ(placed.rank_of.front(), 0);
  const MachineDescription squares = description_of(machine, 16, placed.rank_of), rows = description_of(machine, 16);
  EXPECT_EQ(groups_of(squares.nodes),
            (std::set<std::vector<int>>{{0, 1, 4, 5}, {2, 3, 6, 7}, {8, 9, 12, 13}, {10, 11, 14, 15}}));

  const Crossing few = messages_between_nodes(net, layers, squares), many = messages_between_nodes(net, layers, rows);
  EXPECT_EQ(placed.bytes_between_nodes, static_cast<double>(few.bytes));
  EXPECT_EQ(placed.bytes_in_order, static_cast<double>(many.bytes));
  // Rows of blocks exchange 3 borders of 4 blocks, squares 2 borders in each direction: 4 · 3 against 4 + 4 pairs of
  // neighbours, and fewer corners.
  EXPECT_NEAR(placed.bytes_between_nodes / placed.bytes_in_order, 8.0 / 12, 0.03);
  EXPECT_LT(few.messages, many.messages);
  EXPECT_LT(seconds_of(net, layers, machine, placed.rank_of), 0.9 * seconds_of(net, layers, machine, {}));
}

TEST(RankPlacement, RanksKeepTheirOrderWhereNoOrderIsBetter) {
  const auto net = four_convolutions(64, 64);
  const auto reason = [&](const std::string& split, int ranks, const Machine& machine) {
    const RankPlacement placed = place_ranks_of_step(net, layers_of(net, split, ranks, ranks), machine);
    EXPECT_TRUE(placed.rank_of.empty()) << split;
    return placed.reason;
  };
  EXPECT_THAT(reason("h4w4", 16, machine_of_fours(1)), HasSubstr("no other order"));  // all links are equal
  EXPECT_THAT(reason("h4w4", 16, machine_of_fours(16)), HasSubstr("on one node"));
  EXPECT_THAT(reason("n8h2w2", 32, machine_of_fours()), HasSubstr("stay within nodes"));
  EXPECT_THAT(reason("n16", 16, machine_of_fours()), HasSubstr("stay within nodes"));
  EXPECT_THAT(reason("h16w8", 128, machine_of_fours()), HasSubstr("128 ranks exchange values"));
  Machine unknown = machine_of_fours();
  unknown.links[static_cast<std::size_t>(LinkKind::between_nodes)] = {};
  EXPECT_THAT(reason("h4w4", 16, unknown), HasSubstr("not known"));
}

TEST(RankPlacement, GroupsOfThousandsOfRanksArePlacedAlike) {
  const auto net = four_convolutions(64, 64);
  const Machine machine = machine_of_fours();
  const RankPlacement one = place_ranks_of_step(net, layers_of(net, "h4w4", 16, 1), machine);
  const RankPlacement many = place_ranks_of_step(net, layers_of(net, "n256h4w4", 4096, 256), machine);
  ASSERT_EQ(many.rank_of.size(), 4096U);
  for (int r = 0; r < 4096; ++r)
    ASSERT_EQ(many.rank_of[static_cast<std::size_t>(r)], r / 16 * 16 + one.rank_of[static_cast<std::size_t>(r % 16)]);
  EXPECT_EQ(many.bytes_between_nodes, 256 * one.bytes_between_nodes);
  EXPECT_EQ(many.bytes_in_order, 256 * one.bytes_in_order);
}

// Ranks that a scheduler has dealt to nodes one after another.
TEST(RankPlacement, RanksOfAJobAreBroughtTogether) {
  const auto net = four_convolutions(64, 64);
  const auto layers = layers_of(net, "n4h2w2", 16, 4);
  Machine machine = machine_of_fours();
  for (int r = 0; r < 16; ++r) machine.planning.nodes.push_back(r % 4);
  const RankPlacement placed = place_ranks_of_step(net, layers, machine);
  const MachineDescription description = description_of(machine, 16, placed.rank_of);
  EXPECT_EQ(groups_of(description.nodes),
            (std::set<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_GT(placed.bytes_in_order, 0);
  EXPECT_EQ(placed.bytes_between_nodes, 0);
  EXPECT_LT(seconds_of(net, layers, machine, placed.rank_of), seconds_of(net, layers, machine, {}));
}

TEST(RankPlacement, NodesOfUnequalSizesKeepTheirSizes) {
  const auto net = four_convolutions(64, 64);
  Machine machine = machine_of_fours();
  machine.planning.nodes = {0, 1, 0, 1, 0, 0, 1, 0};  // five ranks and three
  const RankPlacement placed = place_ranks_of_step(net, layers_of(net, "h8", 8, 1), machine);
  ASSERT_EQ(placed.rank_of.size(), 8U);
  EXPECT_EQ(groups_of(description_of(machine, 8, placed.rank_of).nodes),
            (std::set<std::vector<int>>{{0, 1, 2, 3, 4}, {5, 6, 7}}));
}

TEST(RankPlacement, WrongPlacesAreRefused) {
  Machine machine = machine_of_fours();
  EXPECT_THROW(description_of(machine, 4, {0, 1, 2}), InvalidArgument);
  EXPECT_THROW(description_of(machine, 4, {0, 1, 2, 2}), InvalidArgument);
  EXPECT_THROW(description_of(machine, 4, {0, 1, 2, 4}), InvalidArgument);
  EXPECT_EQ(description_of(machine, 8, {4, 1, 2, 3, 0, 5, 6, 7}).nodes, (std::vector<int>{1, 0, 0, 0, 0, 1, 1, 1}));
  machine.planning.nodes = {0, 1, 1};
  EXPECT_EQ(description_of(machine, 3, {1, 2, 0}).nodes, (std::vector<int>{1, 1, 0}));
  EXPECT_THROW(description_of(machine, 4), InvalidArgument);
}

// --- prices of placed ranks ---

TEST(Simulate, RanksThatStandForOthersAreThoseOfAllRanks) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto net = four_convolutions(32, 32);
  for (int i = 0; i < aloni::test::random_cases(10); ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", case " + std::to_string(i));
    Machine machine = machine_of_fours();
    machine.planning.shared_memory = i % 2 == 0;
    std::vector<int> rank_of(16);
    std::iota(rank_of.begin(), rank_of.end(), 0);
    std::shuffle(rank_of.begin(), rank_of.end(), random);
    const std::string split = std::vector<std::string>{"h4w4", "n2h4w2", "n4h4"}[static_cast<std::size_t>(i % 3)];
    const auto layers = layers_of(net, split, 16, 4);
    const double all = seconds_of(net, layers, machine, rank_of, 16), few = seconds_of(net, layers, machine, rank_of);
    // Ranks with equal plans may have neighbours that are late. The largest of 1,600 differences was 4.6 %.
    EXPECT_NEAR(few, all, 0.08 * all);
    // The nodes of a job, with ranks in order, are the same machine.
    Machine job = machine;
    for (const int place : rank_of) job.planning.nodes.push_back(place / 4);
    EXPECT_DOUBLE_EQ(seconds_of(net, layers, job, {}), few);
  }
}

// Ranks 1, 4 and 5 of the first square receive one, one and two borders of a block from other nodes. The link is free
// after four of them.
TEST(Simulate, ARankWaitsForTheSharesOfItsNode) {
  Machine machine = free_machine();
  machine.ranks_per_node = 4;
  machine.planning.shared_memory = false;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].seconds_per_byte = 1e-6;
  const auto net = four_convolutions(256, 256);
  const auto layers = layers_of(net, "h4w4", 16, 1);
  const std::vector<int> squares{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
  const auto seconds = [&](const std::vector<int>& rank_of) {
    return simulate(net, layers, machine, RoundTimes(0), {.kind = nn::StepKind::inference, .rank_of = rank_of}).seconds;
  };
  // In order the inner nodes receive eight rows, two for each rank.
  EXPECT_NEAR(seconds(squares) / seconds({}), 0.5, 0.02);
}

TEST(LayerCosts, NodesOfAJobInOrderArePricedLikeThoseOfTheMachine) {
  const auto net = nn::make_model("resnet18", {.input = views::make_extents(1, {64, 64}, 3)});
  const Machine machine = machine_of_fours();
  Machine job = machine;
  job.planning.nodes = machine_of_nodes(16, 4).nodes;
  const ChooseOptions options{.samples = 16, .simulated = 0};
  const StrategyChoice a = choose_strategy(net, machine, 16, options), b = choose_strategy(net, job, 16, options);
  EXPECT_EQ(to_string(a.strategy), to_string(b.strategy));
  EXPECT_NEAR(a.seconds, b.seconds, 0.02 * a.seconds);  // sums over ranks at odd distances are counted exactly in `b`
}

// --- the search ---

TEST(ChooseStrategy, PlacesRanksIfTheStepIsFaster) {
  const auto net = four_convolutions(256, 256);
  Machine machine = machine_of_fours();
  const ChooseOptions options{.samples = 1};
  const StrategyChoice placed = choose_strategy(net, machine, 16, options);
  ASSERT_FALSE(placed.rank_of.empty()) << placed.placement_reason << ", " << to_string(placed.strategy);
  EXPECT_THAT(placed.placement_reason, HasSubstr("placed: "));
  const auto layers = nn::plan_network(net, placed.splits, 16, 1);
  EXPECT_DOUBLE_EQ(placed.seconds, seconds_of(net, layers, machine, placed.rank_of));
  EXPECT_LT(placed.seconds, seconds_of(net, layers, machine, {}));
  ASSERT_TRUE(placed.uniform);
  EXPECT_LE(placed.seconds, placed.uniform->seconds);

  ChooseOptions in_order = options;
  in_order.place_ranks = false;
  const StrategyChoice without = choose_strategy(net, machine, 16, in_order);
  EXPECT_TRUE(without.rank_of.empty());
  EXPECT_LT(placed.seconds, without.seconds);

  machine.ranks_per_node = 1;
  const StrategyChoice uniform = choose_strategy(net, machine, 16, options);
  EXPECT_TRUE(uniform.rank_of.empty());
  EXPECT_THAT(uniform.placement_reason, HasSubstr("in order: "));
}

TEST(ChooseStrategy, AnOrderThatTheStepDoesNotFeelIsNotKept) {
  const RoundTimes slow_kernels(0, 1e-6);
  Machine machine = machine_of_fours();
  for (int r = 0; r < 16; ++r) machine.planning.nodes.push_back(r % 4);
  const StrategyChoice choice =
      choose_strategy(four_convolutions(256, 256), machine, 16, {.samples = 1, .kernels = &slow_kernels});
  EXPECT_TRUE(choice.rank_of.empty());
  EXPECT_THAT(choice.placement_reason, testing::StartsWith("in order: with "));
}

}  // namespace test_rank_placement
}  // namespace aloni::model
