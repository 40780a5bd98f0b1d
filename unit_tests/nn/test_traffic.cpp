// The bytes and messages of a training step, as the plan predicts them and as the communicator counts them.
#include "random_network.hpp"
#include "support/random_cases.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/partial_all_reduce.hpp>
#include <aloni/core/comm/running_machine.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/network.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/run/binder.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn::test {
namespace test_traffic {

using Exec = Kokkos::DefaultExecutionSpace;
constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;

/// What this rank has exchanged with other ranks so far, without `before`.
NodeCost counted(const comm::Communicator& comm, const NodeCost& before = {}) {
  NodeCost sum{.bytes_sent = -before.bytes_sent,
               .bytes_received = -before.bytes_received,
               .messages_sent = -before.messages_sent,
               .messages_received = -before.messages_received};
  for (const comm::PeerTraffic& peer : comm.traffic_by_peer()) {
    if (peer.rank == comm.rank()) continue;
    for (const comm::TrafficCounters* c : {&peer.messages, &peer.collectives}) {
      sum.bytes_sent += static_cast<Index>(c->bytes_sent);
      sum.bytes_received += static_cast<Index>(c->bytes_received);
      sum.messages_sent += static_cast<Index>(c->messages_sent);
      sum.messages_received += static_cast<Index>(c->messages_received);
    }
  }
  return sum;
}

/// `besides`: traffic that is not part of the steps.
void expect_equal(const NodeCost& counted, int steps, const NodeCost& planned, const NodeCost& besides = {}) {
  EXPECT_EQ(counted.bytes_sent, steps * planned.bytes_sent + besides.bytes_sent);
  EXPECT_EQ(counted.bytes_received, steps * planned.bytes_received + besides.bytes_received);
  EXPECT_EQ(counted.messages_sent, steps * planned.messages_sent + besides.messages_sent);
  EXPECT_EQ(counted.messages_received, steps * planned.messages_received + besides.messages_received);
}

/// Messages to and from each other rank so far: transfers, and if asked for also collectives.
std::map<int, PeerMessages> messages_so_far(const comm::Communicator& comm, bool with_collectives = false) {
  std::map<int, PeerMessages> peers;
  for (const comm::PeerTraffic& peer : comm.traffic_by_peer()) {
    if (peer.rank == comm.rank()) continue;
    const comm::TrafficCounters& m = peer.messages;
    const comm::TrafficCounters c = with_collectives ? peer.collectives : comm::TrafficCounters{};
    peers[peer.rank] = {peer.rank, static_cast<Index>(m.bytes_sent + c.bytes_sent),
                        static_cast<Index>(m.bytes_received + c.bytes_received),
                        static_cast<Index>(m.messages_sent + c.messages_sent),
                        static_cast<Index>(m.messages_received + c.messages_received)};
  }
  return peers;
}

/// Between each pair of ranks the step has the messages of the plan.
void expect_messages(const std::map<int, PeerMessages>& before, const std::map<int, PeerMessages>& after, int steps,
                     const std::vector<PeerMessages>& planned) {
  std::map<int, PeerMessages> expected;
  for (const PeerMessages& p : planned) expected[p.peer] = p;
  for (const auto& [peer, now] : after) {
    const PeerMessages& earlier = before.at(peer);
    const PeerMessages& p = expected[peer];
    EXPECT_EQ(now.bytes_sent - earlier.bytes_sent, steps * p.bytes_sent) << "to rank " << peer;
    EXPECT_EQ(now.bytes_received - earlier.bytes_received, steps * p.bytes_received) << "from rank " << peer;
    EXPECT_EQ(now.messages_sent - earlier.messages_sent, steps * p.messages_sent) << "to rank " << peer;
    EXPECT_EQ(now.messages_received - earlier.messages_received, steps * p.messages_received) << "from rank " << peer;
    expected.erase(peer);
  }
  EXPECT_TRUE(expected.empty()) << "messages to ranks of which the communicator knows nothing";
}

/// Adds `times` times the messages with all peers.
void add(NodeCost& sum, const std::vector<PeerMessages>& peers, int times) {
  for (const PeerMessages& p : peers) {
    sum.bytes_sent += times * p.bytes_sent;
    sum.bytes_received += times * p.bytes_received;
    sum.messages_sent += times * p.messages_sent;
    sum.messages_received += times * p.messages_received;
  }
}

/// Random networks from seeds above `first`. Returns the number of networks that have more sums of gradients, or more
/// chunks, than with the default sizes.
int expect_planned_traffic(const comm::Communicator& comm, int cases, std::uint64_t first) {
  const MachineDescription by_default = comm::describe_machine(comm, local::machine_of_this_build(on_host));
  const Queue<Exec> queue;
  int copies_more = 0;  // networks with more copies from other ranks' memory than by default
  int sums_more = 0;
  for (int i = 0; i < cases; ++i) {
    Dice dice(first + static_cast<std::uint64_t>(i) + 1000 * static_cast<std::uint64_t>(comm.size()));
    const NetworkDescription net = random_network(dice, Kinds::all);
    const Index samples = dice(1, 5);
    const Strategy strategy = random_strategy(dice, net, splits_for(comm.size(), net.spatial_rank));
    const bool split = dice(0, 1) == 1;
    // Below the default even small tensors are copied.
    NetworkOptions options;
    if (i % 3 > 0) options.direct_bytes = i % 3 == 1 ? 0 : 200;
    MachineDescription machine = by_default;
    machine.direct_bytes = options.direct_bytes.value_or(by_default.direct_bytes);
    if (i % 2 == 1) machine.bucket_bytes = *(options.bucket_bytes = 128);
    if (i % 5 == 0) machine.chunk_bytes = static_cast<double>(*(options.chunk_bytes = 256));
    SCOPED_TRACE("case " + std::to_string(i) + ", strategy " + to_string(strategy));
    const auto splits = resolve(strategy, net, comm.size());
    Parameters<float, Exec> parameters =
        split ? Parameters<float, Exec>(comm, queue, net, splits, 1) : Parameters<float, Exec>(comm, queue, net, 1);
    Network<float, Exec> network(comm, queue, net, strategy, samples, parameters, options);
    network.train_step(queue);
    const NodeCost before = counted(comm);
    const std::map<int, PeerMessages> messages_before = messages_so_far(comm);
    constexpr int steps = 2;
    for (int step = 0; step < steps; ++step) network.train_step(queue);
    const NodeCost traffic = counted(comm, before);
    const std::map<int, PeerMessages> messages_after = messages_so_far(comm);
    const auto planned_on = [&](int rank, const MachineDescription& m) {
      return plan_step(net, plan_network(net, splits, comm.size(), samples), rank, StepKind::training, m,
                       {.split_parameters = split, .update = false});
    };
    const auto planned_for = [&](const MachineDescription& m) { return planned_on(comm.rank(), m); };
    const StepPlan plan = planned_for(machine);
    NodeCost planned = cost(plan, machine).total();
    if (joins_messages(machine)) {
      std::vector<StepPlan> plans;
      for (int r = 0; r < comm.size(); ++r) plans.push_back(planned_on(r, machine));
      add(planned, messages_of_ranks(plans, machine)[static_cast<std::size_t>(comm.rank())], 1);
      add(planned, messages_by_peer(plan, machine), -1);
    } else {
      expect_messages(messages_before, messages_after, steps, messages_by_peer(plan, machine));
    }
    expect_equal(traffic, steps, planned);
    if (planned.messages_received > cost(plan, by_default).total().messages_received) ++copies_more;
    if (plan.communications > planned_for(by_default).communications) ++sums_more;
  }
  // The direct_bytes of the options reach both the plan and the transfers, or the messages would differ.
  const int copies_more_somewhere = comm.all_reduce(copies_more, comm::Reduction::sum);
  EXPECT_EQ(copies_more_somewhere > 0, by_default.shared_memory);
  return sums_more;
}

/// The default run has 201 networks: on 2 and 8 ranks with shared memory, and on 2 with messages.
TEST(Traffic, OfATrainingStepIsThatOfThePlan) {
  if (!on_host) GTEST_SKIP() << "sums of a device have ways of their own, which plans do not know";
  constexpr int all = 67;
  const int cases = aloni::test::random_cases(all);
  const int sums_more = expect_planned_traffic(aloni::test::make_communicator(), cases, 0);
  // The bucket_bytes and chunk_bytes of the options reach the plan and the sums. Few networks have several buckets, and
  // the quarter of them under a sanitizer may have none.
  if (cases >= all) {
    EXPECT_GT(sums_more, 0);
  }
}

/// A quorum of all ranks: otherwise a late rank takes part in a round when it is already counted.
TEST(Traffic, OfAStepWithAPartialAllReduceIsThatOfThePlan) {
  if (!on_host) GTEST_SKIP() << "sums of a device have ways of their own, which plans do not know";
  const auto comm = aloni::test::make_communicator();
  const MachineDescription machine = comm::describe_machine(comm, local::machine_of_this_build(on_host));
  const Queue<Exec> queue;
  const StepOptions sums{.split_parameters = false, .sums = GradientSums::partial, .update = false};
  const NodeCost first = counted(comm);
  comm.barrier();
  const NodeCost barrier = counted(comm, first);
  for (int i = 0; i < aloni::test::random_cases(8); ++i) {
    Dice dice(3000 + static_cast<std::uint64_t>(i));
    const NetworkDescription net = random_network(dice, Kinds::all);
    const Index samples = dice(1, 5);
    const Strategy strategy = random_strategy(dice, net, splits_for(comm.size(), net.spatial_rank));
    SCOPED_TRACE("case " + std::to_string(i) + ", strategy " + to_string(strategy));
    Parameters<float, Exec> parameters(comm, queue, net, 1);
    Network<float, Exec> network(comm, queue, net, strategy, samples, parameters);
    comm::PartialAllReduce<float> partial(comm, parameters.gradients().extent(0), {.quorum = comm.size()});
    network.train_step(queue, &partial);
    const NodeCost before = counted(comm);
    comm.barrier();  // no rank has begun the next round, or the farewell, before all have counted
    constexpr int steps = 3;
    for (int step = 0; step < steps; ++step) network.train_step(queue, &partial);
    const NodeCost traffic = counted(comm, before);
    comm.barrier();
    const NetworkPlan layers = plan_network(net, resolve(strategy, net, comm.size()), comm.size(), samples);
    const NodeCost planned =
        cost(plan_step(net, layers, comm.rank(), StepKind::training, machine, sums), machine).total();
    expect_equal(traffic, steps, planned, barrier);
  }
}

/// Every algorithm and part size of the plan is that of the tuning, also where no all-reduce would take it by itself.
TEST(Traffic, WithATuningIsThatOfThePlan) {
  if (!on_host) GTEST_SKIP() << "sums of a device have ways of their own, which plans do not know";
  const auto comm = aloni::test::make_communicator();
  const std::int64_t nodes = comm.all_reduce(std::int64_t{comm.node().rank() == 0 ? 1 : 0}, comm::Reduction::sum);
  comm::Tuning tuning{.ranks = comm.size(), .nodes = static_cast<int>(nodes)};
  tuning.measurements.push_back({comm::AllReduceAlgorithm::ring, 8, 1e-6, 512});
  tuning.measurements.push_back({comm::AllReduceAlgorithm::recursive_doubling, 8, 1e-3, 0});
  comm.set_tuning(tuning);
  EXPECT_EQ(comm::describe_machine(comm, local::machine_of_this_build(on_host)).tuning, tuning);
  expect_planned_traffic(comm, aloni::test::random_cases(5), 500);
}

/// The ranks of each of two nodes; 0: they cannot have several ranks each, and equally many.
int ranks_of_two_nodes() {
  const int ranks = aloni::test::make_communicator().size();
  return ranks >= 4 && ranks % 2 == 0 ? ranks / 2 : 0;
}

/// Two nodes, each with half of the ranks: rows of blocks between the nodes, columns within.
TEST(Traffic, OptionsDecideWhichMessagesBetweenNodesAreJoined) {
  if (!on_host) GTEST_SKIP() << "between devices groups of messages travel";
  const int per_node = ranks_of_two_nodes();
  if (per_node == 0) GTEST_SKIP() << "two nodes with several ranks each";
  const auto comm = comm::from_mpi(MPI_COMM_WORLD, {.ranks_per_node = per_node});
  const Convolution convolution{4, square_window(2, 3, 1, 1), false};
  const NetworkDescription net{.spatial_rank = 2,
                               .input = views::make_extents(1, {16, 16}, 4),
                               .layers = {{"first", convolution, {"input"}}, {"second", convolution, {"first"}}},
                               .loss = Loss::mean_squared_error};
  const Strategy strategy = Strategy::uniform(LayerSplit::parse("h2w" + std::to_string(per_node)));
  const std::vector<int> nodes = comm::nodes_of_ranks(comm);
  const auto between_nodes = [&] {
    std::int64_t messages = 0;
    for (const comm::PeerTraffic& peer : comm.traffic_by_peer())
      if (nodes[static_cast<std::size_t>(peer.rank)] != nodes[static_cast<std::size_t>(comm.rank())])
        messages += static_cast<std::int64_t>(peer.messages.messages_sent + peer.collectives.messages_sent);
    return messages;
  };
  const Queue<Exec> queue;
  const auto messages = [&](std::optional<Index> below) {
    Parameters<float, Exec> parameters(comm, queue, net, 1);
    Network<float, Exec> network(comm, queue, net, strategy, 1, parameters, {.consolidate_below = below});
    network.train_step(queue);
    const std::int64_t before = between_nodes();
    network.train_step(queue);
    const std::int64_t own = between_nodes() - before;
    comm.barrier();
    return comm.all_reduce(own, comm::Reduction::sum);
  };
  const std::int64_t separate = messages(0);
  EXPECT_EQ(messages(1), separate) << "no message is shorter than a byte";
  // Each rank has the one opposite to it as a neighbour, and those beside that one. Two messages of each exchange are
  // left.
  const std::int64_t neighbours = 3 * per_node - 2, exchanges = 3;  // of the input, of `first`, and of a gradient
  EXPECT_EQ(messages({}), separate - exchanges * (2 * neighbours - 2));
}

TEST(Traffic, OfATrainingStepOnTwoNodesIsThatOfThePlans) {
  if (!on_host) GTEST_SKIP() << "between devices groups of messages travel";
  const int per_node = ranks_of_two_nodes();
  if (per_node == 0) GTEST_SKIP() << "two nodes with several ranks each";
  expect_planned_traffic(comm::from_mpi(MPI_COMM_WORLD, {.ranks_per_node = per_node}), aloni::test::random_cases(24),
                         9000);
}

/// Of networks whose forward pass has no sums over ranks: all its messages are those of transfers.
TEST(Traffic, OfJoinedMessagesIsThatOfThePlansOfAllRanks) {
  if (!on_host) GTEST_SKIP() << "between devices groups of messages travel";
  const int per_node = ranks_of_two_nodes();
  if (per_node == 0) GTEST_SKIP() << "two nodes with several ranks each";
  const auto comm = comm::from_mpi(MPI_COMM_WORLD, {.ranks_per_node = per_node});
  MachineDescription machine = comm::describe_machine(comm, local::machine_of_this_build(on_host));
  const Queue<Exec> queue;
  int joined = 0;
  for (int i = 0; i < aloni::test::random_cases(24); ++i) {
    Dice dice(7000 + static_cast<std::uint64_t>(i));
    const NetworkDescription net = random_network(dice, Kinds::all);
    const Index samples = dice(1, 5);
    const Strategy strategy = random_strategy(dice, net, splits_for(comm.size(), net.spatial_rank));
    SCOPED_TRACE("case " + std::to_string(i) + ", strategy " + to_string(strategy));
    machine.consolidate_below = i % 3 == 0 ? 0 : i % 3 == 1 ? 300 : default_consolidate_below;
    Parameters<float, Exec> parameters(comm, queue, net, 1);
    Network<float, Exec> network(comm, queue, net, strategy, samples, parameters,
                                 {.inference = true, .consolidate_below = machine.consolidate_below});
    const auto plans_of = [&](const MachineDescription& m) {
      std::vector<StepPlan> plans;
      const NetworkPlan layers = plan_network(net, resolve(strategy, net, comm.size()), comm.size(), samples);
      for (int r = 0; r < comm.size(); ++r) plans.push_back(plan_step(net, layers, r, StepKind::inference, m));
      return plans;
    };
    const std::vector<StepPlan> plans = plans_of(machine);
    const auto sums = [](const PlanNode& n) {
      return n.phase == StepPhase::forward && std::holds_alternative<ReductionWork>(n.work);
    };
    if (std::ranges::any_of(plans[0].nodes, sums)) continue;
    network.forward(queue, Mode::evaluation);
    comm.barrier();
    const std::map<int, PeerMessages> before = messages_so_far(comm, true);
    network.forward(queue, Mode::evaluation);
    const auto all = messages_of_ranks(plans, machine);
    expect_messages(before, messages_so_far(comm, true), 1, all[static_cast<std::size_t>(comm.rank())]);
    MachineDescription separate = machine;
    separate.consolidate_below = 0;
    joined += all != messages_of_ranks(plans, separate) ? 1 : 0;
    comm.barrier();
  }
  EXPECT_GT(joined, 0);
}

/// A plan for ranks that share memory, on ranks that do not: the error comes at set-up and names the node.
TEST(Traffic, OfAnotherMachineIsRefusedAtSetUp) {
  const auto comm = aloni::test::make_communicator();
  if (!comm.unsupported_reason(comm::AllReduceAlgorithm::direct)) GTEST_SKIP() << "the ranks share memory";
  const Queue<Exec> queue;
  const views::Box box{{0, 0, 0, 0, 0}, {1, 1, 1, 1, 4096}};
  StepPlan plan{.rank = comm.rank(), .ranks = comm.size(), .communications = 1};
  plan.buffers.push_back({.name = "sums", .type = ElementType::float64, .owned = box, .box = box, .persistent = true});
  ReductionWork sum{.elements = box.size(), .buffers = {0}};
  for (int r = 0; r < comm.size(); ++r) sum.members.push_back(r);
  sum.plan = {comm::AllReduceAlgorithm::direct, box.size()};
  plan.nodes.push_back({.label = "loss: sums over ranks", .work = sum, .reads = {{0, box}}, .writes = {{0, box}}});
  PlanMemory<Exec> memory(comm, queue);
  memory.allocate({&plan}, {});
  Binder<float, Exec> binder(comm, queue, memory, {});
  Step<Exec> step;
  try {
    binder.bind(plan, 0, step);
    FAIL() << "bound";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("loss: sums over ranks"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("ranks that share memory"), std::string::npos) << error.what();
  }
}

}  // namespace test_traffic
}  // namespace aloni::nn::test
