// Transfer plans over the real engine on a network with faults: every ghost is right, or an error names a rank, or whoever is waited for is
// named; never a wrong number. One process, one thread: a seed replays a run.
#include "support/fault_cases.hpp"
#include "support/simulated_network.hpp"

#include <aloni/core/error.hpp>

#include <gtest/gtest.h>
#include <halo/reference.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace aloni::halo {
namespace test_exchange_faults {

using namespace testing_support;
using comm::Faults;
using comm::detail::Engine;
using test::SimulatedRanks;

constexpr std::int64_t untouched = -1;

std::int64_t value_at(const Cell& c) { return 1 + c[4] + 100 * (c[3] + 100 * (c[2] + 100 * (c[1] + 100 * c[0]))); }

/// One rank's tensors, messages and requests.
struct RankState {
  Box source_box, needed;
  std::vector<std::int64_t> source, destination;
  std::vector<std::vector<std::int64_t>> outgoing, incoming;
  std::vector<Engine::Handle> handles;
};

std::span<std::byte> bytes_of(std::vector<std::int64_t>& v) { return std::as_writable_bytes(std::span(v)); }

/// The cell of a move's source box from which a destination cell takes its value.
Cell source_of(const Move& m, const Cell& to) {
  Cell from;
  for (std::size_t i = 0; i < views::num_dims; ++i) {
    const Index n = to[i] - m.destination.lo[i];
    from[i] = m.step[i] == 0 ? m.source.lo[i] : m.step[i] > 0 ? m.source.lo[i] + n : m.source.hi[i] - 1 - n;
  }
  return from;
}

void start(SimulatedRanks& ranks, int r, const TransferPlan& plan, RankState& state) {
  Engine& engine = *ranks[r].engine;
  state.outgoing.resize(plan.sends.size());
  state.incoming.resize(plan.receives.size());
  for (std::size_t i = 0; i < plan.receives.size(); ++i) {
    state.incoming[i].resize(static_cast<std::size_t>(plan.receives[i].elements));
    state.handles.push_back(engine.receive(*ranks[r].context, bytes_of(state.incoming[i]), plan.receives[i].peer, 0));
  }
  for (std::size_t i = 0; i < plan.sends.size(); ++i) {
    for (const Move& m : plan.sends[i].moves)
      for_each_cell(m.source,
                    [&](const Cell& c) { state.outgoing[i].push_back(state.source[number(c, state.source_box)]); });
    state.handles.push_back(engine.send(*ranks[r].context, bytes_of(state.outgoing[i]), plan.sends[i].peer, 0));
  }
}

void finish(const TransferPlan& plan, RankState& state) {
  const auto put = [&](const Cell& c, std::int64_t value) { state.destination[number(c, state.needed)] = value; };
  for (std::size_t i = 0; i < plan.receives.size(); ++i) {
    std::size_t at = 0;
    for (const Move& m : plan.receives[i].moves) {
      for_each_cell(m.destination,
                    [&](const Cell& c) { put(c, state.incoming[i][at + number(source_of(m, c), m.source)]); });
      at += static_cast<std::size_t>(m.source.size());
    }
  }
  for (const Move& m : plan.local)
    for_each_cell(m.destination,
                  [&](const Cell& c) { put(c, state.source[number(source_of(m, c), state.source_box)]); });
  for (const Box& b : plan.fills) for_each_cell(b, [&](const Cell& c) { put(c, 0); });
}

class EachFault : public testing::TestWithParam<aloni::test::FaultCase> {};

TEST_P(EachFault, LeavesGhostsRightOrSaysWhatIsWrong) {
  int harmed = 0, ended = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random pick(seed);
    const int size = pick(2, 6);
    const RandomCase c = random_case(pick, size);
    Faults faults = GetParam().faults;
    faults.seed = seed;
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    SimulatedRanks ranks({all}, {.copied_bytes = 64, .fragment_bytes = 200}, faults);
    std::vector<TransferPlan> plans;
    std::vector<RankState> states(static_cast<std::size_t>(size));
    std::vector<bool> done(static_cast<std::size_t>(size));
    bool error = false;
    try {
      for (int r = 0; r < size; ++r) {
        RankState& s = states[static_cast<std::size_t>(r)];
        s.source_box = c.source.owned(r);
        s.needed = c.needed[static_cast<std::size_t>(r)];
        s.destination.assign(static_cast<std::size_t>(s.needed.size()), untouched);
        for_each_cell(s.source_box, [&](const Cell& cell) { s.source.push_back(value_at(cell)); });
        plans.push_back(plan_redistribution(c.source, c.destination, c.needed_box(), c.boundaries, r));
        ranks[r].engine->set_checksums(true);
        start(ranks, r, plans.back(), s);
      }
      for (int step = 0; step < 20'000 && std::ranges::find(done, false) != done.end(); ++step) {
        ranks.step();
        for (int r = 0; r < size; ++r) {
          RankState& s = states[static_cast<std::size_t>(r)];
          std::erase_if(s.handles, [&](Engine::Handle h) { return ranks[r].engine->test(h); });
          done[static_cast<std::size_t>(r)] = s.handles.empty();
        }
      }
    } catch (const CommunicationError& e) {
      error = true;
      EXPECT_NE(std::string(e.what()).find("rank"), std::string::npos) << e.what();
    }
    std::uint64_t harm = 0;
    for (int r = 0; r < size; ++r) harm += ranks[r].faulty->harm() + (ranks[r].faulty->dead() ? 1u : 0u);
    harmed += harm > 0;
    if (harm == 0) {
      ASSERT_FALSE(error);
      ASSERT_TRUE(std::ranges::find(done, false) == done.end());
    }
    for (int r = 0; r < size && !error; ++r) {
      RankState& s = states[static_cast<std::size_t>(r)];
      if (!done[static_cast<std::size_t>(r)]) {
        ASSERT_NE(ranks[r].engine->waiting_for().find("rank"), std::string::npos);
        ASSERT_FALSE(ranks[r].engine->ranks_waited_for().empty());
        continue;
      }
      ++ended;
      finish(plans[static_cast<std::size_t>(r)], s);
      for_each_cell(s.needed, [&](const Cell& cell) {
        Cell from;
        const Origin origin = trace_cell(cell, c.source.extents(), c.boundaries, from);
        ASSERT_EQ(s.destination[number(cell, s.needed)], origin == Origin::value  ? value_at(from)
                                                         : origin == Origin::zero ? 0
                                                                                  : untouched);
      });
    }
  }
  EXPECT_EQ(harmed > 50, !GetParam().harmless) << harmed;
  EXPECT_GT(ended, 50);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EachFault, testing::ValuesIn(aloni::test::fault_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace test_exchange_faults
}  // namespace aloni::halo
