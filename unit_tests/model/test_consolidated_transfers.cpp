// The messages that the transfers of a step join, from plans of all ranks and from plans of classes of ranks, and their
// price.
#include "round_times.hpp"

#include <aloni/model/detail/consolidated_transfers.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/representatives.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <tuple>
#include <variant>
#include <vector>

namespace aloni::model {
namespace test_consolidated_transfers {

using detail::ConsolidatedTransfers;

constexpr int ranks = 64, per_node = 8;  // a row of blocks on each node

nn::NetworkDescription plane() {
  const nn::Convolution convolution{4, nn::square_window(2, 3, 1, 1), false};
  return {.spatial_rank = 2,
          .input = views::make_extents(1, {64, 64}, 4),
          .layers = {{"first", convolution, {"input"}},
                     {"second", convolution, {"first"}},
                     {"third", convolution, {"second"}}},
          .loss = nn::Loss::mean_squared_error};
}

std::vector<nn::StepPlan> plans_of(const nn::NetworkPlan& layers, const MachineDescription& machine,
                                   const std::vector<int>& of) {
  std::vector<nn::StepPlan> plans;
  for (const int rank : of) plans.push_back(plan_step(plane(), layers, rank, nn::StepKind::training, machine));
  return plans;
}

std::vector<const nn::StepPlan*> pointers_to(const std::vector<nn::StepPlan>& plans) {
  std::vector<const nn::StepPlan*> pointers;
  for (const nn::StepPlan& plan : plans) pointers.push_back(&plan);
  return pointers;
}

/// Senders, receivers and relays of pairs, with the bytes of their messages.
auto facts_of(const std::vector<halo::NodePair>& pairs) {
  std::vector<std::tuple<int, int, std::vector<int>, std::vector<int>, std::size_t>> facts;
  for (const halo::NodePair& p : pairs)
    facts.emplace_back(p.relay_from, p.relay_to, p.senders(), p.receivers(), p.bytes);
  return facts;
}

TEST(ConsolidatedTransfers, OfClassesAreThoseOfAllRanks) {
  const nn::NetworkPlan layers = layers_of(plane(), "h8w8", ranks, 1);
  const MachineDescription machine = machine_of_nodes(ranks, per_node);
  std::vector<int> all, of_class(ranks);
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  const nn::Representatives few = find_representatives(plane(), layers, machine);
  ASSERT_LT(few.ranks.size(), all.size());
  for (std::size_t c = 0; c < few.ranks.size(); ++c)
    for (const int member : few.members[c]) of_class[static_cast<std::size_t>(member)] = static_cast<int>(c);
  const std::vector<nn::StepPlan> every = plans_of(layers, machine, all), some = plans_of(layers, machine, few.ranks);
  ConsolidatedTransfers exact(pointers_to(every), all, machine), by_class(pointers_to(some), of_class, machine);
  int joined = 0;
  for (std::size_t c = 0; c < few.ranks.size(); ++c) {
    for (int k = 0; k < some[c].communications; ++k) {
      const auto facts = facts_of(by_class.of(static_cast<int>(c), k));
      EXPECT_EQ(facts, facts_of(exact.of(few.ranks[c], k))) << "rank " << few.ranks[c] << ", communication " << k;
      for (const auto& [from, to, senders, receivers, bytes] : facts) {
        EXPECT_EQ(senders.size(), std::size_t{per_node});
        EXPECT_EQ(receivers.size(), std::size_t{per_node});
      }
      joined += static_cast<int>(facts.size());
    }
  }
  EXPECT_GT(joined, 0);
}

TEST(ConsolidatedTransfers, NeedShortMessagesOfSeveralRanksThatShareMemory) {
  const nn::NetworkPlan layers = layers_of(plane(), "h8w8", ranks, 1);
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  const auto joined_with = [&](MachineDescription machine) {
    const std::vector<nn::StepPlan> plans = plans_of(layers, machine, all);
    ConsolidatedTransfers transfers(pointers_to(plans), all, machine);
    std::size_t joined = 0;
    for (int k = 0; k < plans[0].communications; ++k) joined += transfers.of(0, k).size();
    return joined;
  };
  const MachineDescription machine = machine_of_nodes(ranks, per_node);
  EXPECT_GT(joined_with(machine), 0u);
  EXPECT_EQ(joined_with(machine_of_nodes(ranks, 1)), 0u) << "one message between any two nodes";
  EXPECT_EQ(joined_with(machine_of_nodes(ranks, 0)), 0u) << "one node";
  for (const auto& change :
       {+[](MachineDescription& m) { m.shared_memory = false; }, +[](MachineDescription& m) { m.on_host = false; },
        +[](MachineDescription& m) { m.consolidate_below = 0; },
        +[](MachineDescription& m) { m.consolidate_below = 64; }}) {
    MachineDescription changed = machine;
    change(changed);
    EXPECT_EQ(joined_with(changed), 0u);
  }
}

TEST(ConsolidatedTransfers, SaveTimeWhereMessagesBetweenNodesCostMuch) {
  const nn::NetworkPlan layers = layers_of(plane(), "h8w8", ranks, 1);
  const auto seconds = [&](Machine machine, Index below, int most_single_ranks) {
    machine.ranks_per_node = per_node;
    machine.planning.consolidate_below = below;
    return simulate(plane(), layers, machine, RoundTimes(1e-3), {.most_single_ranks = most_single_ranks}).seconds;
  };
  for (const int most_single_ranks : {0, ranks}) {
    Machine machine = free_machine();
    LinkCosts& far = machine.links[static_cast<std::size_t>(LinkKind::between_nodes)];
    far.seconds_per_message = 1e-3;
    EXPECT_LT(seconds(machine, default_consolidate_below, most_single_ranks),
              0.8 * seconds(machine, 0, most_single_ranks));
    far.seconds_per_message = 0;
    machine.links[static_cast<std::size_t>(LinkKind::shared_memory)].latency = 1e-3;
    EXPECT_GT(seconds(machine, default_consolidate_below, most_single_ranks), seconds(machine, 0, most_single_ranks));
  }
}

/// A byte of a joined message costs what it costs in a message of its own: the ranks of a node share the link.
TEST(ConsolidatedTransfers, DoNotChangeTheTimeOfTheirBytes) {
  const nn::NetworkPlan layers = layers_of(plane(), "h2w2", 4, 1);
  Machine machine = free_machine();
  machine.ranks_per_node = 2;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].seconds_per_byte = 1e-6;
  const auto seconds = [&](Index below) {
    machine.planning.consolidate_below = below;
    return simulate(plane(), layers, machine, RoundTimes(1e-3)).seconds;
  };
  EXPECT_NEAR(seconds(default_consolidate_below) / seconds(0), 1, 0.05);
}

/// Blocks of two columns, of one and of one: the ranks of a node get different numbers of bytes. Rank 1 is its relay.
TEST(ConsolidatedTransfers, ArriveForAllRanksOfANodeTogether) {
  nn::NetworkDescription net = plane();
  net.input = views::make_extents(1, {64, 4}, 4);
  const nn::NetworkPlan layers = layers_of(net, "h2w3", 6, 1);
  Machine machine = free_machine();
  machine.ranks_per_node = 3;
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)].seconds_per_byte = 1e-6;
  const auto first_arrival = [&](Index below, int rank) {
    machine.planning.consolidate_below = below;
    for (const SimulatedAction& a : simulate(net, layers, machine, RoundTimes(0), {.timeline = true}).actions)
      if (a.rank == rank && a.kind == nn::StepActionKind::finish) return a.end - a.start;
    return 0.0;
  };
  EXPECT_GT(first_arrival(0, 2), 0);
  EXPECT_GT(first_arrival(0, 0), 1.1 * first_arrival(0, 2));
  EXPECT_NEAR(first_arrival(default_consolidate_below, 0), first_arrival(default_consolidate_below, 2), 1e-9);
  EXPECT_NEAR(first_arrival(default_consolidate_below, 0), first_arrival(0, 0), 1e-9);
}

}  // namespace test_consolidated_transfers
}  // namespace aloni::model
