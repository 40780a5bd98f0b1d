// Deep halos against a serial oracle: any stencil (radii per side, diagonals too), extents, distributions, boundaries and numbers of steps per
// exchange; blocks thinner than the halo, empty and replicated ones. ALONI_DEEP_HALOS cases instead of 200 when it is set.
#include <aloni/halo/deep_halo.hpp>

#include <aloni/core/error.hpp>
#include <aloni/halo/exchange.hpp>
#include <aloni/halo/refill.hpp>

#include "support/sanitizer.hpp"
#include "support/transport.hpp"

#include <gtest/gtest.h>
#include <halo/distributed.hpp>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace aloni::halo {
namespace test_deep_halo {

using namespace testing_support;
using views::GhostState;
using views::GhostWidths;
using views::make_extents;
using View = views::DistributedView<std::int64_t, 3>;

constexpr int steps = 7;
constexpr std::int64_t modulus = 9973;           // values stay exact
constexpr std::int64_t of_caller = 7, junk = 1;  // beyond ends of the kind `none`; where nobody may read

BoundaryConditions all(Boundary b) { return BoundaryConditions::all(b); }

GhostWidths along_width(Index low, Index high) {
  GhostWidths radius;
  radius(Dim::width, Side::low) = low;
  radius(Dim::width, Side::high) = high;
  return radius;
}

Distribution row(Index cells, int ranks) {
  return Distribution::block(make_extents(1, {cells}, 1), ProcessGrid{{1, 1, 1, ranks, 1}}, ranks);
}

std::pair<Index, Index> along_width(const Box& box) { return {box.lower(Dim::width), box.upper(Dim::width)}; }
std::pair<Index, Index> range(Index lo, Index hi) { return {lo, hi}; }

TEST(DeepHalo, ComputesARadiusLessInEachStep) {
  const auto radius = along_width(2, 1);
  const DeepHalo deep(row(12, 3), 1, radius, 3, all(Boundary::zero));
  EXPECT_EQ(along_width(deep.computed(0)), range(0, 10));
  EXPECT_EQ(along_width(deep.computed(1)), range(2, 9));
  EXPECT_EQ(along_width(deep.computed(2)), range(4, 8));
  EXPECT_EQ(deep.computed(7), deep.computed(1));
  EXPECT_EQ(deep.ghosts(), along_width(6, 3));
  EXPECT_EQ(deep.computed_cells(), 10 + 7 + 4);
  EXPECT_EQ(deep.redundant_cells(), 6 + 3);
  for (Index n = 0; n < 9; ++n) EXPECT_EQ(deep.exchange_due(n), n == 0 || n == 3 || n == 6);
}

TEST(DeepHalo, OfOneStepIsAHaloAsUsual) {
  for (const Boundary b : {Boundary::zero, Boundary::periodic, Boundary::reflect, Boundary::none}) {
    const DeepHalo deep(row(12, 3), 0, along_width(2, 5), 1, all(b));
    EXPECT_EQ(deep.ghosts(), along_width(2, 5));
    EXPECT_EQ(along_width(deep.computed(0)), range(0, 4));
    EXPECT_EQ(deep.refill(), TransferPlan{});
    EXPECT_EQ(deep.redundant_cells(), 0);
  }
}

TEST(DeepHalo, ComputesBeyondTheDomainOnlyWhereItIsPeriodicAndSplit) {
  const auto radius = along_width(2, 1);
  const DeepHalo periodic(row(12, 3), 0, radius, 3, all(Boundary::periodic));
  EXPECT_EQ(along_width(periodic.computed(0)), range(-4, 6));
  EXPECT_EQ(periodic.ghosts(), along_width(6, 3));
  EXPECT_EQ(periodic.refill(), TransferPlan{});
  for (const Boundary b : {Boundary::zero, Boundary::replicate, Boundary::reflect, Boundary::none}) {
    const DeepHalo ended(row(12, 3), 0, radius, 3, all(b));
    EXPECT_EQ(along_width(ended.computed(0)), range(0, 6));
    EXPECT_EQ(ended.ghosts(), along_width(2, 3));
    EXPECT_EQ(count(ended.refill()).filled_elements, b == Boundary::zero ? 2 : 0);
    EXPECT_EQ(count(ended.refill()).local_elements, b == Boundary::replicate || b == Boundary::reflect ? 2 : 0);
  }
  const DeepHalo whole(row(12, 1), 0, radius, 3, all(Boundary::periodic));
  EXPECT_EQ(whole.redundant_cells(), 0);
  EXPECT_EQ(whole.ghosts(), radius);
  EXPECT_EQ(count(whole.refill()).local_elements, 3);
}

TEST(DeepHalo, ComputesTheMirrorImageThatAReflectingEndNeeds) {
  // Cell 0 reads −3, an image of 3, which this rank neither owns nor reads.
  const DeepHalo deep(row(8, 8), 0, along_width(3, 0), 2, all(Boundary::reflect));
  EXPECT_EQ(along_width(deep.computed(0)), range(0, 4));
  EXPECT_EQ(along_width(deep.computed(1)), range(0, 1));
  EXPECT_EQ(deep.ghosts(), along_width(3, 3));
}

TEST(DeepHalo, SendsAsManyMessagesPerExchange) {
  const auto domain = Distribution::block(make_extents(1, {16, 16, 16}, 8), ProcessGrid{{1, 2, 2, 2, 1}}, 8);
  GhostWidths radius;
  for (const Dim d : views::spatial_dims) radius(d, Side::low) = radius(d, Side::high) = 2;
  for (const int k : {1, 2, 4}) {
    const DeepHalo deep(domain, 0, radius, k, all(Boundary::periodic));
    const TransferCount cost = count(plan_halo(domain, deep.needed(), all(Boundary::periodic), 0));
    EXPECT_EQ(cost.sent_messages, 7);
    const Index edge = 8 + 4 * k;
    // Images of what the rank owns itself: none, the ghosts on one side are those on the other.
    EXPECT_EQ(cost.received_elements + cost.local_elements, (edge * edge * edge - 8 * 8 * 8) * 8);
  }
}

TEST(DeepHalo, AsksNothingOfAnEmptyBlock) {
  const auto domain = row(6, 2).with_blocks(Dim::width, {6, 0});
  const DeepHalo deep(domain, 1, along_width(1, 1), 3, all(Boundary::periodic));
  EXPECT_TRUE(deep.computed(0).empty());
  EXPECT_EQ(deep.ghosts(), GhostWidths{});
  EXPECT_TRUE(deep.needed()(1).empty());
  EXPECT_EQ(deep.refill(), TransferPlan{});
}

TEST(DeepHalo, RefusesWhatItCannotServe) {
  EXPECT_THROW(DeepHalo(row(6, 2), 2, {}, 1), InvalidArgument);
  EXPECT_THROW(DeepHalo(row(6, 2), 0, along_width(-1, 0), 1), InvalidArgument);
  EXPECT_THROW(DeepHalo(row(6, 2), 0, {}, 0), InvalidArgument);
  auto mixed = all(Boundary::periodic);
  mixed(Dim::width, Side::high) = Boundary::zero;
  EXPECT_NO_THROW(DeepHalo(row(6, 2), 0, along_width(1, 1), 1, mixed));
  EXPECT_NO_THROW(DeepHalo(row(6, 1), 0, along_width(1, 1), 2, mixed));
  EXPECT_NO_THROW(DeepHalo(row(6, 2), 0, along_width(1, 0), 2, mixed));
  try {
    DeepHalo(row(6, 2), 0, along_width(1, 1), 2, mixed);
    FAIL();
  } catch (const Unsupported& e) {
    EXPECT_STREQ(e.what(),
                 "aloni::halo::DeepHalo: boundaries of width = periodic and zero: expected periodic on both sides or "
                 "on neither, a dimension that isn't split, or an exchange in every step (steps = 1)");
  }
}

struct Case {
  Distribution domain;
  GhostWidths radius;
  BoundaryConditions boundaries;
  int per_exchange = 1;
  unsigned seed = 0;

  /// What a step multiplies the cell at this distance with.
  std::int64_t coefficient(const Cell& offset) const {
    std::int64_t c = seed % 89;
    for (const Index i : offset) c = (c * 31 + i + 17) % 101;
    return c;
  }
  /// at(cell) → value of the step before; cells may lie outside.
  template <class F>
  std::int64_t next(const Cell& cell, F&& at) const {
    Box reach;
    for (const Dim d : all_dims) reach.set(d, -radius(d, Side::low), radius(d, Side::high) + 1);
    std::int64_t sum = 0;
    for_each_cell(reach, [&](const Cell& offset) {
      Cell c = cell;
      for (std::size_t i = 0; i < c.size(); ++i) c[i] += offset[i];
      sum += coefficient(offset) * at(c);
    });
    return sum % modulus;
  }
  std::int64_t start(const Cell& cell) const { return static_cast<std::int64_t>(value_of(cell, seed % 7)) % modulus; }
  Origin origin(const Cell& cell, Cell& source) const { return trace_cell(cell, domain.extents(), boundaries, source); }
};

Case random_case(unsigned seed, int ranks) {
  Random pick(seed);
  Case c;
  c.seed = seed;
  Extents extents = make_extents(pick(1, 2), {pick(1, 5), pick(1, 5), pick(1, 12)}, pick(1, 2));
  c.domain = random_distribution(pick, extents, ranks);
  if (pick.one_in(2)) {
    const auto grids = views::all_grids(ranks, {Dim::depth, Dim::height, Dim::width});
    c.domain = Distribution::block(extents,
                                   grids[static_cast<std::size_t>(pick(0, static_cast<int>(grids.size()) - 1))], ranks);
  }
  for (const Dim d : all_dims) {
    const bool is_space = d != Dim::sample && d != Dim::channel;
    const bool periodic = pick.one_in(2);
    for (const Side side : {Side::low, Side::high}) {
      c.radius(d, side) = pick.one_in(is_space ? 2 : 10) ? pick(1, pick.one_in(4) ? 3 : 1) : 0;
      c.boundaries(d, side) = periodic ? Boundary::periodic : static_cast<Boundary>(pick(0, 4));
    }
  }
  c.per_exchange = pick(1, 4);
  return c;
}

/// The whole domain after some steps, by cell.
std::map<Cell, std::int64_t> oracle(const Case& c) {
  std::map<Cell, std::int64_t> now, next;
  for_each_cell(views::whole(c.domain.extents()), [&](const Cell& cell) { now[cell] = c.start(cell); });
  for (int n = 0; n < steps; ++n) {
    for (auto& [cell, value] : now)
      next[cell] = c.next(cell, [&](const Cell& at) -> std::int64_t {
        Cell source;
        const Origin origin = c.origin(at, source);
        return origin == Origin::value ? now.at(source) : origin == Origin::zero ? 0 : of_caller;
      });
    std::swap(now, next);
  }
  return now;
}

/// Everything is overwritten with junk before, so that a cell which is read though nobody has filled it shows.
void advance(const Case& c, const View& now, const View& next, const Box& computed) {
  set_cells(next, [&](const Cell& cell) {
    Cell source;
    return c.origin(cell, source) == Origin::untouched ? of_caller : junk;
  });
  const auto from = views::create_mirror_view(now), to = views::create_mirror_view(next);
  if constexpr (!std::is_same_v<Memory, Kokkos::HostSpace>) {
    deep_copy(Exec{}, from, now);
    deep_copy(Exec{}, to, next);
  }
  const auto source = from.local_unchecked(), destination = to.local_unchecked();
  const Box box = now.box_with_ghosts();
  const auto value = [&](const auto& local, const Cell& i) -> std::int64_t& {
    return local(i[0] - box.lo[0], i[1] - box.lo[1], i[2] - box.lo[2], i[3] - box.lo[3], i[4] - box.lo[4]);
  };
  for_each_cell(computed, [&](const Cell& cell) {
    value(destination, cell) = c.next(cell, [&](const Cell& at) { return value(source, at); });
  });
  if constexpr (!std::is_same_v<Memory, Kokkos::HostSpace>) deep_copy(Exec{}, next, to);
  next.mark_stale();
}

void check_case(const comm::Communicator& comm, const Queue<Exec>& queue, const Case& c) {
  const DeepHalo deep(c.domain, comm.rank(), c.radius, c.per_exchange, c.boundaries);
  std::array<View, 2> u;
  std::array<Exchange<>, 2> exchange;
  std::array<Transfer<>, 2> refill;
  for (std::size_t i = 0; i < 2; ++i) {
    u[i] = c.seed % 2 ? View(comm, queue.space(), "u", c.domain, deep.ghosts())
                      : View(queue.space(), "u", c.domain, comm.rank(), deep.ghosts());
    exchange[i] =
        Exchange<>(comm, queue, {{u[i], c.boundaries, deep.needed()}}, {.direct_bytes = c.seed % 2 ? 0U : 16384U});
    refill[i] = make_refill(comm, queue, deep, {{u[i], c.boundaries}});
    EXPECT_EQ(refill[i].counts().sent_messages + refill[i].counts().received_messages, 0);
  }
  set_cells(u[0], [&](const Cell& cell) {
    Cell source;
    if (holds(u[0].owned_box(), cell)) return c.start(cell);
    return c.origin(cell, source) == Origin::untouched ? of_caller : junk;
  });
  for (int n = 0; n < steps; ++n) {
    const auto now = static_cast<std::size_t>(n % 2);
    (deep.exchange_due(n) ? exchange[now].start(queue) : refill[now].start(queue)).finish();
    EXPECT_EQ(u[now].ghost_state(), GhostState::fresh);
    queue.fence("aloni::test: before reading");
    advance(c, u[now], u[1 - now], deep.computed(n));
  }
  const View& end = u[steps % 2];
  const auto expected = oracle(c);
  for_each_value(end, [&](const Cell& cell, double value) {
    if (!holds(end.owned_box(), cell)) return;
    ASSERT_EQ(value, static_cast<double>(expected.at(cell))) << "cell " << testing::PrintToString(cell);
  });
}

TEST(DeepHalo, HasTheValuesOfAnExchangeInEveryStep) {
  const comm::Communicator comm = test::make_communicator();
  const Queue<Exec> queue;
  const char* const wanted = std::getenv("ALONI_DEEP_HALOS");
  const int cases = wanted ? std::atoi(wanted) : test::share_of(200);
  int refused = 0, deep = 0;
  for (int seed = 0; seed < cases; ++seed) {
    const Case c = random_case(static_cast<unsigned>(seed), comm.size());  // the same on all ranks
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + to_string(c.domain) + ", " + std::to_string(c.per_exchange) +
                 " steps per exchange");
    try {
      check_case(comm, queue, c);
      deep += c.per_exchange > 1;
    } catch (const Unsupported&) {
      ++refused;
    }
    ASSERT_FALSE(comm.all_reduce(HasFailure() ? 1 : 0, comm::Reduction::max) != 0);
  }
  EXPECT_GT(deep, refused);
}

}  // namespace test_deep_halo
}  // namespace aloni::halo
