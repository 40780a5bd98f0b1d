#include <aloni/model/communication.hpp>

#include <aloni/core/comm/all_reduce_traffic.hpp>
#include <aloni/halo/node_pairs.hpp>

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace aloni::model {
namespace test_communication_costs {

using comm::AllReduceAlgorithm;

/// Four ranks on two nodes. Latencies and rates are powers of two or round numbers, so that sums are exact.
Machine round_machine() {
  Machine machine = generic_machine();
  machine.ranks_per_node = 2;
  machine.links[static_cast<std::size_t>(LinkKind::self)] = {0, 1.0 / 8e9, 1e-7};
  machine.links[static_cast<std::size_t>(LinkKind::shared_memory)] = {2e-6, 1.0 / 4e9, 3e-7};
  machine.links[static_cast<std::size_t>(LinkKind::within_node)] = {4e-6, 1.0 / 2e9, 5e-7};
  machine.links[static_cast<std::size_t>(LinkKind::between_nodes)] = {20e-6, 1.0 / 1e9, 1e-6};
  machine.exchange_seconds = 8e-6;
  machine.combine_seconds_per_byte = 1.0 / 16e9;
  return machine;
}

views::Box row(Index first, Index last) { return {{0, 0, 0, 0, first}, {1, 1, 1, 1, last}}; }

/// Rank 1 of four sends `elements` floats to ranks 0 and 2, and receives as many from both.
nn::StepPlan exchange_plan(Index elements) {
  nn::StepPlan plan{.rank = 1, .ranks = 4};
  plan.buffers = {{.name = "x", .type = nn::ElementType::float32, .box = row(0, 4 * elements)}};
  const halo::Move move{row(0, elements), row(0, elements)};
  nn::TransferItemPlan item;
  item.source = item.destination = 0;
  item.plan.sends = {{0, {move}, elements}, {2, {move}, elements}};
  item.plan.receives = item.plan.sends;
  nn::PlanNode node;
  node.work = nn::TransferWork{.name = "halo", .items = {item}};
  plan.nodes = {node};
  return plan;
}

TransferCost cost_of(const nn::StepPlan& plan, const Machine& machine) {
  return transfer_cost(plan, std::get<nn::TransferWork>(plan.nodes[0].work), machine, description_of(machine, 4));
}

ReductionCost sum_cost(const nn::ReductionWork& work, const Machine& machine, const MachineDescription& description,
                       const nn::StepPlan& plan = {}) {
  FittedCollectives fits(machine);
  return reduction_cost(plan, work, machine, description, fits);
}

TEST(CommunicationCosts, ShortValuesArePackedAndSent) {
  const Machine machine = round_machine();
  const TransferCost cost = cost_of(exchange_plan(1000), machine);  // 4000 bytes to each
  // Both messages are packed; rank 0 shares memory, rank 2 is on another node.
  EXPECT_DOUBLE_EQ(cost.start, 4e-6 + 3e-7 + 1e-6 + 2 * (1e-7 + 4000 / 8e9));
  EXPECT_DOUBLE_EQ(cost.finish, cost.start);  // unpacking costs as much here
  ASSERT_EQ(cost.arrivals.size(), 2u);
  EXPECT_EQ(cost.arrivals[0].peer, 0);
  EXPECT_DOUBLE_EQ(cost.arrivals[0].latency, 2e-6);
  EXPECT_DOUBLE_EQ(cost.arrivals[0].wire, 4000 / 4e9);
  EXPECT_FALSE(cost.arrivals[0].between_nodes);
  EXPECT_EQ(cost.arrivals[1].peer, 2);
  EXPECT_DOUBLE_EQ(cost.arrivals[1].latency, 20e-6);
  EXPECT_DOUBLE_EQ(cost.arrivals[1].wire, 4000 / 1e9);
  EXPECT_TRUE(cost.crosses_nodes());
  EXPECT_TRUE(cost.readers.empty());
}

TEST(CommunicationCosts, LongValuesInSharedMemoryAreCopiedByTheReceiver) {
  const Machine machine = round_machine();
  const TransferCost cost = cost_of(exchange_plan(10'000), machine);  // 40,000 bytes: above direct_bytes
  EXPECT_EQ(cost.readers, std::vector<int>{0});
  EXPECT_DOUBLE_EQ(cost.answer, 2e-6);
  EXPECT_DOUBLE_EQ(cost.arrivals[0].wire, 0);
  EXPECT_DOUBLE_EQ(cost.start, 4e-6 + 3e-7 + 1e-6 + 1e-7 + 40'000 / 8e9);  // for rank 2
  EXPECT_DOUBLE_EQ(cost.finish, 4e-6 + 3e-7 + 40'000 / 4e9 + 1e-7 + 1e-6 + 1e-7 + 40'000 / 8e9);
}

/// 4,000 bytes each from the ranks 0 and 1 to rank 2, and from the ranks 2 and 3 to rank 1.
std::vector<halo::NodePair> pairs_of_nodes() {
  constexpr std::array node_of{0, 0, 1, 1};
  return halo::pair_nodes({{0, 2, 4000}, {1, 2, 4000}, {2, 1, 4000}, {3, 1, 4000}}, node_of, 5000);
}

// The pairs take the second of two ranks as their relay: 1 to 2, and 3 to 1.
TEST(CommunicationCosts, ARelaySendsAndReceivesForItsNode) {
  const Machine machine = round_machine();
  const nn::StepPlan plan = exchange_plan(1000);
  const auto& work = std::get<nn::TransferWork>(plan.nodes[0].work);
  const TransferCost cost = transfer_cost(plan, work, machine, description_of(machine, 4), pairs_of_nodes());
  const double packed = 2 * (1e-7 + 4000 / 8e9), one_message = 1e-6;
  EXPECT_DOUBLE_EQ(cost.start, 4e-6 + 3e-7 + packed + 2 * 3e-7 + one_message) << "and two empty messages with rank 0";
  EXPECT_DOUBLE_EQ(cost.finish, 4e-6 + 3e-7 + packed + one_message) << "rank 1 alone receives";
  EXPECT_TRUE(cost.consolidated);
  EXPECT_TRUE(cost.readers.empty());
  ASSERT_EQ(cost.arrivals.size(), 3u);
  EXPECT_EQ(cost.arrivals[0].peer, 0);
  EXPECT_EQ(cost.arrivals[1].peer, 2);
  EXPECT_DOUBLE_EQ(cost.arrivals[1].latency, 2e-6 + 20e-6) << "rank 2 tells rank 3, which sends";
  EXPECT_EQ(cost.arrivals[2].peer, 3);
  EXPECT_DOUBLE_EQ(cost.arrivals[2].latency, 20e-6);
  for (const int i : {1, 2}) {
    EXPECT_DOUBLE_EQ(cost.arrivals[static_cast<std::size_t>(i)].wire, 4000 / 1e9);
    EXPECT_TRUE(cost.arrivals[static_cast<std::size_t>(i)].between_nodes);
  }
}

TEST(CommunicationCosts, TheAdjointSwapsTheRolesOfRelays) {
  const Machine machine = round_machine();
  nn::StepPlan plan = exchange_plan(1000);
  auto& work = std::get<nn::TransferWork>(plan.nodes[0].work);
  work.adjoint = true;
  const auto pairs = pairs_of_nodes();
  const TransferCost relay = transfer_cost(plan, work, machine, description_of(machine, 4), pairs);
  const double packed = 2 * (1e-7 + 4000 / 8e9), one_message = 1e-6, with_rank_0 = 3e-7;
  EXPECT_DOUBLE_EQ(relay.start, 4e-6 + with_rank_0 + packed + one_message);
  EXPECT_DOUBLE_EQ(relay.finish, 4e-6 + with_rank_0 + packed + one_message + 2 * 3e-7);
  EXPECT_EQ(relay.readers, std::vector<int>{0}) << "rank 0 unpacks from the memory of rank 1";
  EXPECT_DOUBLE_EQ(relay.answer, 2e-6);

  // Rank 0 has no relay's work: one empty message in each direction, before and after it unpacks.
  plan.rank = 0;
  for (auto* const messages : {&work.items[0].plan.sends, &work.items[0].plan.receives}) (*messages)[0].peer = 1;
  const TransferCost other = transfer_cost(plan, work, machine, description_of(machine, 4), pairs);
  EXPECT_DOUBLE_EQ(other.finish, 4e-6 + 3e-7 + packed + 2 * 3e-7);
  ASSERT_EQ(other.arrivals.size(), 2u);
  EXPECT_DOUBLE_EQ(other.arrivals[1].latency, 20e-6 + 2e-6);
}

TEST(CommunicationCosts, MessagesOverOneLinkArriveOneAfterTheOther) {
  Machine machine = round_machine();
  machine.ranks_per_node = 1;
  const TransferCost cost = cost_of(exchange_plan(1000), machine);
  EXPECT_DOUBLE_EQ(cost.arrivals[0].wire, 4000 / 1e9);
  EXPECT_DOUBLE_EQ(cost.arrivals[1].wire, 8000 / 1e9);
}

// Thakur, Rabenseifner and Gropp 2005, section 4.5.
TEST(CommunicationCosts, AllReducesFollowTheirClosedForms) {
  const Machine machine = round_machine();
  const double n = 1e6, beta = 1 / 2e9, gamma = 1 / 16e9, alpha = 4e-6 + 2 * 5e-7;
  EXPECT_DOUBLE_EQ(all_reduce_seconds(AllReduceAlgorithm::recursive_doubling, n, 8, 1, machine),
                   3 * (alpha + n * (beta + gamma)));
  EXPECT_DOUBLE_EQ(all_reduce_seconds(AllReduceAlgorithm::rabenseifner, n, 8, 1, machine),
                   6 * alpha + 7.0 / 8 * n * (2 * beta + gamma));
  EXPECT_DOUBLE_EQ(all_reduce_seconds(AllReduceAlgorithm::ring, n, 8, 1, machine),
                   14 * alpha + 7.0 / 8 * n * (2 * beta + gamma));
  EXPECT_EQ(all_reduce_seconds(AllReduceAlgorithm::ring, n, 1, 1, machine), 0);
  // The ranks of a node share its link, except in a ring.
  EXPECT_GT(all_reduce_seconds(AllReduceAlgorithm::rabenseifner, 1e8, 8, 4, machine),
            1.5 * all_reduce_seconds(AllReduceAlgorithm::ring, 1e8, 8, 4, machine));
}

TEST(CommunicationCosts, DevicesTakeTheFasterOneOfRingAndTree) {
  Machine machine = round_machine();
  machine.combine_seconds_per_byte = 0;
  // Long values: the ring moves 2 (P - 1) / P n over the slowest link.
  EXPECT_NEAR(device_all_reduce_seconds(1e9, 4, 2, machine), 2 * 3.0 / 4 * 1e9 / 1e9, 1e-3);
  // Short values on many nodes: the tree has log2(1024) steps between nodes.
  EXPECT_LT(device_all_reduce_seconds(8, 2048, 1024, machine), 2 * 10 * 20e-6 + 20e-6);
}

TEST(CommunicationCosts, SumsOnAHostKeepTheCoreBusy) {
  Machine machine = round_machine();
  nn::ReductionWork work{.members = {0, 1}, .elements = 250'000, .type = nn::ElementType::float32};
  work.plan.algorithm = AllReduceAlgorithm::direct;
  const ReductionCost modelled = sum_cost(work, machine, description_of(machine, 2));
  EXPECT_EQ(modelled.flight, 0);
  EXPECT_DOUBLE_EQ(modelled.finish, 4e-6 + all_reduce_seconds(AllReduceAlgorithm::direct, 1e6, 2, 1, machine));

  machine.all_reduces = {{.ranks = 2, .nodes = 1, .measurements = {{AllReduceAlgorithm::direct, 1'000'000, 0.25}}}};
  EXPECT_DOUBLE_EQ(sum_cost(work, machine, description_of(machine, 2)).finish, 4e-6 + 0.25);

  work.members = {0, 2};  // on two nodes: the network works beside kernels
  work.plan.algorithm = AllReduceAlgorithm::ring;
  const ReductionCost between = sum_cost(work, machine, description_of(machine, 4));
  EXPECT_DOUBLE_EQ(between.flight, 20e-6 + 1e6 / 1e9);
  EXPECT_DOUBLE_EQ(between.flight + between.finish,
                   4e-6 + all_reduce_seconds(AllReduceAlgorithm::ring, 1e6, 2, 2, machine));

  machine.planning.on_host = false;
  EXPECT_DOUBLE_EQ(sum_cost(work, machine, description_of(machine, 4)).finish, 4e-6);
}

comm::CollectiveMethod method_of_fit(AllReduceAlgorithm algorithm) {
  return algorithm == AllReduceAlgorithm::ring ? comm::CollectiveMethod::ring : comm::CollectiveMethod::direct;
}
CollectiveFit fit_of_sum(AllReduceAlgorithm algorithm, bool shared, int ranks, int nodes, double seconds) {
  return {.operation = comm::OperationKind::all_reduce,
          .method = method_of_fit(algorithm),
          .shared_data = shared,
          .ranks = ranks,
          .nodes = nodes,
          .seconds_per_call = seconds,
          .message_factor = 0,
          .rates = {{1024, 0}}};  // a call takes these seconds
}

TEST(CommunicationCosts, ASumTakesTheFitOfItsAlgorithmAndMemory) {
  Machine machine = round_machine();
  nn::StepPlan plan;
  plan.buffers = {{.name = "sums"}, {.name = "statistics", .shared = true}, {.name = "part", .alias = 1}};
  nn::ReductionWork work{.members = {0, 1}, .elements = 1000, .type = nn::ElementType::float64, .buffers = {0}};
  work.plan.algorithm = AllReduceAlgorithm::direct;
  const auto cost = [&] { return sum_cost(work, machine, description_of(machine, 4), plan); };
  EXPECT_EQ(cost().source, CommunicationSource::links);
  machine.all_reduces = {{.ranks = 2, .nodes = 1, .measurements = {{AllReduceAlgorithm::direct, 8000, 0.25}}}};
  EXPECT_EQ(cost().source, CommunicationSource::measured);
  EXPECT_DOUBLE_EQ(cost().finish, 4e-6 + 0.25);
  machine.collectives = {fit_of_sum(AllReduceAlgorithm::direct, false, 2, 1, 1),
                         fit_of_sum(AllReduceAlgorithm::direct, true, 2, 1, 2),
                         fit_of_sum(AllReduceAlgorithm::ring, false, 2, 1, 3)};
  EXPECT_EQ(cost().source, CommunicationSource::fit);
  EXPECT_DOUBLE_EQ(cost().finish, 4e-6 + 1);
  work.buffers = {2};  // a part of a buffer that transfers read
  EXPECT_DOUBLE_EQ(cost().finish, 4e-6 + 2);
  work.buffers = {0, 1};
  work.segment = 0;  // gradients
  EXPECT_DOUBLE_EQ(cost().finish, 4e-6 + 2);
  work.plan.algorithm = AllReduceAlgorithm::ring;
  EXPECT_EQ(cost().source, CommunicationSource::links);  // the fit is of private memory, the others of `direct`
  machine.planning.shared_memory = false;                // gradients are private too
  EXPECT_EQ(cost().source, CommunicationSource::fit);
  EXPECT_DOUBLE_EQ(cost().finish, 4e-6 + 3);
}

TEST(CommunicationCosts, TheFastestSumComesFromTheFirstSourceThatKnowsIt) {
  Machine machine = round_machine();
  const GroupSum sum{.bytes = 8000, .members = 2, .nodes = 1, .shared_data = true};
  const auto seconds = [&](const GroupSum& of) {
    FittedCollectives fits(machine);
    return fastest_sum_seconds(of, machine, fits);
  };
  EXPECT_DOUBLE_EQ(seconds(sum), fastest_all_reduce_seconds(8000, 2, 1, machine));
  machine.all_reduces = {
      {.ranks = 2,
       .nodes = 1,
       .measurements = {{AllReduceAlgorithm::direct, 8000, 0.5}, {AllReduceAlgorithm::ring, 8000, 0.25}}}};
  EXPECT_DOUBLE_EQ(seconds(sum), 0.25);
  machine.collectives = {fit_of_sum(AllReduceAlgorithm::direct, true, 2, 1, 2),
                         fit_of_sum(AllReduceAlgorithm::direct, false, 2, 1, 1),
                         fit_of_sum(AllReduceAlgorithm::ring, true, 2, 1, 3)};
  EXPECT_DOUBLE_EQ(seconds(sum), 2);
  EXPECT_DOUBLE_EQ(seconds({.bytes = 8000, .members = 2, .nodes = 1}), 1);
  // Neither four members nor two nodes were measured.
  EXPECT_DOUBLE_EQ(seconds({.bytes = 8000, .members = 4}), fastest_all_reduce_seconds(8000, 4, 1, machine));
  EXPECT_DOUBLE_EQ(seconds({.bytes = 8000, .members = 2, .nodes = 2}), fastest_all_reduce_seconds(8000, 2, 2, machine));
  EXPECT_EQ(seconds({.bytes = 8000, .members = 1}), 0);
  machine.planning.on_host = false;  // a device's library adds
  EXPECT_DOUBLE_EQ(seconds(sum), device_all_reduce_seconds(8000, 2, 1, machine));
}

TEST(CommunicationCosts, FitsOfOtherRanksAndNodesDoNotCount) {
  Machine machine = round_machine();
  nn::ReductionWork work{.members = {0, 2}, .elements = 1000, .type = nn::ElementType::float32, .segment = 0};
  work.plan.algorithm = AllReduceAlgorithm::ring;
  const auto cost = [&] { return sum_cost(work, machine, description_of(machine, 4)); };  // on two nodes
  const ReductionCost links = cost();
  machine.collectives = {fit_of_sum(AllReduceAlgorithm::ring, true, 2, 1, 1),
                         fit_of_sum(AllReduceAlgorithm::ring, true, 4, 2, 1)};
  EXPECT_EQ(cost().source, CommunicationSource::links);
  EXPECT_EQ(cost().finish, links.finish);
  EXPECT_EQ(cost().flight, links.flight);
  machine.collectives.push_back(fit_of_sum(AllReduceAlgorithm::ring, true, 2, 2, 1));
  EXPECT_EQ(cost().source, CommunicationSource::fit);
  EXPECT_EQ(cost().flight, links.flight);  // the network works beside kernels
  EXPECT_DOUBLE_EQ(cost().flight + cost().finish, 4e-6 + 1);
  machine.planning.on_host = false;  // a device's library adds
  EXPECT_EQ(cost().source, CommunicationSource::links);
  EXPECT_LT(cost().flight, 1);
}

/// A machine whose links were fitted by a calibration with two ranks.
Machine calibrated() {
  Machine machine = generic_machine();
  machine.ranks_per_node = 4;
  machine.all_reduces = {{.ranks = 2, .nodes = 1, .measurements = {{comm::AllReduceAlgorithm::ring, 1024, 1e-3, 0}}}};
  return machine;
}

TEST(AllReduces, MeasuredOnesComeFirst) {
  const Machine machine = calibrated();
  EXPECT_EQ(description_of(machine, 2).tuning, machine.all_reduces.front());
}

TEST(AllReduces, FitsOfTheLinksDecideForOtherRanks) {
  using A = comm::AllReduceAlgorithm;
  const Machine machine = calibrated();
  const auto tuning = description_of(machine, 8).tuning;
  ASSERT_TRUE(tuning);
  EXPECT_EQ(tuning->ranks, 8);
  EXPECT_EQ(tuning->nodes, 2);
  EXPECT_LT(tuning->measured_seconds(A::direct, 1024), 0);  // two nodes share no memory
  for (const A a : {A::recursive_doubling, A::rabenseifner, A::ring, A::hierarchical})
    EXPECT_DOUBLE_EQ(tuning->measured_seconds(a, 1 << 20), all_reduce_seconds(a, 1 << 20, 8, 2, machine));
  // One node: the hierarchy has one level.
  const auto one_node = description_of(machine, 4).tuning;
  ASSERT_TRUE(one_node);
  EXPECT_LT(one_node->measured_seconds(A::hierarchical, 1024), 0);
  EXPECT_GT(one_node->measured_seconds(A::direct, 1024), 0);
  // A hierarchy needs equal nodes.
  EXPECT_LT(description_of(machine, 6).tuning->measured_seconds(A::hierarchical, 1024), 0);
}

TEST(AllReduces, TheFasterLinkOfAMachineChangesTheAlgorithmOfAPlan) {
  const auto algorithm = [](double latency, double seconds_per_byte) {
    Machine machine = calibrated();
    machine.ranks_per_node = 1;
    machine.links[static_cast<std::size_t>(LinkKind::between_nodes)] = {latency, seconds_per_byte, 0};
    const MachineDescription description = description_of(machine, 8);
    const std::vector<std::vector<int>> nodes{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
    return comm::AllReduceChooser(nodes, true, description.tuning)(1 << 16, 4).algorithm;
  };
  EXPECT_EQ(algorithm(1, 1e-12), comm::AllReduceAlgorithm::recursive_doubling);    // the fewest messages
  EXPECT_NE(algorithm(1e-9, 1e-6), comm::AllReduceAlgorithm::recursive_doubling);  // the fewest bytes
}

TEST(AllReduces, WithoutMeasurementsConstantsDecide) {
  Machine machine = calibrated();
  machine.all_reduces.clear();
  EXPECT_FALSE(description_of(machine, 8).tuning);
  Machine device = calibrated();
  device.planning.on_host = false;  // its library chooses
  EXPECT_FALSE(description_of(device, 8).tuning);
}

}  // namespace test_communication_costs
}  // namespace aloni::model
