// Collective operations as values: their initialisers, explanations, persistent forms, refusals and memory.
#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/error.hpp>

#include <support/heap_guard.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <initializer_list>
#include <string>
#include <vector>

namespace test_operations {

using namespace aloni::comm;
using aloni::Index;
using aloni::InvalidArgument;
using aloni::Unsupported;
using aloni::test::make_communicator;

class Operations : public testing::Test {
 protected:
  Communicator comm = make_communicator();
  const int rank = comm.rank(), size = comm.size();
  const std::size_t ranks = static_cast<std::size_t>(size);

  UserSchedule<int> exchange_with_all(std::vector<int>& values, const ElementOperation& op = {}) const {
    Builder b(rank);
    ring_all_reduce(b, Team::all(rank, size), b.output(static_cast<Index>(values.size())), 1000);
    return {.name = "exchange with all", .schedule = b.finish(), .output = values, .op = op};
  }

  /// The text of the InvalidArgument or Unsupported that `f` throws.
  template <class E, class F>
  static std::string refusal_of(F&& f) {
    try {
      f();
    } catch (const E& error) {
      return error.what();
    }
    return "no exception";
  }
};

TEST(OperationTypes, DeduceTheirElements) {
  std::vector<double> values(6), others(6);
  std::array<int, 4> fixed{};
  const std::vector<Index> counts(1, 6);
  const auto sum = user_operation<double>([](double a, double b) { return a + b; });
  static_assert(std::same_as<decltype(AllReduce{std::span(values), Reduction::sum}), AllReduce<double>>);
  static_assert(std::same_as<decltype(AllReduce{std::span(fixed), Reduction::sum}), AllReduce<int>>);
  static_assert(std::same_as<decltype(AllReduce{std::span(values), sum}), AllReduce<double, ElementOperation>>);
  static_assert(
      std::same_as<decltype(AllReduce{std::span(values), Reduction::sum, {.fuse = true}}), AllReduce<double>>);
  static_assert(std::same_as<decltype(ReduceScatter{std::span(values), Reduction::min}), ReduceScatter<double>>);
  static_assert(std::same_as<decltype(AllGather{std::span(fixed)}), AllGather<int>>);
  static_assert(std::same_as<decltype(AllToAll{std::span(others), std::span(values)}), AllToAll<double>>);
  static_assert(std::same_as<decltype(AllToAll{others, std::span(values), counts, counts}), AllToAll<double>>);
  static_assert(std::same_as<decltype(Broadcast{std::span(values), 0}), Broadcast<double>>);
  static_assert(std::same_as<decltype(UserSchedule{"name", Schedule{}, std::span(values)}), UserSchedule<double>>);
  static_assert(!ReducibleElement<char> && ReducibleElement<char, ElementOperation>);
  static_assert(!CollectiveOperation<int>);
}

// GCC only: the other compilers deduce nothing from designated initialisers.
#if defined(__GNUC__) && !defined(__clang__)
TEST(OperationTypes, DeduceTheirElementsFromDesignatedInitialisers) {
  std::vector<double> values(6), others(6);
  const AllReduce all{.values = std::span(values), .op = Reduction::max, .options = {.priority = 3}};
  static_assert(std::same_as<decltype(all), const AllReduce<double>>);
  EXPECT_EQ(all.op, Reduction::max);
  EXPECT_EQ(all.options.priority, 3);
  EXPECT_FALSE(all.options.fuse);
  const Broadcast broadcast{.values = std::span(values), .root = 2};
  EXPECT_EQ(broadcast.root, 2);
  const AllToAll exchange{.input = std::span(others), .output = std::span(values), .priority = 1};
  EXPECT_EQ(exchange.input.data(), others.data());
  EXPECT_EQ(exchange.output.data(), values.data());
}
#endif

TEST_F(Operations, RunFromDesignatedInitialisers) {
  std::vector<float> sums(100, 1.0f), blocks(3 * ranks, 2.0f);
  comm.run(AllReduce<float>{.values = sums, .op = Reduction::sum, .options = {.priority = 1}});
  EXPECT_EQ(sums.back(), static_cast<float>(size));
  comm.run(ReduceScatter<float>{
      .values = blocks, .op = Reduction::average, .options = {.algorithm = AllReduceAlgorithm::rabenseifner}});
  EXPECT_EQ(blocks[3 * static_cast<std::size_t>(rank)], 2.0f);
  std::vector<int> gathered(ranks), sent(ranks, rank), received(ranks);
  gathered[static_cast<std::size_t>(rank)] = rank;
  comm.run(AllGather<int>{.values = gathered, .priority = 1});
  comm.run(AllToAll<int>{.input = sent, .output = received});
  for (std::size_t r = 0; r < ranks; ++r) {
    EXPECT_EQ(gathered[r], static_cast<int>(r));
    EXPECT_EQ(received[r], static_cast<int>(r));
  }
  comm.run(Broadcast<int>{.values = gathered, .root = size - 1, .priority = 2});
  comm.run(Barrier{.priority = 3});
  std::vector<int> largest{rank};
  comm.run(exchange_with_all(largest, element_operation<int>(Reduction::max)));
  EXPECT_EQ(largest[0], size - 1);
}

TEST_F(Operations, TakeEqualFormsToEqualResults) {
  const auto product = user_operation<double>([](double a, double b) { return a * b; });
  std::vector<double> run(50, rank + 1.0), started = run, prepared = run, one_line = run;
  comm.run(AllReduce{std::span(run), product});
  comm.wait(comm.start(AllReduce{std::span(started), product}));
  comm.persistent(AllReduce{std::span(prepared), product}).run();
  comm.all_reduce(std::span(one_line), product);
  EXPECT_EQ(run.back(), std::tgamma(size + 1.0));
  EXPECT_EQ(started, run);
  EXPECT_EQ(prepared, run);
  EXPECT_EQ(one_line, run);
}

TEST_F(Operations, ReduceScatterAppliesAFunctionOfTheUserInTheOrderOfRanks) {
  struct Range {
    int first, last;
  };
  // Not commutative: only neighbouring ranges, lower ranks first, can be joined.
  const auto join = user_operation<Range>([](const Range& a, const Range& b) {
    return a.last + 1 == b.first ? Range{a.first, b.last} : Range{-1, -1};
  });
  std::vector<Range> values(20 * ranks, Range{rank, rank});
  comm.run(ReduceScatter{std::span(values), join});
  for (std::size_t i = 0; i < 20; ++i) {
    const Range& value = values[20 * static_cast<std::size_t>(rank) + i];
    EXPECT_EQ(value.first, 0);
    EXPECT_EQ(value.last, size - 1);
  }
}

TEST_F(Operations, MessagesAreTyped) {
  struct Sample {
    double value;
    int label;
  };
  const std::vector<Sample> sent{{1.5, rank}, {2.5, -rank}};
  std::array<Sample, 2> received{};
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  std::array requests{comm.receive(std::span(received), previous, 1), comm.send(std::span(sent), next, 1)};
  comm.wait(requests);
  EXPECT_EQ(received[1].value, 2.5);
  EXPECT_EQ(received[1].label, -previous);
}

TEST_F(Operations, AreExplained) {
  std::vector<float> small(2), large(std::size_t{1} << 20);
  std::vector<int> in(1000 * ranks), out(in.size()), one(1);
  const std::vector<Index> counts(ranks, 1000);
  const auto explained = [&](const auto& operation, std::initializer_list<const char*> algorithms) {
    const Explanation e = comm.explain(operation);
    EXPECT_NE(std::ranges::find(algorithms, e.algorithm), algorithms.end()) << e.algorithm;
    EXPECT_FALSE(e.reason.empty());
    EXPECT_EQ(e.messages_sent > 0, size > 1);
    EXPECT_LT(e.predicted_seconds, 0) << "without tuning";
    EXPECT_LT(e.measured_seconds, 0);
    return e;
  };
  if (size == 1) {
    explained(AllReduce{std::span(large), Reduction::sum}, {"none"});
    explained(Barrier{}, {"none"});
    return;
  }
  const Explanation few = explained(AllReduce{std::span(small), Reduction::sum}, {"recursive_doubling"});
  EXPECT_EQ(few.algorithms.size(), all_reduce_algorithms.size());
  EXPECT_EQ(std::ranges::count(few.algorithms, true, &AlgorithmReport::chosen), 1);
  const Explanation many =
      explained(AllReduce{std::span(large), Reduction::sum}, {"direct", "rabenseifner", "hierarchical"});
  EXPECT_EQ(many.algorithm == "direct", many.bytes_sent == 0);
  const CollectiveOptions ring{.algorithm = AllReduceAlgorithm::ring, .part_elements = 1 << 18};
  const Explanation wanted = explained(AllReduce{std::span(large), Reduction::sum, ring}, {"ring"});
  EXPECT_EQ(wanted.parts, 4u);
  EXPECT_EQ(wanted.reason, "the caller's choice");
  // Each rank sends all blocks but one, twice.
  EXPECT_NEAR(static_cast<double>(wanted.bytes_sent), 2.0 * (size - 1) / size * static_cast<double>(4 * large.size()),
              64.0 * size);
  const Explanation scattered = explained(ReduceScatter{std::span(large), Reduction::sum}, {"ring"});
  EXPECT_NEAR(static_cast<double>(scattered.bytes_sent),
              1.0 * (size - 1) / size * static_cast<double>(4 * large.size()), 64.0);
  EXPECT_TRUE(scattered.algorithms.empty());
  explained(ReduceScatter{std::span(small), Reduction::sum, {.reproducible = true}}, {"recursive_doubling"});
  explained(AllGather{std::span(out)}, {"ring", "bruck"});
  const Explanation equal = explained(AllToAll{std::span(in), std::span(out)}, {"pairwise"});
  const Explanation counted = explained(AllToAll{std::span(in), std::span(out), counts, counts}, {"pairwise"});
  EXPECT_EQ(equal.bytes_sent, 4000u * (ranks - 1));
  EXPECT_EQ(counted.bytes_sent, equal.bytes_sent);
  EXPECT_EQ(counted.messages_sent, equal.messages_sent);
  explained(Barrier{}, {"dissemination"});
  explained(exchange_with_all(one, element_operation<int>(Reduction::sum)), {"exchange with all"});
  // A broadcast sends one message to each rank but the root.
  const Explanation told = comm.explain(Broadcast{std::span(small), 0});
  EXPECT_TRUE(told.algorithm == "binomial" || told.algorithm == "hierarchical") << told.algorithm;
  EXPECT_EQ(comm.all_reduce(static_cast<std::int64_t>(told.messages_sent), Reduction::sum), size - 1);
}

// The explanation counts the messages that a run really sends.
TEST_F(Operations, ExplanationsCountTheMessagesOfARun) {
  const auto sent = [&] {
    TrafficCounters all;
    for (const PeerTraffic& peer : comm.traffic_by_peer())
      if (peer.rank != rank) all += peer.collectives;
    return all;
  };
  std::vector<double> values(5000 * ranks), others(values.size());
  const auto check = [&](const char* name, const auto& operation) {
    const Explanation e = comm.explain(operation);
    comm.barrier();
    const TrafficCounters before = sent();
    comm.run(operation);
    const TrafficCounters after = sent();
    EXPECT_EQ(after.messages_sent - before.messages_sent, e.messages_sent) << name;
    EXPECT_EQ(after.bytes_sent - before.bytes_sent, e.bytes_sent) << name;
  };
  const auto max = Reduction::max;
  check("recursive doubling", AllReduce{std::span(values), max, {.algorithm = AllReduceAlgorithm::recursive_doubling}});
  check("rabenseifner", AllReduce{std::span(values), max, {.algorithm = AllReduceAlgorithm::rabenseifner}});
  check("ReduceScatter", ReduceScatter{std::span(values), max});
  check("AllGather", AllGather{std::span(values)});
  check("AllToAll", AllToAll{std::span(others), std::span(values)});
  check("Broadcast", Broadcast{std::span(values), size - 1});
}

TEST_F(Operations, TuningPredictsEveryOperation) {
  const Communicator own = comm.split(0, rank);
  const int per_node = aloni::test::transport_options().ranks_per_node;
  own.set_tuning({.ranks = size,
                  .nodes = per_node > 0 ? (size + per_node - 1) / per_node : 1,
                  .latency = 1e-6,
                  .seconds_per_byte = 1e-9,
                  .combine_seconds_per_byte = 1e-10,
                  .measurements = {{AllReduceAlgorithm::rabenseifner, 4000, 3e-6}}});
  if (size == 1) return;
  std::vector<float> values(1000);
  const Explanation reduced = own.explain(AllReduce{std::span(values), Reduction::sum});
  EXPECT_EQ(reduced.algorithm, "rabenseifner");
  EXPECT_EQ(reduced.reason, "the fastest by the tuning");
  EXPECT_GT(reduced.predicted_seconds, 0);
  EXPECT_DOUBLE_EQ(reduced.measured_seconds, 3e-6);
  EXPECT_GE(own.explain(Barrier{}).predicted_seconds, 1e-6);
  EXPECT_GE(own.explain(AllGather{std::span(values)}).predicted_seconds, 1e-6);
}

// By latency the fewest messages win, by bandwidth the fewest copies. The results do not depend on the choice.
TEST_F(Operations, TuningChoosesTheMethodOfEachCollective) {
  const Communicator own = comm.split(0, rank);
  const int per_node = aloni::test::transport_options().ranks_per_node;
  Tuning tuning{.ranks = size, .nodes = per_node > 0 ? (size + per_node - 1) / per_node : 1};
  int rounds = 0;
  for (int power = 1; power < size; power *= 2) ++rounds;
  const std::string fewest = rounds < size - 1 ? "bruck" : "", by_the_tuning = "the fastest by the tuning";
  std::vector<int> gathered(100 * ranks), sent(gathered.size()), received(gathered.size());
  std::vector<float> values(100 * ranks);
  const std::size_t bytes = values.size() * sizeof(float);
  for (const bool latency : {false, true}) {
    tuning.latency = latency ? 1 : 0;
    tuning.seconds_per_byte = tuning.combine_seconds_per_byte = latency ? 1e-12 : 1e-9;
    tuning.measurements = {{AllReduceAlgorithm::ring, bytes, 4},
                           {AllReduceAlgorithm::rabenseifner, bytes, latency ? 1.0 : 3.0}};
    own.set_tuning(tuning);
    const Explanation gather = own.explain(AllGather{std::span(gathered)});
    const Explanation exchange = own.explain(AllToAll{sent, std::span(received)});
    const Explanation scatter = own.explain(ReduceScatter{std::span(values), Reduction::sum});
    if (size > 1) {
      EXPECT_EQ(gather.algorithm, latency && !fewest.empty() ? fewest : "ring");
      EXPECT_EQ(exchange.algorithm, latency && !fewest.empty() ? fewest : "pairwise");
      EXPECT_EQ(gather.reason, by_the_tuning);
      EXPECT_EQ(exchange.reason, by_the_tuning);
      // Half of a ring all-reduce takes 2 s.
      EXPECT_EQ(scatter.algorithm, latency ? "rabenseifner" : "ring");
      EXPECT_EQ(own.explain(ReduceScatter{std::span(values).first(ranks), Reduction::sum}).algorithm,
                scatter.algorithm);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(rank + 1);
      const auto block = static_cast<int>(i / 100);
      gathered[i] = block == rank ? 7 * rank : -1;
      sent[i] = 1000 * rank + block;
    }
    own.run(ReduceScatter{std::span(values), Reduction::sum});
    own.run(AllGather{std::span(gathered)});
    own.run(AllToAll{sent, std::span(received)});
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto block = static_cast<int>(i / 100);
      if (block == rank) {
        EXPECT_EQ(values[i], static_cast<float>(size * (size + 1) / 2));
      }
      EXPECT_EQ(gathered[i], 7 * block);
      EXPECT_EQ(received[i], 1000 * block + rank);
    }
  }
  // Blocks of different sizes: Bruck's algorithm cannot divide them.
  if (size > 1) {
    std::vector<int> uneven(100 * ranks + 1);
    EXPECT_EQ(own.explain(AllGather{std::span(uneven)}).algorithm, "ring");
  }
}

TEST_F(Operations, RefuseWrongArgumentsByTheirNames) {
  std::vector<int> values(4), one(1);
  const std::vector<float> wrong_input(7);
  std::vector<float> output(4 * ranks);
  const auto is_from = [](const std::string& text, const char* name) { return text.starts_with(name); };
  const auto invalid = [&](const auto& operation) {
    // All forms refuse the same arguments.
    const std::string text = refusal_of<InvalidArgument>([&] { comm.run(operation); });
    EXPECT_EQ(refusal_of<InvalidArgument>([&] { (void)comm.start(operation); }), text);
    EXPECT_EQ(refusal_of<InvalidArgument>([&] { (void)comm.persistent(operation); }), text);
    EXPECT_EQ(refusal_of<InvalidArgument>([&] { (void)comm.explain(operation); }), text);
    return text;
  };
  EXPECT_PRED2(is_from, invalid(Broadcast{std::span(values), -1}), "aloni::comm::Broadcast: root");
  EXPECT_PRED2(is_from, invalid(Broadcast{std::span(values), size}), "aloni::comm::Broadcast: root");
  EXPECT_PRED2(is_from, invalid(AllToAll{wrong_input, std::span(output)}), "aloni::comm::AllToAll: input, output");
  const std::vector<Index> negative(ranks, -1), good(ranks, 4);
  EXPECT_PRED2(is_from, invalid(AllToAll{output, std::span(output), negative, good}),
               "aloni::comm::AllToAll: send_counts");
  EXPECT_PRED2(is_from, invalid(AllToAll{output, std::span(output), good, {}}),
               "aloni::comm::AllToAll: receive_counts");
  EXPECT_PRED2(is_from,
               invalid(AllReduce{std::span(values), user_operation<double>([](double a, double) { return a; })}),
               "aloni::comm::AllReduce: op");
  EXPECT_PRED2(is_from, invalid(AllReduce{std::span(values), ElementOperation{.element_bytes = sizeof(int)}}),
               "aloni::comm::AllReduce: op");
  if (size > 1) {
    EXPECT_PRED2(is_from, invalid(exchange_with_all(values)), "aloni::comm::UserSchedule: op");
  }
  UserSchedule<int> own = exchange_with_all(values, element_operation<int>(Reduction::sum));
  own.output = one;
  EXPECT_PRED2(is_from, invalid(own), "aloni::comm::UserSchedule: output");
  own.output = values;
  own.schedule.rank = size;
  EXPECT_PRED2(is_from, invalid(own), "aloni::comm::UserSchedule: schedule");
  EXPECT_THROW(comm.run(AllReduce{std::span(values), Reduction::average}), InvalidArgument);
  EXPECT_THROW((void)comm.explain(ReduceScatter{std::span(values), Reduction::average}), InvalidArgument);
  EXPECT_EQ(comm.all_reduce(1, Reduction::sum), size);  // still usable
}

TEST_F(Operations, RefuseOptionsThatTheyCannotHave) {
  std::vector<float> values(10);
  EXPECT_EQ(refusal_of<Unsupported>([&] {
              (void)comm.persistent(AllReduce{std::span(values), Reduction::sum, {.fuse = true}});
            }).find("aloni::comm::AllReduce: options.fuse"),
            0u);
  const auto ring = AllReduceAlgorithm::ring;
  const auto refused = [&](const auto& operation) {
    const std::string text = refusal_of<Unsupported>([&] { comm.run(operation); });
    EXPECT_EQ(refusal_of<Unsupported>([&] { (void)comm.persistent(operation); }), text);
    EXPECT_EQ(refusal_of<Unsupported>([&] { (void)comm.explain(operation); }), text);
    return text;
  };
  EXPECT_EQ(refused(AllReduce{std::span(values), Reduction::sum, {.algorithm = ring, .reproducible = true}})
                .find("aloni::comm::AllReduce: algorithm"),
            0u);
  EXPECT_EQ(refused(ReduceScatter{std::span(values), Reduction::sum, {.algorithm = ring, .reproducible = true}})
                .find("aloni::comm::ReduceScatter: algorithm"),
            0u);
  EXPECT_EQ(comm.all_reduce(1, Reduction::sum), size);  // still usable
}

TEST_F(Operations, AllocateNothingWhenTheirLikeHasRun) {
  std::vector<float> small(2, 1.0f), large(100'000, 1.0f), other(1000 * ranks), third(other.size());
  const PersistentCollective prepared = comm.persistent(AllReduce{std::span(large), Reduction::max});
  const auto some_of_each = [&] {
    comm.all_reduce(std::span(small), Reduction::max);
    comm.run(AllReduce{std::span(large), Reduction::max, {.priority = 1}});
    comm.run(ReduceScatter{std::span(other), Reduction::max});
    comm.run(AllGather{std::span(other)});
    comm.run(AllToAll{std::span(other), std::span(third)});
    comm.run(Broadcast{std::span(large), 0});
    comm.barrier();
    prepared.run();
    (void)comm.all_reduce(1.0, Reduction::sum);
  };
  for (int i = 0; i < 50; ++i) some_of_each();
  // A rank that waits for long writes a text about it for its peers, so one quiet round of each rank counts.
  long least = 1000;
  for (int i = 0; i < 200 && comm.all_reduce(least, Reduction::max) > 0; ++i) {
    aloni::test::HeapGuard guard;
    some_of_each();
    guard.disarm();
    least = std::min(least, guard.allocations());
  }
  EXPECT_EQ(least, 0);
}

}  // namespace test_operations
