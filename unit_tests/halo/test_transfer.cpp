#include <aloni/halo/transfer.hpp>

#include "support/sanitizer.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>

#include <gmock/gmock.h>
#include <halo/test_tensor.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

namespace aloni::halo {
namespace test_transfer {

using namespace testing_support;

template <class T>
class TransferOf : public testing::Test {
 protected:
  comm::Communicator comm_ = aloni::test::make_communicator();
  Queue<Exec> queue_;
};
using Precisions = testing::Types<float, double>;
TYPED_TEST_SUITE(TransferOf, Precisions);
using Transfers = TransferOf<float>;

constexpr double untouched = -1;
Layout any_layout(Random& pick) { return static_cast<Layout>(pick(0, 2)); }

/// Random options: direct reading and consolidation for all messages, for some, or for none. Equal on all ranks.
TransferOptions any_options(Random& all) {
  TransferOptions options;
  options.direct_bytes = std::array<std::size_t, 3>{0, 200, ~std::size_t{0}}[static_cast<std::size_t>(all(0, 2))];
  options.consolidate_below = std::array<std::size_t, 3>{0, 300, ~std::size_t{0}}[static_cast<std::size_t>(all(0, 2))];
  return options;
}

// One tensor that exchanges ghosts, or a pair of tensors, with the plan and the expected values.
template <class T>
struct Work {
  RandomCase c;
  bool in_place;
  TestTensor<T> source, destination;
  TransferItem<T, Memory> item;

  Work(const comm::Communicator& comm, Random& all, Random& own, bool is_in_place)
      : Work(comm, all, own, comm.size(), comm.rank(), is_in_place) {}
  Work(const comm::Communicator& comm, Random& all, Random& own, int ranks, int rank, bool is_in_place)
      : c(random_case(all, ranks)),
        in_place(is_in_place),
        source(in_place ? hull(c.source.owned(rank), needed(rank)) : c.source.owned(rank), any_layout(own), own,
               own.one_in(2) ? &comm : nullptr),
        destination(in_place ? Box{} : needed(rank), any_layout(own), own, own.one_in(2) ? &comm : nullptr),
        item(in_place ? TransferItem<T, Memory>::in_place(source.ref(),
                                                          plan_halo(c.source, c.needed_box(), c.boundaries, rank))
                      : TransferItem<T, Memory>::between(
                            source.ref(), destination.ref(),
                            plan_redistribution(c.source, c.destination, c.needed_box(), c.boundaries, rank))) {}

  Box needed(int rank) const { return c.needed[static_cast<std::size_t>(rank)]; }
  TestTensor<T>& result() { return in_place ? source : destination; }

  void prepare(int rank, int which) {
    const Box own = c.source.owned(rank);
    source.set([&](const Cell& cell) { return holds(own, cell) ? value_of(cell, which) : untouched; });
    destination.set([](const Cell&) { return untouched; });
  }
  void check(int rank, int which) {
    result().download();
    const Box own = c.source.owned(rank);
    for_each_cell(result().box(), [&](const Cell& cell) {
      Cell from = cell;
      double expected = untouched;
      if (in_place && holds(own, cell)) {
        expected = value_of(cell, which);
      } else if (holds(needed(rank), cell)) {
        const Origin origin = trace_cell(cell, c.source.extents(), c.boundaries, from);
        expected = origin == Origin::value ? value_of(from, which) : origin == Origin::zero ? 0 : untouched;
      }
      ASSERT_EQ(static_cast<double>(result().at(cell)), expected) << "rank " << rank;
    });
  }
};

TYPED_TEST(TransferOf, MovesEveryValueToItsGlobalIndex) {
  const int rank = this->comm_.rank();
  for (unsigned seed = 0; seed < 60; ++seed) {
    Random all(seed), own(1000 * seed + static_cast<unsigned>(rank));
    this->comm_.set_max_message_bytes(all.one_in(3) ? 24 : std::size_t{1} << 30);
    std::vector<Work<TypeParam>> work;
    std::vector<AnyTransferItem<Memory>> items;
    std::string text = "seed " + std::to_string(seed);
    for (int i = 0, n = all(1, 3); i < n; ++i) {
      work.emplace_back(this->comm_, all, own, all.one_in(2));
      items.push_back(work.back().item);
      text += (work.back().in_place ? "\nin place: " : "\nbetween: ") + describe(work.back().c);
    }
    SCOPED_TRACE(text);
    const Transfer<> transfer(this->comm_, this->queue_, items, any_options(all));
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (auto& w : work) w.prepare(rank, repeat);
      auto pending = transfer.start(this->queue_);
      pending.finish();
      this->queue_.fence("aloni::test: before reading");
      for (auto& w : work) w.check(rank, repeat);
    }
  }
}

TYPED_TEST(TransferOf, SatisfiesTheAdjointIdentity) {
  const int rank = this->comm_.rank();
  for (unsigned seed = 500; seed < 550; ++seed) {
    Random all(seed), own(1000 * seed + static_cast<unsigned>(rank));
    std::vector<Work<TypeParam>> work;
    std::vector<AnyTransferItem<Memory>> items;
    std::string text = "seed " + std::to_string(seed);
    for (int i = 0, n = all(1, 2); i < n; ++i) {
      work.emplace_back(this->comm_, all, own, all.one_in(2));
      items.push_back(work.back().item);
      text += (work.back().in_place ? "\nin place: " : "\nbetween: ") + describe(work.back().c);
    }
    SCOPED_TRACE(text);
    const Transfer<> transfer(this->comm_, this->queue_, items, any_options(all));
    // Small integers: all sums are exact, also in float, and the identity holds to the last bit.
    const auto small = [&](const Cell&) { return own(-3, 3); };
    double forward = 0, adjoint = 0;
    std::vector<std::vector<double>> x, y;
    for (auto& w : work) {
      w.source.set(small);
      x.push_back(cells(w.source));
      w.destination.set([](const Cell&) { return 0; });
    }
    transfer.run(this->queue_);
    this->queue_.fence("aloni::test: before reading");
    for (auto& w : work) {
      w.result().download();
      const auto values = cells(w.result());
      w.result().set(small);
      y.push_back(cells(w.result()));
      for (std::size_t i = 0; i < values.size(); ++i) forward += values[i] * y.back()[i];
      if (!w.in_place) w.source.set([](const Cell&) { return 77; });  // overwritten
    }
    transfer.run_adjoint(this->queue_);
    this->queue_.fence("aloni::test: before reading");
    for (std::size_t i = 0; i < work.size(); ++i) {
      work[i].source.download();
      adjoint += dot(work[i].source, x[i]);
      if (!work[i].in_place) {
        work[i].destination.download();
        EXPECT_EQ(cells(work[i].destination), y[i]) << "the adjoint must not change the destination of a pair";
      }
    }
    EXPECT_EQ(this->comm_.all_reduce(forward, comm::Reduction::sum),
              this->comm_.all_reduce(adjoint, comm::Reduction::sum));
  }
}

TYPED_TEST(TransferOf, AddsInTheSameOrderEveryTime) {
  // The ghosts of every rank reach all other ranks: many sums per cell, of numbers that float rounds.
  const int ranks = this->comm_.size(), rank = this->comm_.rank();
  const auto dist =
      Distribution::block(views::make_extents(1, {2 * ranks}, 1024), ProcessGrid{{1, 1, 1, ranks, 1}}, ranks);
  const auto needed = [&](int r) {
    Box b = dist.owned(r);
    b.set(Dim::width, -3 * ranks, 5 * ranks);
    return b;
  };
  const auto boundaries = BoundaryConditions::all(Boundary::periodic);
  Random pick(static_cast<unsigned>(rank));
  TestTensor<TypeParam> x(needed(rank), Layout::channels_last, pick);
  std::vector<TypeParam> first;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const Transfer<> transfer(
        this->comm_, this->queue_,
        {TransferItem<TypeParam, Memory>::in_place(x.ref(), plan_halo(dist, needed, boundaries, rank))},
        {.direct_bytes = repeat % 2 == 0 ? 0 : ~std::size_t{0}});
    x.set(
        [](const Cell& c) { return 1.0 / (1.3 + static_cast<double>(c[3] * c[3]) + 0.1 * static_cast<double>(c[4])); });
    transfer.run_adjoint(this->queue_);
    this->queue_.fence("aloni::test: before reading");
    if (repeat == 0)
      first = x.raw();
    else
      EXPECT_EQ(x.raw(), first);
  }
  for_each_cell(x.box(), [&](const Cell& c) {
    if (!holds(dist.owned(rank), c)) {
      EXPECT_EQ(x.at(c), 0) << "ghosts must be zero";
    }
  });
}

TEST_F(Transfers, DoNotMixWithOthersInFlight) {
  const int ranks = comm_.size(), rank = comm_.rank();
  const auto dist =
      Distribution::block(views::make_extents(2, {3 * ranks}, 2), ProcessGrid{{1, 1, 1, ranks, 1}}, ranks);
  const auto needed = [&](int r) {
    Box b = dist.owned(r);
    b.set(Dim::width, b.lower(Dim::width) - 1, b.upper(Dim::width) + 1);
    return b;
  };
  const auto plan = plan_halo(dist, needed, BoundaryConditions::all(Boundary::periodic), rank);
  Random pick(7);
  TestTensor<float> a(needed(rank), Layout::channels_last, pick), b(needed(rank), Layout::reversed, pick);
  const Transfer<> first(comm_, queue_, {TransferItem<float, Memory>::in_place(a.ref(), plan)});
  const Transfer<> second(comm_, queue_, {TransferItem<float, Memory>::in_place(b.ref(), plan)});
  for (int repeat = 0; repeat < 20; ++repeat) {
    a.set([&](const Cell& c) { return value_of(c, 2 * repeat); });
    b.set([&](const Cell& c) { return value_of(c, 2 * repeat + 1); });
    Pending p, q;
    if (rank % 2 == 0) {
      p = first.start(queue_);
      q = second.start(queue_);
      p.finish();
      q.finish();
    } else {
      q = second.start(queue_);
      p = first.start(queue_);
      p.finish();
      q.finish();
    }
    queue_.fence("aloni::test: before reading");
    a.download();
    b.download();
    for_each_cell(needed(rank), [&](const Cell& c) {
      Cell from = c;
      from[3] = (c[3] + 3 * ranks) % (3 * ranks);
      ASSERT_EQ(a.at(c), value_of(from, 2 * repeat));
      ASSERT_EQ(b.at(c), value_of(from, 2 * repeat + 1));
    });
  }
}

// A tensor on every rank whose halo comes from both neighbours, and the check of its ghosts.
struct Ring {
  const comm::Communicator& comm;
  const int ranks = comm.size(), rank = comm.rank();
  Distribution dist =
      Distribution::block(views::make_extents(2, {3 * ranks}, 2), ProcessGrid{{1, 1, 1, ranks, 1}}, ranks);
  Random pick{7};
  TestTensor<float> tensor{needed(rank), Layout::channels_last, pick};

  Box needed(int r) const {
    Box b = dist.owned(r);
    b.set(Dim::width, b.lower(Dim::width) - 1, b.upper(Dim::width) + 1);
    return b;
  }
  TransferItem<float, Memory> item() {
    const auto plan = plan_halo(
        dist, [&](int r) { return needed(r); }, BoundaryConditions::all(Boundary::periodic), rank);
    return TransferItem<float, Memory>::in_place(tensor.ref(), plan);
  }
  void prepare(int which) {
    tensor.set([&](const Cell& c) { return holds(dist.owned(rank), c) ? value_of(c, which) : untouched; });
  }
  void check(int which) {
    tensor.download();
    for_each_cell(needed(rank), [&](const Cell& c) {
      Cell from = c;
      from[3] = (c[3] + 3 * ranks) % (3 * ranks);
      ASSERT_EQ(tensor.at(c), value_of(from, which));
    });
  }
};

// Messages of transfers have no tags: receives of the user with any tag may wait while a transfer runs.
TEST_F(Transfers, DoNotMeetMessagesWithTags) {
  if (comm_.size() == 1) GTEST_SKIP() << "needs a second rank";
  const int next = (comm_.rank() + 1) % comm_.size(), before = (comm_.rank() + comm_.size() - 1) % comm_.size();
  constexpr int tags = comm::Communicator::max_tag + 1;
  std::vector<int> sent(tags), received(tags, -1);
  std::vector<comm::Request> requests;
  for (int tag = 0; tag < tags; ++tag)
    requests.push_back(comm_.receive(std::span(&received[static_cast<std::size_t>(tag)], 1), before, tag));
  Ring ring{comm_};
  for (const std::size_t direct_bytes : {std::size_t{0}, ~std::size_t{0}}) {
    const Transfer<> transfer(comm_, queue_, {ring.item()}, {.direct_bytes = direct_bytes});
    ring.prepare(1);
    transfer.run(queue_);
    queue_.fence("aloni::test: before reading");
    ring.check(1);
    transfer.run_adjoint(queue_);
  }
  for (int tag = 0; tag < tags; ++tag) {
    sent[static_cast<std::size_t>(tag)] = tag;
    requests.push_back(comm_.send(std::span(&sent[static_cast<std::size_t>(tag)], 1), next, tag));
  }
  comm_.wait(requests);
  EXPECT_EQ(received, sent);
}

// Numbers of transfers are not used again, also after as many transfers as there are tags.
TEST_F(Transfers, KeepApartAfterAsManyTransfersAsThereAreTags) {
  if (comm_.size() != 2 || test::sanitized) GTEST_SKIP() << "takes long on more than two ranks and under a sanitizer";
  Ring a{comm_}, b{comm_};
  const Transfer<> first(comm_, queue_, {a.item()});
  for (int i = 0; i < comm::Communicator::max_tag; ++i) (void)Transfer<>(comm_, queue_, {});
  const Transfer<> second(comm_, queue_, {b.item()});
  a.prepare(1);
  b.prepare(2);
  const bool turned = comm_.rank() == 1;
  Pending p = (turned ? second : first).start(queue_), q = (turned ? first : second).start(queue_);
  p.finish();
  q.finish();
  queue_.fence("aloni::test: before reading");
  a.check(1);
  b.check(2);
}

TEST_F(Transfers, CountMessagesAndBytesAsTransportsDo) {
  Random all(3), own(4);
  Work<float> a(comm_, all, own, true), b(comm_, all, own, false);
  const auto sent = [&] {
    std::pair<std::uint64_t, std::uint64_t> sum;
    for (const auto& [name, counters] : comm_.traffic()) {
      sum.first += counters.messages_sent;
      sum.second += counters.bytes_sent;
    }
    return sum;
  };
  const bool on_one_node = comm_.node().size() == comm_.size();
  for (const bool direct : {false, true}) {
    const Transfer<> transfer(comm_, queue_, {a.item, b.item},
                              {.direct_bytes = direct ? 0 : ~std::size_t{0}, .consolidate_below = 0});
    const TransferCount counts = transfer.counts();
    const auto before = sent();
    transfer.run(queue_);
    const auto after = sent();
    // A rank that has read a message in the sender's memory answers with an empty message.
    const auto answers = std::ranges::count_if(transfer.peers(), [](const PeerTransfer& peer) {
      return peer.receives && (peer.path == Path::view_to_view || peer.path == Path::packed_shared);
    });
    if (on_one_node && std::is_same_v<Memory, Kokkos::HostSpace>) {
      EXPECT_EQ(answers, direct ? counts.received_messages : 0);
    }
    EXPECT_EQ(after.first - before.first, static_cast<std::uint64_t>(counts.sent_messages + answers));
    EXPECT_EQ(after.second - before.second, 4 * static_cast<std::uint64_t>(counts.sent_elements));
    EXPECT_EQ(comm_.all_reduce(counts.sent_elements, comm::Reduction::sum),
              comm_.all_reduce(counts.received_elements, comm::Reduction::sum));
  }
}

TEST_F(Transfers, RefuseToStartTwiceAndFinishInTheDestructorOfPending) {
  const int rank = comm_.rank();
  Random all(11), own(5);
  Work<float> w(comm_, all, own, false);
  const Transfer<> transfer(comm_, queue_, {w.item}, {.label = "example"});
  w.prepare(rank, 1);
  {
    auto pending = transfer.start(queue_);
    EXPECT_TRUE(pending.active());
    try {
      auto again = transfer.start(queue_);
      FAIL();
    } catch (const InvalidArgument& e) {
      EXPECT_STREQ(e.what(),
                   "aloni::halo::Transfer::start: transfer = aloni::halo::example: expected a transfer that is not in "
                   "flight; call finish() on its Pending first");
    }
    auto moved = std::move(pending);
    EXPECT_FALSE(pending.active());
  }
  queue_.fence("aloni::test: before reading");
  w.check(rank, 1);
  transfer.run(queue_);  // it may start again
}

TEST_F(Transfers, RefuseTensorsSmallerThanThePlanOnAllRanks) {
  const auto dist = Distribution::block(views::make_extents(2, {8}, 2), ProcessGrid{}, comm_.size());
  const auto needed = [&](int r) {
    Box b = dist.owned(r);
    b.set(Dim::width, -1, 9);
    return b;
  };
  Random pick(7);
  const TestTensor<float> good(needed(0), Layout::channels_last, pick),
      small(dist.owned(0), Layout::channels_last, pick);
  const bool last = comm_.rank() == comm_.size() - 1;  // only this rank has the wrong tensor
  const auto make = [&] {
    Transfer<>(comm_, queue_,
               {TransferItem<float, Memory>::in_place((last ? small : good).ref(), plan_halo(dist, needed, {}, 0))});
  };
  if (last) {
    try {
      make();
      FAIL();
    } catch (const InvalidArgument& e) {
      EXPECT_STREQ(e.what(),
                   "aloni::halo::Transfer: box to fill = [0,2)x[0,1)x[0,1)x[-1,0)x[0,2): expected a box inside the "
                   "tensor's [0,2)x[0,1)x[0,1)x[0,8)x[0,2)");
    }
  } else {
    EXPECT_THROW(make(), PeerFailed);
  }
}

TEST_F(Transfers, DoNothingIfEmpty) {
  const Transfer<> none;
  auto pending = none.start(queue_);
  EXPECT_FALSE(pending.active());
  pending.finish();
  EXPECT_EQ(none.counts(), TransferCount{});
}

TEST_F(Transfers, KeepTheirMemoryAlive) {
  auto memory = std::make_shared<int>(1);
  std::weak_ptr<int> watch = memory;
  {
    Random pick(7);
    TestTensor<float> x(Box{{0, 0, 0, 0, 0}, {1, 1, 1, 4, 1}}, Layout::channels_last, pick);
    auto ref = x.ref();
    ref.owner = std::move(memory);
    const Transfer<> transfer(comm_, queue_, {TransferItem<float, Memory>::in_place(ref, {})});
    ref.owner.reset();
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
}

}  // namespace test_transfer
}  // namespace aloni::halo
