// Transfers whose values go between nodes in groups of a device library. Devices and library do their work late, and
// between the rounds nothing waits for them: kernels of the user write new values right after finish().
#include <aloni/halo/exchange.hpp>

#include "support/late_device.hpp"
#include "support/late_library.hpp"
#include "support/sanitizer.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>

#include <gmock/gmock.h>
#include <halo/distributed.hpp>
#include <halo/random_exchange.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::halo {
namespace test_message_group {

using namespace testing_support;
using aloni::test::LateDevice;
using aloni::test::LateLibrary;
using std::chrono::microseconds;

comm::Communicator make_communicator(int ranks_per_node) {
  return comm::from_mpi(MPI_COMM_WORLD, {.ranks_per_node = ranks_per_node});
}

void shuffle(std::vector<std::size_t>& values, Random& pick) {
  for (std::size_t i = values.size(); i-- > 1;)
    std::swap(values[i], values[static_cast<std::size_t>(pick(0, static_cast<int>(i)))]);
}

/// A View with ghosts. The functions return kernels of the user, which run late.
class Cells {
 public:
  Cells(const comm::Communicator& comm, const Queue<Exec>& queue, Distribution d, const GhostWidths& ghosts,
        BoundaryConditions boundaries)
      : dist_(std::move(d)), boundaries_(boundaries), x_(queue.space(), "x", dist_, comm.rank(), ghosts) {}

  Field<Memory> field() const { return {x_, boundaries_}; }
  auto write(int variant) {
    return [this, variant] {
      set_cells(x_, [&](const Cell& c) { return holds(x_.owned_box(), c) ? value_of(c, variant) : -1; });
    };
  }
  /// For the adjoint: values in the ghosts too, small enough for exact sums.
  auto write_all(int variant) {
    return [this, variant] {
      set_cells(x_, [&](const Cell& c) { return (c[1] + 2 * c[2] + 3 * c[3] + 5 * c[4] + variant) % 7; });
    };
  }
  auto count_wrong(int variant, int& wrong) {
    return [this, variant, &wrong] {
      for_each_value(x_, [&](const Cell& c, double value) {
        Cell from;
        const Origin origin = trace_cell(c, dist_.extents(), boundaries_, from);
        const double expected = origin == Origin::value ? value_of(from, variant) : origin == Origin::zero ? 0 : -1;
        wrong += value == expected ? 0 : 1;
      });
    };
  }
  auto save(std::vector<double>& to) {
    return [this, &to] {
      to.clear();
      for_each_value(x_, [&](const Cell&, double value) { to.push_back(value); });
    };
  }

 private:
  Distribution dist_;
  BoundaryConditions boundaries_;
  views::DistributedView<float, 3> x_;
};

class MessageGroups : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::is_same_v<Memory, Kokkos::HostSpace>) GTEST_SKIP() << "the late device is one of the host";
    if (ranks_ == 2) comm_ = make_communicator(1);
    ASSERT_GE(comm_.ranks_by_node().size(), 2u);
  }
  void use(const LateDevice::Options& device = {.seed = 1}, const LateLibrary::Options& library = {.seed = 2}) {
    const auto own = [&](auto options) {
      options.seed = options.seed * 100 + static_cast<std::uint64_t>(rank_);
      return options;
    };
    library_ = nullptr;
    comm::detail::set_device_collectives(comm_, nullptr);
    device_ = std::make_shared<LateDevice>(own(device));
    comm::detail::set_device(comm_, device_);
    library_ = LateLibrary::make(comm_, device_, own(library));
    comm::detail::set_device_collectives(comm_, library_);
  }
  bool is_far(int peer) const {
    for (const auto& node : comm_.ranks_by_node())
      if (std::ranges::find(node, rank_) != node.end()) return std::ranges::find(node, peer) == node.end();
    return false;
  }
  int sum(int value) const {
    return static_cast<int>(comm_.all_reduce(static_cast<std::int64_t>(value), comm::Reduction::sum));
  }

  /// A periodic row of planes, split over the ranks.
  std::unique_ptr<Cells> row(Index width = 2) const {
    const Extents extents = views::make_extents(2, {4 * ranks_, 20}, 16);
    GhostWidths ghosts;
    ghosts(Dim::height, Side::low) = ghosts(Dim::height, Side::high) = width;
    return std::make_unique<Cells>(comm_, queue_,
                                   Distribution::block(extents, ProcessGrid{{1, 1, ranks_, 1, 1}}, ranks_), ghosts,
                                   BoundaryConditions::all(Boundary::periodic));
  }
  std::unique_ptr<Cells> random_cells(Random& pick) const {
    const Distribution d = random_domain(pick, ranks_);
    BoundaryConditions boundaries;
    for (const Dim dim : all_dims)
      for (const Side side : {Side::low, Side::high})
        boundaries(dim, side) = d.extents()[dim] == 0 ? Boundary::zero : static_cast<Boundary>(pick(0, 4));
    return std::make_unique<Cells>(comm_, queue_, d, random_widths(pick, rank_, pick.one_in(4)), boundaries);
  }
  Exchange<Exec> exchange(const std::vector<Cells*>& cells, StartOrder order, bool poison = false,
                          bool consolidated = false) const {
    std::vector<Field<Memory>> fields;
    for (const Cells* c : cells) fields.push_back(c->field());
    return Exchange<Exec>(comm_, queue_, fields,
                          {.consolidate_below = consolidated ? ~std::size_t{0} : 0, .order = order, .poison = poison});
  }
  /// Rounds of an exchange, each behind kernels that write new values. Returns the wrong cells of all ranks.
  int wrong_cells(int rounds) {
    const auto cells = row();
    const Exchange<Exec> exchanged = exchange({cells.get()}, StartOrder::same);
    std::vector<int> wrong(static_cast<std::size_t>(rounds));
    for (int round = 0; round < rounds; ++round) {
      device_->submit(nullptr, cells->write(round));
      exchanged.run(queue_);
      device_->submit(nullptr, cells->count_wrong(round, wrong[static_cast<std::size_t>(round)]));
    }
    rest();
    return sum(std::accumulate(wrong.begin(), wrong.end(), 0));
  }
  /// The other rank may find the error first. Throws it, or returns after 20 s.
  void wait_for_poison() const {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
         std::chrono::steady_clock::now() < end;)
      comm_.check_poison();
  }
  /// Waits until all devices have done their work.
  void rest() {
    device_->synchronise();
    library_->synchronise();
    comm_.barrier();
  }

  comm::Communicator comm_ = make_communicator(2);
  const int rank_ = comm_.rank(), ranks_ = comm_.size();
  std::shared_ptr<LateDevice> device_;
  std::shared_ptr<LateLibrary> library_;
  Queue<Exec> queue_;
};

TEST_F(MessageGroups, GiveEveryRoundItsValues) {
  use();
  EXPECT_EQ(wrong_cells(20), 0);
}

TEST_F(MessageGroups, AreChosenForPeersOnOtherNodes) {
  use();
  const auto cells = row();
  const Exchange<Exec> grouped = exchange({cells.get()}, StartOrder::same);
  const Exchange<Exec> any = exchange({cells.get()}, StartOrder::any);
  for (const PeerTransfer& p : grouped.peers()) {
    EXPECT_EQ(p.path == Path::grouped, is_far(p.rank)) << p.rank;
    if (is_far(p.rank)) {
      EXPECT_EQ(p.transport, "late library");
    }
  }
  for (const PeerTransfer& p : any.peers()) EXPECT_NE(p.path, Path::grouped) << "ranks may start it in any order";
  const std::string text = grouped.explain();
  EXPECT_THAT(text, testing::HasSubstr("in a group of messages from device memory over late library"));
  rest();  // from groups that make connections
  const int before = library_->groups();
  grouped.run(queue_);
  any.run(queue_);
  rest();
  EXPECT_EQ(library_->groups(), before + 1) << "all faces of an exchange are one group";
}

TEST_F(MessageGroups, NeedBothEvents) {
  for (const int ignored : {0, 1}) {
    // A group that does not wait for a slow device sends old values; a device that does not wait for a slow library
    // unpacks them.
    const auto slow = [&](bool is_slow) { return microseconds(is_slow ? 4000 : 0); };
    use({.seed = 3, .longest_delay = slow(ignored == 0)},
        {.seed = 4, .longest_delay = slow(ignored == 1), .ignored_event = ignored});
    EXPECT_GT(wrong_cells(12), 0) << "without event " << ignored;
  }
}

TEST_F(MessageGroups, LetHostsGoOnBeforeKernelsHaveRun) {
  comm_ = make_communicator(1);  // within a node, hosts wait for kernels that pack short messages
  use({.longest_delay = microseconds(0)}, {.longest_delay = microseconds(0)});
  const auto cells = row();
  const Exchange<Exec> exchanged = exchange({cells.get()}, StartOrder::same);
  rest();
  std::atomic<bool> may_run{false};
  device_->submit(nullptr, [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!may_run && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  const int kernels = device_->kernels(), groups = library_->groups();
  for (int round = 0; round < 5; ++round) {
    device_->submit(nullptr, cells->write(round));
    exchanged.run(queue_);
  }
  EXPECT_EQ(device_->kernels(), kernels) << "a host has waited for its kernels";
  EXPECT_EQ(library_->groups(), groups) << "a group has not waited for the kernels that pack";
  comm_.barrier();
  may_run = true;
  int wrong = 0;
  device_->submit(nullptr, cells->count_wrong(4, wrong));
  rest();
  EXPECT_EQ(wrong, 0);
}

// Several exchanges in flight: started in one order by all ranks, and finished in an order of each rank. One more, in
// any order and without groups, is started between them.
TEST_F(MessageGroups, ServeRandomExchangesInFlight) {
  const int cases = aloni::test::share_of(24);
  int grouped = 0;
  for (int seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " on " + std::to_string(ranks_) + " ranks");
    use({.seed = static_cast<std::uint64_t>(seed)}, {.seed = static_cast<std::uint64_t>(seed) + 1000});
    Random pick(static_cast<unsigned>(seed));                      // equal on all ranks
    Random own(static_cast<unsigned>(1000 * (seed + 1) + rank_));  // of this rank
    const int number = pick(2, 4), rounds = 3;
    const auto n = static_cast<std::size_t>(number);
    std::vector<std::vector<std::unique_ptr<Cells>>> cells(n + 1);
    std::vector<Exchange<Exec>> exchanges;
    for (std::size_t e = 0; e <= n; ++e) {
      std::vector<Cells*> of_exchange;
      for (int i = pick(1, 2); i > 0; --i) {
        cells[e].push_back(random_cells(pick));
        of_exchange.push_back(cells[e].back().get());
      }
      exchanges.push_back(
          exchange(of_exchange, e < n ? StartOrder::same : StartOrder::any, pick.one_in(2), pick.one_in(2)));
      for (const PeerTransfer& p : exchanges.back().peers()) grouped += p.path == Path::grouped ? 1 : 0;
    }
    int wrong = 0;
    for (int round = 0; round < rounds; ++round) {
      const auto variant = [&](std::size_t e) { return static_cast<int>(n + 1) * round + static_cast<int>(e); };
      std::vector<Pending> pending(n + 1);
      const auto start = [&](std::size_t e) {
        for (const auto& c : cells[e]) device_->submit(nullptr, c->write(variant(e)));
        pending[e] = exchanges[e].start(queue_);
      };
      std::vector<std::size_t> turn(n);
      std::iota(turn.begin(), turn.end(), std::size_t{0});
      shuffle(turn, pick);
      const auto place = static_cast<std::size_t>(own(0, number));  // of the exchange in any order
      for (std::size_t i = 0; i <= n; ++i) {
        if (i == place) start(n);
        if (i < n) start(turn[i]);
      }
      turn.push_back(n);
      shuffle(turn, own);
      for (const std::size_t e : turn) {
        pending[e].finish();
        for (const auto& c : cells[e]) device_->submit(nullptr, c->count_wrong(variant(e), wrong));
      }
    }
    rest();
    ASSERT_EQ(sum(wrong), 0);
  }
  EXPECT_GT(sum(grouped), 0);
}

// Sums are made in a fixed order: by groups they have the bits of sums by messages of the host.
TEST_F(MessageGroups, ServeTheAdjoint) {
  for (int seed = 0; seed < 6; ++seed) {
    use({.seed = static_cast<std::uint64_t>(seed)}, {.seed = static_cast<std::uint64_t>(seed) + 7});
    Random pick(static_cast<unsigned>(seed) + 50), same_again(static_cast<unsigned>(seed) + 50);
    const auto by_groups = random_cells(pick), by_messages = random_cells(same_again);
    const Exchange<Exec> groups = exchange({by_groups.get()}, StartOrder::same);
    const Exchange<Exec> messages = exchange({by_messages.get()}, StartOrder::any);
    std::array<std::vector<double>, 2> saved;
    for (int round = 0; round < 3; ++round) {
      device_->submit(nullptr, by_groups->write_all(round));
      device_->submit(nullptr, by_messages->write_all(round));
      groups.run_adjoint(queue_);
      messages.run_adjoint(queue_);
      device_->submit(nullptr, by_groups->save(saved[0]));
      device_->submit(nullptr, by_messages->save(saved[1]));
      rest();
      EXPECT_EQ(saved[0], saved[1]) << "seed " << seed << ", round " << round;
    }
  }
}

// Two exchanges have messages of equal lengths. Rank 0 starts them in another order than the other ranks: their values
// meet the wrong receives.
TEST_F(MessageGroups, FindAWrongOrder) {
  use();
  const auto a = row(), b = row();
  std::optional<Exchange<Exec>> first, second;  // the late device uses them after the error, too
  std::string error;
  try {
    // Inside: two ranks can find the error before the third has made its exchanges.
    first = exchange({a.get()}, StartOrder::same);
    second = exchange({b.get()}, StartOrder::same);
    Pending p = (rank_ == 0 ? second : first)->start(queue_);
    Pending q = (rank_ == 0 ? first : second)->start(queue_);
    p.finish();
    q.finish();
    wait_for_poison();
  } catch (const CommunicationError& e) {
    error = e.what();
    EXPECT_THAT(error, testing::HasSubstr("in operation"));
    EXPECT_THAT(error, testing::HasSubstr("in one order"));
  } catch (const PeerFailed& e) {
    error = e.what();
    EXPECT_THAT(error, testing::HasSubstr("in one order"));
  }
  EXPECT_NE(error, "");
  device_->synchronise();
  EXPECT_EQ(library_->ends(), 1) << "no stream may wait for ever";
}

// Rank 0 fails instead of starting. The groups of the other ranks would wait for it for ever, and their devices for the
// groups.
TEST_F(MessageGroups, EndWhenARankFails) {
  use();
  const auto cells = row();
  const Exchange<Exec> exchanged = exchange({cells.get()}, StartOrder::same);
  if (rank_ == 0) {
    rest();
    comm_.poison("a failure of the test");
  } else {
    EXPECT_THROW(
        {
          rest();  // inside: rank 0 may fail before another rank has left the barrier
          Pending pending = exchanged.start(queue_);
          // What a host may submit before it knows: the device waits for the group.
          device_->submit(nullptr, [] {});
          pending.finish();
          while (true) comm_.check_poison();  // every rank must know of it
        },
        PeerFailed);
  }
  device_->synchronise();
  library_->synchronise();
  EXPECT_THROW(comm_.check_poison(), PeerFailed);
  EXPECT_EQ(library_->ends(), 1);
}

TEST_F(MessageGroups, FindAnotherDirection) {
  use();
  const auto cells = row();
  std::optional<Exchange<Exec>> exchanged;  // the late device uses it after the error, too
  std::string error;
  try {
    // Inside: two ranks can find the error before the third has made its exchange.
    exchanged = exchange({cells.get()}, StartOrder::same);
    Pending pending = rank_ == 0 ? exchanged->start_adjoint(queue_) : exchanged->start(queue_);
    pending.finish();
    wait_for_poison();
  } catch (const Error& e) {
    error = e.what();
  }
  EXPECT_THAT(error, testing::HasSubstr("adjoint"));
  device_->synchronise();
  EXPECT_EQ(library_->ends(), 1);
}

// Only two ranks have cells, of different nodes. The other ranks count the operation too: otherwise later numbers would
// differ between them.
TEST_F(MessageGroups, AreCountedOnRanksWithoutMessages) {
  use();
  std::vector<Index> widths(static_cast<std::size_t>(ranks_), 0);
  const int second = std::min(2, ranks_ - 1);
  widths.front() = widths[static_cast<std::size_t>(second)] = 3;
  GhostWidths ghosts;
  ghosts(Dim::width, Side::low) = ghosts(Dim::width, Side::high) =
      std::min<Index>(widths[static_cast<std::size_t>(rank_)], 1);
  Cells ends(comm_, queue_,
             Distribution::block(views::make_extents(1, {6}, 4), ProcessGrid{{1, 1, 1, ranks_, 1}}, ranks_)
                 .with_blocks(Dim::width, widths),
             ghosts, BoundaryConditions{});
  const auto all = row();
  const Exchange<Exec> of_ends = exchange({&ends}, StartOrder::same), of_all = exchange({all.get()}, StartOrder::same);
  ASSERT_EQ(of_ends.peers().empty(), rank_ != 0 && rank_ != second);
  std::array<int, 2> wrong{};
  for (int round = 0; round < 3; ++round) {
    device_->submit(nullptr, ends.write(round));
    of_ends.run(queue_);
    device_->submit(nullptr, ends.count_wrong(round, wrong[0]));
    device_->submit(nullptr, all->write(round));
    of_all.run(queue_);
    device_->submit(nullptr, all->count_wrong(round, wrong[1]));
  }
  rest();
  EXPECT_THAT(wrong, testing::Each(0));
}

}  // namespace test_message_group
}  // namespace aloni::halo
