// Collectives on machines: the walk over their schedules, closed forms, and constants from measured times.
#include <aloni/core/error.hpp>
#include <aloni/model/collective_costs.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace aloni::model {
namespace test_collective_costs {

using comm::CollectiveMethod;
using comm::OperationKind;

constexpr double latency = 4e-6, per_message = 0.5e-6, per_byte = 1e-9, per_sum = 0.25e-9, per_copy = 0.125e-9;
constexpr double alpha = latency + 2 * per_message;

LinkCosts& link_of(Machine& machine, LinkKind kind) { return machine.links[static_cast<std::size_t>(kind)]; }

/// All ranks on one node.
Machine uniform_machine(double start_latency = latency) {
  Machine machine = generic_machine();
  machine.ranks_per_node = 1024;
  link_of(machine, LinkKind::self) = {0, per_copy, 1};  // a copy of the engine is no kernel
  link_of(machine, LinkKind::shared_memory) = {1, 2e-9, 1};
  link_of(machine, LinkKind::within_node) = {start_latency, per_byte, per_message};
  link_of(machine, LinkKind::between_nodes) = {20e-6, 4e-9, 1e-6};
  machine.combine_seconds_per_byte = per_sum;
  return machine;
}

CollectiveCall call_of(OperationKind operation, CollectiveMethod method, std::size_t bytes, bool shared = false) {
  return {.operation = operation, .method = method, .bytes = bytes, .shared_data = shared};
}

// Thakur, Rabenseifner and Gropp 2005, section 4.
TEST(CollectiveCosts, OnAUniformMachineTheWalkEqualsTheClosedForm) {
  using M = CollectiveMethod;
  int compared = 0;
  for (const comm::CollectiveVariant& variant : comm::collective_variants) {
    if (variant.method == M::direct || variant.method == M::hierarchical) continue;
    for (const int ranks : {2, 3, 4, 5, 6, 7, 8, 9, 16}) {
      const bool is_bruck = variant.method == M::bruck, is_power = std::has_single_bit(static_cast<unsigned>(ranks));
      // Other numbers of ranks: those that wait for no rank before go ahead, and keep a core of the others busy.
      const bool folds = !is_power && (variant.method == M::recursive_doubling || variant.method == M::rabenseifner);
      // Some messages do not wait for all earlier ones, so that latencies overlap.
      const bool overlaps = is_bruck && (variant.operation == OperationKind::all_to_all || !is_power);
      const CollectiveCall call = call_of(variant.operation, variant.method, 4 * 5040);
      for (const double start_latency : {0.0, latency}) {
        Machine machine = uniform_machine(start_latency);
        SCOPED_TRACE(std::string(name(call.operation)) + " by " + std::string(name(call.method)) + ", " +
                     std::to_string(ranks) + " ranks, latency " + std::to_string(start_latency));
        if (is_bruck) {  // a core takes some copies before it sends, so that others wait for them
          const double closed = closed_form_seconds(call, machine, ranks);
          EXPECT_NEAR(unfitted_collective_seconds(call, machine, ranks), closed, (overlaps ? 0.4 : 0.05) * closed);
          link_of(machine, LinkKind::self).seconds_per_byte = 0;
        }
        const double walk = unfitted_collective_seconds(call, machine, ranks);
        const double closed = closed_form_seconds(call, machine, ranks);
        if (folds) {
          EXPECT_GT(walk, 0.9 * closed);
          EXPECT_LT(walk, 1.6 * closed);
        } else if (overlaps && start_latency > 0) {
          EXPECT_LE(walk, closed * (1 + 1e-12));
          EXPECT_GT(walk, 0.6 * closed);
        } else {
          EXPECT_NEAR(walk, closed, 1e-12 * closed);
          ++compared;
        }
      }
    }
  }
  EXPECT_GE(compared, 90);
}

TEST(CollectiveCosts, ClosedFormsAreThoseOfThePaper) {
  const Machine machine = uniform_machine(0);
  const double a = 2 * per_message, n = 4 * 5040;
  const auto closed = [&](OperationKind operation, CollectiveMethod method, int ranks) {
    return closed_form_seconds(call_of(operation, method, 4 * 5040), machine, ranks);
  };
  using K = OperationKind;
  using M = CollectiveMethod;
  EXPECT_DOUBLE_EQ(closed(K::all_gather, M::ring, 6), 5 * a + 5.0 / 6 * n * per_byte);
  EXPECT_DOUBLE_EQ(closed(K::all_gather, M::bruck, 6), 3 * a + 5.0 / 6 * n * per_byte + n * per_copy);
  EXPECT_DOUBLE_EQ(closed(K::reduce_scatter, M::ring, 6), 5 * a + 5.0 / 6 * n * (per_byte + per_sum));
  EXPECT_DOUBLE_EQ(closed(K::all_reduce, M::recursive_doubling, 8), 3 * (a + n * (per_byte + per_sum)));
  EXPECT_DOUBLE_EQ(closed(K::all_reduce, M::rabenseifner, 8), 6 * a + 7.0 / 8 * n * (2 * per_byte + per_sum));
  EXPECT_DOUBLE_EQ(closed(K::all_to_all, M::pairwise, 4), 3 * a + 0.75 * n * per_byte + n / 4 * per_copy);
  EXPECT_DOUBLE_EQ(closed(K::all_to_all, M::bruck, 8), 3 * (a + n / 2 * (per_byte + 2 * per_copy)) + 2 * n * per_copy);
  EXPECT_EQ(closed(K::all_to_all, M::bruck, 1), 0);
  EXPECT_THROW(closed(K::all_reduce, M::direct, 2), Unsupported);
  EXPECT_THROW(closed(K::all_gather, M::ring, 0), InvalidArgument);
}

TEST(CollectiveCosts, CoresThatShareMemoryCombineInPlace) {
  const Machine machine = uniform_machine();
  const double n = 8000;
  // An address to the other rank, a pass over half of the data, and an answer.
  const double in_place = 2 * alpha + n / 2 * (per_sum + 2e-9);
  const CollectiveCall shared = call_of(OperationKind::all_reduce, CollectiveMethod::direct, 8000, true);
  EXPECT_DOUBLE_EQ(unfitted_collective_seconds(shared, machine, 2), in_place);
  // The other half is copied to shared memory before, and back afterwards.
  const CollectiveCall staged = call_of(OperationKind::all_reduce, CollectiveMethod::direct, 8000);
  EXPECT_DOUBLE_EQ(unfitted_collective_seconds(staged, machine, 2), in_place + n * per_copy);
}

TEST(CollectiveCosts, RanksOfANodeShareItsPort) {
  Machine machine = uniform_machine();
  machine.ranks_per_node = 1;
  const double between = 20e-6 + 2e-6, n = 4 * 504'000;
  const CollectiveCall gather = call_of(OperationKind::all_gather, CollectiveMethod::ring, 4 * 504'000);
  EXPECT_NEAR(unfitted_collective_seconds(gather, machine, 4), 3 * (between + n / 4 * 4e-9), 1e-9);
  // Two ranks on each of two nodes: half of the data of each rank cross.
  machine.ranks_per_node = 2;
  const CollectiveCall exchange = call_of(OperationKind::all_to_all, CollectiveMethod::pairwise, 4 * 504'000);
  const double port = 2 * n / 2 * 4e-9, seconds = unfitted_collective_seconds(exchange, machine, 4);
  EXPECT_GT(seconds, port);
  EXPECT_LT(seconds, 1.05 * port);
}

TEST(CollectiveCosts, NumbersOfNodesMayHaveGaps) {
  Machine machine = uniform_machine();
  machine.ranks_per_node = 2;
  const CollectiveCall call = call_of(OperationKind::all_reduce, CollectiveMethod::hierarchical, 4 * 5040);
  const double seconds = unfitted_collective_seconds(call, machine, 4);
  machine.planning.nodes = {3, 3, 7, 7};
  EXPECT_DOUBLE_EQ(unfitted_collective_seconds(call, machine, 4), seconds);
}

TEST(CollectiveCosts, PartsOfALongOperationOverlap) {
  Machine machine = uniform_machine(1e-2);
  const auto seconds = [&](std::size_t mebibytes) {
    return unfitted_collective_seconds(
        call_of(OperationKind::all_reduce, CollectiveMethod::rabenseifner, mebibytes << 20), machine, 2);
  };
  EXPECT_GT(seconds(8), seconds(4));
  EXPECT_LT(seconds(8), 1.5 * seconds(4));   // latency counts once
  EXPECT_GT(seconds(16), 1.5 * seconds(8));  // two parts at once, not four
}

TEST(CollectiveCosts, FitsGiveTheMeasuredTimes) {
  std::mt19937 random(20261125);
  for (const comm::CollectiveVariant& variant : comm::collective_variants) {
    for (const bool shared : {false, true}) {
      const int ranks = variant.method == CollectiveMethod::direct ? 2 : 4;
      Machine machine = uniform_machine();
      if (variant.method == CollectiveMethod::hierarchical) machine.ranks_per_node = 2;
      const CollectiveCall call = call_of(variant.operation, variant.method, 0, shared);
      std::vector<CollectiveTime> times;
      double factor = std::uniform_real_distribution(0.2, 5.0)(random);
      for (std::size_t bytes = 256; bytes <= (std::size_t{16} << 20); bytes *= 4) {
        CollectiveCall sized = call;
        sized.bytes = bytes;
        times.push_back({bytes, factor * unfitted_collective_seconds(sized, machine, ranks)});
        factor *= std::uniform_real_distribution(1.0, 1.5)(random);  // a larger operation never takes less time
      }
      const CollectiveFit fit = fit_collective(call, machine, ranks, times);
      EXPECT_EQ(fit.ranks, ranks);
      machine.collectives = {fit};
      for (const CollectiveTime& time : times) {
        CollectiveCall sized = call;
        sized.bytes = time.bytes;
        EXPECT_NEAR(collective_seconds(sized, machine, ranks), time.seconds, 1e-7 * time.seconds)
            << name(call.operation) << " by " << name(call.method) << ", " << time.bytes << " bytes";
      }
      CollectiveCall between = call;  // two knots
      between.bytes = 2048;
      EXPECT_GT(collective_seconds(between, machine, ranks), times[1].seconds);
      EXPECT_LT(collective_seconds(between, machine, ranks), times[2].seconds);
    }
  }
}

TEST(CollectiveCosts, AFitTellsTheCallFromItsMessages) {
  const Machine machine = uniform_machine();
  const CollectiveCall call = call_of(OperationKind::all_gather, CollectiveMethod::ring, 0);
  const double links = alpha + 128 * per_byte;
  const CollectiveFit slow = fit_collective(call, machine, 2, std::vector<CollectiveTime>{{256, links + 3e-6}});
  EXPECT_NEAR(slow.seconds_per_call, 3e-6, 1e-15);
  EXPECT_EQ(slow.message_factor, 1);
  const CollectiveFit fast =
      fit_collective(call, machine, 2, std::vector<CollectiveTime>{{256, 0.5 * alpha + 128 * per_byte}});
  EXPECT_EQ(fast.seconds_per_call, 0);
  EXPECT_NEAR(fast.message_factor, 0.5, 1e-9);
}

TEST(CollectiveCosts, RatesAreInterpolatedOverTheLogarithmOfTheSize) {
  const std::vector<SizeFactor> rates{{1024, 1}, {4096, 3}};
  EXPECT_DOUBLE_EQ(factor_at(rates, 1), 1);
  EXPECT_DOUBLE_EQ(factor_at(rates, 1024), 1);
  EXPECT_DOUBLE_EQ(factor_at(rates, 2048), 2);
  EXPECT_DOUBLE_EQ(factor_at(rates, 4096), 3);
  EXPECT_DOUBLE_EQ(factor_at(rates, 1 << 20), 3);
}

TEST(CollectiveCosts, TheFitOfAsManyRanksComesFirst) {
  Machine machine = uniform_machine();
  const CollectiveCall call = call_of(OperationKind::all_gather, CollectiveMethod::ring, 1 << 16);
  const double links = unfitted_collective_seconds(call, machine, 4);
  const auto fit = [](int ranks, double seconds, bool shared = false) {
    return CollectiveFit{.operation = OperationKind::all_gather,
                         .method = CollectiveMethod::ring,
                         .shared_data = shared,
                         .ranks = ranks,
                         .nodes = 1,
                         .seconds_per_call = seconds,
                         .rates = {{1024, 1}}};
  };
  machine.collectives = {fit(2, 1), fit(4, 2), fit(4, 3, true)};
  EXPECT_DOUBLE_EQ(collective_seconds(call, machine, 4), 2 + links);
  EXPECT_NEAR(collective_seconds(call, machine, 2), 1, 1e-3);
  EXPECT_NEAR(collective_seconds(call, machine, 8), 1, 1e-3);  // the first one
  CollectiveCall other = call;
  other.method = CollectiveMethod::bruck;
  EXPECT_DOUBLE_EQ(collective_seconds(other, machine, 4), unfitted_collective_seconds(other, machine, 4));
  EXPECT_EQ(collective_seconds(call, machine, 1), 0);
}

TEST(FittedCollectives, GiveTheTimeOfTheCallOnAnyRanks) {
  Machine machine = uniform_machine();
  machine.ranks_per_node = 2;
  CollectiveCall call = call_of(OperationKind::all_reduce, CollectiveMethod::ring, 4 * 5040);
  machine.collectives = {{.operation = call.operation,
                          .method = call.method,
                          .ranks = 4,
                          .nodes = 2,
                          .seconds_per_call = 1e-3,
                          .message_factor = 2,
                          .rates = {{1024, 3}}}};
  FittedCollectives fits(machine);
  EXPECT_DOUBLE_EQ(fits.seconds(call, {0, 0, 1, 1}).value(), collective_seconds(call, machine, 4));
  EXPECT_DOUBLE_EQ(fits.seconds(call, {7, 7, 3, 3}).value(), collective_seconds(call, machine, 4));
  EXPECT_GT(fits.seconds(call, {0, 1, 0, 1}).value(), collective_seconds(call, machine, 4));  // four messages cross
  EXPECT_FALSE(fits.seconds(call, {0, 0, 0, 0}));
  EXPECT_FALSE(fits.seconds(call, {0, 1}));
  EXPECT_FALSE(fits.seconds(call, {0}));
  call.bytes *= 2;  // not the time that was kept
  EXPECT_DOUBLE_EQ(fits.seconds(call, {0, 0, 1, 1}).value(), collective_seconds(call, machine, 4));
  call.shared_data = true;
  EXPECT_FALSE(fits.seconds(call, {0, 0, 1, 1}));
}

TEST(CollectiveCosts, PartsMayBeGiven) {
  const Machine machine = uniform_machine(1e-3);
  CollectiveCall call = call_of(OperationKind::all_reduce, CollectiveMethod::ring, 4 * 5040);
  const double whole = unfitted_collective_seconds(call, machine, 2);
  call.part_elements = 5040;
  EXPECT_EQ(unfitted_collective_seconds(call, machine, 2), whole);
  call.part_elements = 5040 / 4;  // two parts at once: latency counts twice
  EXPECT_GT(unfitted_collective_seconds(call, machine, 2), 1.5 * whole);
  call.part_elements = -1;
  EXPECT_THROW(unfitted_collective_seconds(call, machine, 2), InvalidArgument);
}

TEST(CollectiveCosts, RefusesTimesAndMachinesThatGiveNoConstants) {
  const CollectiveCall call = call_of(OperationKind::all_gather, CollectiveMethod::ring, 0);
  const auto refused = [&](const std::vector<CollectiveTime>& times, const Machine& machine, int ranks) {
    try {
      (void)fit_collective(call, machine, ranks, times);
    } catch (const InvalidArgument& error) {
      return error.argument();
    }
    return std::string("accepted");
  };
  const Machine machine = uniform_machine();
  EXPECT_EQ(refused({}, machine, 2), "times");
  EXPECT_EQ(refused({{256, 1}, {256, 2}}, machine, 2), "times[1]");
  EXPECT_EQ(refused({{0, 1}}, machine, 2), "times[0]");
  EXPECT_EQ(refused({{256, 0}}, machine, 2), "times[0]");
  EXPECT_EQ(refused({{256, std::nan("")}}, machine, 2), "times[0]");
  EXPECT_EQ(refused({{256, 1}}, machine, 1), "ranks");
  EXPECT_EQ(refused({{254, 1}}, machine, 2), "call.bytes");
  Machine unknown = machine;
  link_of(unknown, LinkKind::within_node).seconds_per_byte = 0;
  EXPECT_EQ(refused({{256, 1}}, unknown, 2), "machine.links.within_node");
  unknown = machine;
  unknown.ranks_per_node = 1;
  link_of(unknown, LinkKind::between_nodes).latency = 0;
  EXPECT_EQ(refused({{256, 1}}, unknown, 2), "machine.links.between_nodes");
  EXPECT_EQ(refused({{256, 1}}, machine, 2), "accepted");
}

}  // namespace test_collective_costs
}  // namespace aloni::model
