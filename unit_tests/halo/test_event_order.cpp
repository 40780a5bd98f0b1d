// Transfers whose kernels are ordered by events between the ranks, on devices that do their work late. Between the
// rounds nothing waits for a device: kernels of the user write new values right after finish().
#include <aloni/halo/transfer.hpp>

#include "support/late_device.hpp"
#include "support/transport.hpp"

#include <gmock/gmock.h>
#include <halo/test_tensor.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::halo {
namespace test_event_order {

using namespace testing_support;
using aloni::test::LateDevice;

/// Where tensors lie: in the host memory that ranks share, in their device memory, or where only their owner reaches
/// them. There the sender packs into memory that ranks share.
enum class In { shared, device, own };

const TransferOptions always_direct{.direct_bytes = 0, .consolidate_below = 0};

class EventOrders : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::is_same_v<Memory, Kokkos::HostSpace>) GTEST_SKIP() << "the late device is one of the host";
    if (!aloni::test::transport_options().shared_memory) GTEST_SKIP() << "needs ranks that share memory";
  }
  void use(LateDevice::Options options) {
    options.seed = options.seed * 100 + static_cast<std::uint64_t>(rank_) + 1;
    device_ = std::make_shared<LateDevice>(options);
    comm::detail::set_device(comm_, device_);
  }

  comm::Communicator comm_ = aloni::test::make_communicator();
  const int rank_ = comm_.rank(), ranks_ = comm_.size();
  std::shared_ptr<LateDevice> device_;
  Queue<Exec> queue_;
};

// A periodic row of cells, split over the ranks. The halo is wider than a block: ranks read from several others.
class Row {
 public:
  Row(const comm::Communicator& comm, In in) : comm_(comm), box_(needed(comm.rank())) {
    const auto n = static_cast<std::size_t>(box_.size());
    const auto heap = in == In::shared ? comm.shared_memory() : in == In::device ? comm.device_memory() : nullptr;
    if (heap) {
      memory_ = std::shared_ptr<void>(heap->allocate(n * sizeof(float)),
                                      [heap, n](void* p) { heap->deallocate(p, n * sizeof(float)); });
      data_ = Kokkos::View<float*, Memory>(static_cast<float*>(memory_.get()), n);
    } else {
      data_ = Kokkos::View<float*, Memory>("aloni::test: row", n);
    }
  }

  TransferItem<float, Memory> item() {
    const auto e = views::extents_of(box_).values;
    const auto n = [&](std::size_t i) { return static_cast<std::size_t>(e[i]); };
    const Kokkos::LayoutStride layout(n(0), n(1) * n(2) * n(3) * n(4), n(1), n(2) * n(3) * n(4), n(2), n(3) * n(4),
                                      n(3), n(4), n(4), 1);
    const auto plan = plan_halo(
        dist_, [this](int r) { return needed(r); }, BoundaryConditions::all(Boundary::periodic), comm_.rank());
    return TransferItem<float, Memory>::in_place({views::LocalView<float, Memory>(data_.data(), layout), box_, memory_},
                                                 plan);
  }
  /// Kernels of the user. They run late.
  auto write(int round) {
    return [this, round] {
      each([&](const Cell& c, float& value) { value = own(c) ? static_cast<float>(value_of(c, round)) : -1; });
    };
  }
  /// For the adjoint: each cell, ghosts included, is 1.
  auto write_ones() {
    return [this] { each([](const Cell&, float& value) { value = 1; }); };
  }
  auto save(std::vector<float>& to) {
    return [this, &to] { to.assign(data_.data(), data_.data() + data_.size()); };
  }
  bool holds_round(const std::vector<float>& saved, int round) {
    bool right = true;
    std::size_t i = 0;
    for_each_cell(box_, [&](const Cell& c) {
      Cell from = c;
      from[3] = origin_of(c[3]);
      right = right && saved[i++] == static_cast<float>(value_of(from, round));
    });
    return right;
  }
  /// Whether each own cell is the number of ranks that have it, ghosts included, and each ghost is 0.
  bool holds_counts(const std::vector<float>& saved) {
    bool right = true;
    std::size_t i = 0;
    for_each_cell(box_, [&](const Cell& c) {
      float expected = 0;
      for (int r = 0; r < comm_.size() && own(c); ++r)
        for (Index x = needed(r).lower(Dim::width); x < needed(r).upper(Dim::width); ++x)
          expected += origin_of(x) == c[3] ? 1 : 0;
      right = right && saved[i++] == expected;
    });
    return right;
  }

 private:
  static constexpr Index block = 4, halo = 5, channels = 32;  // 128 bytes in a row: long enough to be read in place

  Index origin_of(Index x) const {
    const Index width = block * comm_.size();
    return (x % width + width) % width;
  }
  Box needed(int r) const {
    Box b = dist_.owned(r);
    b.set(Dim::width, b.lower(Dim::width) - halo, b.upper(Dim::width) + halo);
    return b;
  }
  bool own(const Cell& c) const { return holds(dist_.owned(comm_.rank()), c); }
  template <class F>
  void each(const F& f) {
    std::size_t i = 0;
    for_each_cell(box_, [&](const Cell& c) { f(c, data_(i++)); });
  }

  comm::Communicator comm_;
  Distribution dist_ = Distribution::block(views::make_extents(1, {block * comm_.size()}, channels),
                                           ProcessGrid{{1, 1, 1, comm_.size(), 1}}, comm_.size());
  Box box_;
  Kokkos::View<float*, Memory> data_;
  std::shared_ptr<void> memory_;
};

/// Rounds of a transfer, each behind kernels that write new values. Returns how many were wrong on any rank.
int wrong_rounds(const comm::Communicator& comm, LateDevice& device, const Queue<Exec>& queue, In in, int rounds,
                 const TransferOptions& options) {
  Row row(comm, in);
  const Transfer<> transfer(comm, queue, {row.item()}, options);
  std::vector<std::vector<float>> saved(static_cast<std::size_t>(rounds));
  const auto is_adjoint = [](int round) { return round % 3 == 2; };
  for (int round = 0; round < rounds; ++round) {
    if (is_adjoint(round)) {
      device.submit(nullptr, row.write_ones());
      transfer.run_adjoint(queue);
    } else {
      device.submit(nullptr, row.write(round));
      transfer.run(queue);
    }
    device.submit(nullptr, row.save(saved[static_cast<std::size_t>(round)]));
  }
  device.synchronise();
  comm.barrier();
  std::int64_t wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto& values = saved[static_cast<std::size_t>(round)];
    wrong += (is_adjoint(round) ? row.holds_counts(values) : row.holds_round(values, round)) ? 0 : 1;
  }
  return static_cast<int>(comm.all_reduce(wrong, comm::Reduction::sum));
}

TEST_F(EventOrders, GiveEveryRoundItsValues) {
  for (const In in : {In::shared, In::device, In::own}) {
    for (const bool poison : {false, true}) {
      use({.seed = poison ? 1u : 2u});
      TransferOptions options = always_direct;
      options.poison = poison;
      EXPECT_EQ(wrong_rounds(comm_, *device_, queue_, in, 12, options), 0) << static_cast<int>(in);
    }
  }
}

TEST_F(EventOrders, ServeTransfersBesideMessages) {
  use({});
  TransferOptions messages = always_direct;
  messages.direct_bytes = ~std::size_t{0};
  EXPECT_EQ(wrong_rounds(comm_, *device_, queue_, In::shared, 6, messages), 0);
  messages.consolidate_below = ~std::size_t{0};
  EXPECT_EQ(wrong_rounds(comm_, *device_, queue_, In::shared, 6, messages), 0);
}

TEST_F(EventOrders, NeedBothEvents) {
  if (ranks_ < 2 || comm_.ranks_by_node().size() > 1)
    GTEST_SKIP() << "needs two ranks; for other nodes the host waits for all kernels";
  for (const In in : {In::shared, In::own}) {
    for (const int ignored : {0, 1}) {
      use({.longest_delay = std::chrono::microseconds(rank_ == 0 ? 4000 : 0), .ignored_event = ignored});
      EXPECT_GT(wrong_rounds(comm_, *device_, queue_, in, 12, always_direct), 0)
          << static_cast<int>(in) << " without event " << ignored;
    }
  }
}

TEST_F(EventOrders, LetHostsGoOnBeforeKernelsHaveRun) {
  if (comm_.ranks_by_node().size() > 1) GTEST_SKIP() << "hosts wait for values that they send to other nodes";
  use({.longest_delay = std::chrono::microseconds(0)});
  Row row(comm_, In::shared);
  const Transfer<> transfer(comm_, queue_, {row.item()}, always_direct);
  std::atomic<bool> may_run{false};
  device_->submit(nullptr, [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!may_run && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  device_->submit(nullptr, row.write(1));
  for (int round = 0; round < 5; ++round) {
    transfer.run(queue_);
    transfer.run_adjoint(queue_);
    device_->submit(nullptr, row.write(1));
  }
  transfer.run(queue_);
  EXPECT_EQ(device_->kernels(), 0) << "a host has waited for its kernels";
  comm_.barrier();
  may_run = true;
  std::vector<float> saved;
  device_->submit(nullptr, row.save(saved));
  device_->synchronise();
  EXPECT_TRUE(row.holds_round(saved, 1));
  comm_.barrier();
}

TEST_F(EventOrders, AreAgreedOnByEachPairOfRanks) {
  const bool none_here = rank_ == ranks_ - 1;
  for (const bool opens : {false, true}) {  // the last rank cannot open events, or has none
    use({.shares_events = !none_here || !opens, .opens_events = !none_here || opens});
    {
      Row row(comm_, In::shared);
      const Transfer<> transfer(comm_, queue_, {row.item()}, always_direct);
      for (const PeerTransfer& p : transfer.peers()) {
        const bool copied = p.path == Path::view_to_view || p.path == Path::packed_shared;
        EXPECT_EQ(p.by_events, copied && !none_here && p.rank != ranks_ - 1);
      }
      const std::string text = transfer.explain();
      if (ranks_ > 1 && none_here) {
        EXPECT_THAT(text, testing::Not(testing::HasSubstr("ordered by events")));
      } else if (ranks_ > 2 && comm_.ranks_by_node().size() == 1) {
        EXPECT_THAT(text, testing::HasSubstr("copied from View to View, ordered by events"));
        EXPECT_THAT(text, testing::HasSubstr("copied from View to View, ordered by the hosts"));
      }
    }
    EXPECT_EQ(wrong_rounds(comm_, *device_, queue_, In::shared, 12, always_direct), 0);
  }
}

// Transfers share the events of the pool; several of them are in flight, and ranks start them in different orders.
TEST_F(EventOrders, ServeManyTransfersAtOnce) {
  use({.seed = 3});
  constexpr int transfers = 34, rounds = 2;  // more than the pool has pairs of events for
  std::vector<std::unique_ptr<Row>> rows;
  std::vector<Transfer<>> all;
  for (int t = 0; t < transfers; ++t) {
    rows.push_back(std::make_unique<Row>(comm_, t % 2 == 0 ? In::shared : In::own));
    all.emplace_back(comm_, queue_, std::vector<AnyTransferItem<Memory>>{rows.back()->item()}, always_direct);
  }
  std::vector<std::vector<float>> saved(static_cast<std::size_t>(transfers * rounds));
  Random order(static_cast<unsigned>(rank_));
  for (int round = 0; round < rounds; ++round) {
    std::vector<int> turn(transfers);
    std::iota(turn.begin(), turn.end(), 0);
    for (std::size_t i = turn.size(); i-- > 1;)
      std::swap(turn[i], turn[static_cast<std::size_t>(order(0, static_cast<int>(i)))]);
    std::vector<Pending> pending(transfers);
    for (const int t : turn) {
      device_->submit(nullptr, rows[static_cast<std::size_t>(t)]->write(transfers * round + t));
      pending[static_cast<std::size_t>(t)] = all[static_cast<std::size_t>(t)].start(queue_);
    }
    for (int t = 0; t < transfers; ++t) {
      const auto i = static_cast<std::size_t>(t);
      pending[i].finish();
      device_->submit(nullptr, rows[i]->save(saved[static_cast<std::size_t>(transfers * round + t)]));
    }
  }
  device_->synchronise();
  comm_.barrier();
  for (int t = 0; t < transfers; ++t)
    for (int round = 0; round < rounds; ++round)
      EXPECT_TRUE(rows[static_cast<std::size_t>(t)]->holds_round(saved[static_cast<std::size_t>(transfers * round + t)],
                                                                 transfers * round + t))
          << "transfer " << t << ", round " << round;
}

}  // namespace test_event_order
}  // namespace aloni::halo
