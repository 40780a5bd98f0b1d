// Events between ranks, on devices that do their work late: readers see the values of their turn, and owners overwrite
// them only after all have read. Without one of the waits, a number is wrong.
#include <aloni/core/comm/shared_events.hpp>

#include "support/late_device.hpp"
#include "support/late_library.hpp"
#include "support/transport.hpp"

#include <aloni/core/comm/device/device_sharing.hpp>
#include <aloni/core/comm/device_links.hpp>
#include <aloni/core/comm/view_all_reduce.hpp>
#include <aloni/core/error.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace test_shared_events {

using namespace aloni::comm;
using aloni::Queue;
using aloni::test::LateDevice;
using detail::DeviceEvent;
using HostExec = Kokkos::DefaultHostExecutionSpace;

class EventsOfRanks : public testing::Test {
 protected:
  void use(LateDevice::Options options) {
    options.seed = options.seed * 100 + static_cast<std::uint64_t>(rank) + 1;
    device = std::make_shared<LateDevice>(options);
    detail::set_device(comm, device);
  }
  bool on_one_node() const { return comm.ranks_by_node().size() == 1; }
  static bool shares_memory() { return aloni::test::transport_options().shared_memory; }

  Communicator comm = aloni::test::make_communicator();
  const int rank = comm.rank(), size = comm.size();
  std::shared_ptr<LateDevice> device;
};

/// One value of each rank, which the next rank reads, in turns. Which of the waits happen.
struct Turns {
  bool await_ready = true, await_read = true;
  std::chrono::microseconds write{0}, read{0};  ///< how long the kernels of this rank take
};

/// How many turns read a wrong value.
int wrong_turns(const Communicator& comm, const SharedEvents& events, LateDevice& device, const Turns& turns,
                int count) {
  const int next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + comm.size() - 1) % comm.size();
  const auto heap = comm.shared_memory();
  auto* const mine = static_cast<std::int64_t*>(heap->allocate(sizeof(std::int64_t)));
  *mine = -1;
  DeviceEvent *const ready = events.next(), *const read = events.next();
  struct Offer {
    ExposedMemory value;
    ExposedEvent event;
  };
  Offer to_next{comm.expose(mine, sizeof *mine, next), events.expose(ready, next)}, from_before;
  ExposedEvent read_of_this = events.expose(read, before), read_of_next;
  Request requests[] = {comm.receive(std::span(&from_before, 1), before, 0), comm.send(std::span(&to_next, 1), next, 0),
                        comm.receive(std::span(&read_of_next, 1), next, 1),
                        comm.send(std::span(&read_of_this, 1), before, 1)};
  comm.wait(requests);
  const auto opened = comm.open(before, from_before.value, sizeof(std::int64_t));
  const auto* const theirs = reinterpret_cast<const std::int64_t*>(opened.get());
  DeviceEvent *const ready_there = events.open(from_before.event), *const read_there = events.open(read_of_next);
  std::vector<std::int64_t> seen(static_cast<std::size_t>(count), -2);
  for (int turn = 0; turn < count; ++turn) {
    device.submit(nullptr, [=] {
      std::this_thread::sleep_for(turns.write);
      *static_cast<volatile std::int64_t*>(mine) = turn;
    });
    ready->record(nullptr);
    const std::span<std::byte> none;
    Request written[] = {comm.receive(none, before, 2), comm.send(std::span<const std::byte>(), next, 2)};
    comm.wait(written);
    if (turns.await_ready) ready_there->await(nullptr);
    device.submit(nullptr, [=, &seen] {
      std::this_thread::sleep_for(turns.read);
      seen[static_cast<std::size_t>(turn)] = *static_cast<const volatile std::int64_t*>(theirs);
    });
    read->record(nullptr);
    Request has_read[] = {comm.receive(none, next, 3), comm.send(std::span<const std::byte>(), before, 3)};
    comm.wait(has_read);
    if (turns.await_read) read_there->await(nullptr);
  }
  events.wait(nullptr);
  comm.barrier();
  heap->deallocate(mine, sizeof *mine);
  int wrong = 0;
  for (int turn = 0; turn < count; ++turn) wrong += seen[static_cast<std::size_t>(turn)] == turn ? 0 : 1;
  return static_cast<int>(comm.all_reduce(std::int64_t{wrong}, Reduction::sum));
}

TEST_F(EventsOfRanks, OrderKernelsOfTwoRanksInEveryTurn) {
  if (size < 2 || !on_one_node() || !shares_memory()) GTEST_SKIP() << "needs two ranks of a node";
  for (const std::uint64_t seed : {1u, 2u}) {
    use({.seed = seed});
    const SharedEvents events(comm);
    ASSERT_TRUE(events);
    // More pairs of events than the pool has: the same events serve again.
    for (int pairs = 0; pairs < 40; ++pairs) EXPECT_EQ(wrong_turns(comm, events, *device, {}, 10), 0);
  }
}

TEST_F(EventsOfRanks, AreNeededBothBeforeReadingAndBeforeWriting) {
  if (size < 2 || !on_one_node() || !shares_memory()) GTEST_SKIP() << "needs two ranks of a node";
  use({.longest_delay = std::chrono::microseconds(0)});
  const SharedEvents events(comm);
  const auto slow = std::chrono::milliseconds(10);
  EXPECT_EQ(wrong_turns(comm, events, *device, {.write = rank == 0 ? slow : slow / 10}, 5), 0);
  EXPECT_GT(wrong_turns(comm, events, *device, {.await_ready = false, .write = rank == 0 ? slow : slow / 10}, 5), 0);
  EXPECT_EQ(wrong_turns(comm, events, *device, {.read = rank == 0 ? slow : slow / 10}, 5), 0);
  EXPECT_GT(wrong_turns(comm, events, *device, {.await_read = false, .read = rank == 0 ? slow : slow / 10}, 5), 0);
}

TEST_F(EventsOfRanks, ExistOnlyWithinANodeAndWithADevice) {
  constexpr bool build_has_device = !std::is_same_v<Kokkos::DefaultExecutionSpace, HostExec>;
  EXPECT_EQ(static_cast<bool>(SharedEvents(comm)), build_has_device);
  use({});
  const SharedEvents events(comm);
  const auto* const event = events.next();
  ASSERT_NE(event, nullptr);
  for (const auto& node : comm.ranks_by_node()) {
    const bool mine = std::ranges::find(node, rank) != node.end();
    for (const int peer : node) EXPECT_EQ(events.expose(event, peer).exists, mine ? 1u : 0u);
  }
  EXPECT_EQ(events.expose(nullptr, rank).exists, 0u);
  EXPECT_EQ(events.open({}), nullptr);
}

TEST_F(EventsOfRanks, ComeFromAPoolOfLimitedSize) {
  use({});
  const SharedEvents events(comm);
  std::vector<const DeviceEvent*> all;
  for (std::size_t i = 0; i < 3 * detail::DeviceSharing::max_events; ++i) all.push_back(events.next());
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i], all[i % detail::DeviceSharing::max_events]) << "each is used as often as the others";
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::unique(all).begin() - all.begin(),
            static_cast<std::ptrdiff_t>(detail::DeviceSharing::max_events));
  use({.shares_events = false});
  EXPECT_EQ(SharedEvents(comm).next(), nullptr);
}

TEST_F(EventsOfRanks, OfAFailedRankDoNotHoldUpTheOthers) {
  if (size < 2 || !on_one_node() || !shares_memory()) GTEST_SKIP() << "needs two ranks of a node";
  use({});
  const SharedEvents events(comm);
  DeviceEvent* const event = events.next();
  ExposedEvent exposed = events.expose(event, 1);
  if (rank == 0) {
    device->submit(nullptr, [] { std::this_thread::sleep_for(std::chrono::milliseconds(500)); });
    event->record(nullptr);
    comm.wait(comm.send(std::span(&exposed, 1), 1, 0));
    comm.wait(comm.receive(std::span<std::byte>(), 1, 1));
    comm.poison("a failure of the test");
  } else if (rank == 1) {
    comm.wait(comm.receive(std::span(&exposed, 1), 0, 0));
    events.open(exposed)->await(nullptr);
    comm.wait(comm.send(std::span<const std::byte>(), 0, 1));
    EXPECT_THROW(events.wait(nullptr), aloni::PeerFailed);
  } else {
    EXPECT_THROW(while (true) comm.check_poison(), aloni::PeerFailed);  // every rank must know of it
  }
}

TEST_F(EventsOfRanks, AndALibraryServeDevicesOfDifferentNodes) {
  use({});
  detail::set_device_collectives(comm, aloni::test::LateLibrary::make(comm, device, {}));
  const DeviceLinks links = describe_devices(comm);
  for (const auto& node : comm.ranks_by_node()) {
    for (int from = 0; from < size; ++from) {
      const bool near = std::ranges::find(node, from) != node.end();
      for (const int to : node) {
        if (from == to) continue;
        EXPECT_EQ(links.way(from, to), !near             ? DeviceWay::groups_from_device
                                       : shares_memory() ? DeviceWay::copies_by_events
                                                         : DeviceWay::messages_from_host)
            << from << " to " << to;
      }
    }
  }
}

TEST_F(EventsOfRanks, AndMemoryGiveTheWaysBetweenDevices) {
  const int last = size - 1;
  use({.shares_memory = rank != 0, .shares_events = rank != last});
  const DeviceLinks links = describe_devices(comm);
  ASSERT_EQ(links.devices.size(), static_cast<std::size_t>(size));
  EXPECT_EQ(links.devices[static_cast<std::size_t>(rank)], device->description());
  const auto node_of = [&](int r) {
    for (const auto& node : comm.ranks_by_node())
      if (std::ranges::find(node, r) != node.end()) return node.front();
    return -1;
  };
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (from == to) continue;
      const bool opened = shares_memory() && node_of(from) == node_of(to) && from != 0;
      EXPECT_EQ(links.way(from, to), !opened                      ? DeviceWay::messages_from_host
                                     : from == last || to == last ? DeviceWay::copies_by_hosts
                                                                  : DeviceWay::copies_by_events)
          << from << " to " << to;
    }
  }
  if (size == 4 && shares_memory() && comm.ranks_by_node().size() == 1) {
    const std::vector<std::pair<DeviceWay, int>> expected{
        {DeviceWay::copies_by_events, 1}, {DeviceWay::copies_by_hosts, 2}, {DeviceWay::messages_from_host, 3}};
    EXPECT_EQ(links.pairs(), expected);
  }
  EXPECT_EQ(name(DeviceWay::copies_by_events), "copied, ordered by events");
  EXPECT_EQ(name(DeviceWay::groups_from_device), "grouped messages of the device library");
}

class DirectViewAllReduces : public EventsOfRanks {
 protected:
  /// How many of `turns` sums are wrong on any rank, when nothing waits for the device between them.
  int wrong_sums(int turns, bool by_events) {
    constexpr std::size_t count = 1000;
    using View = Kokkos::View<double*, Kokkos::HostSpace>;
    const auto heap = comm.shared_memory();
    const std::shared_ptr<void> memory(heap->allocate(count * sizeof(double)),
                                       [heap](void* p) { heap->deallocate(p, count * sizeof(double)); });
    const View data(static_cast<double*>(memory.get()), count);
    Kokkos::deep_copy(data, -1.0);
    const Queue<HostExec> queue;
    const ViewAllReduce<double, HostExec> reduce(comm, queue, data);
    EXPECT_EQ(reduce.way(), ViewAllReduceWay::direct);
    EXPECT_EQ(reduce.by_events(), by_events);
    std::vector<std::vector<double>> seen(static_cast<std::size_t>(turns));
    for (int turn = 0; turn < turns; ++turn) {
      device->submit(nullptr, [=, this] {
        for (std::size_t i = 0; i < count; ++i) data(i) = value(rank, i, turn);
      });
      reduce.run(queue);
      device->submit(nullptr,
                     [=, &seen] { seen[static_cast<std::size_t>(turn)].assign(data.data(), data.data() + count); });
    }
    device->synchronise();
    comm.barrier();
    int wrong = 0;
    for (int turn = 0; turn < turns; ++turn) {
      bool right = true;
      for (std::size_t i = 0; i < count; ++i) {
        double sum = 0;
        for (int r = 0; r < size; ++r) sum += value(r, i, turn);
        right = right && seen[static_cast<std::size_t>(turn)][i] == sum;
      }
      wrong += right ? 0 : 1;
    }
    return static_cast<int>(comm.all_reduce(std::int64_t{wrong}, Reduction::sum));
  }
  static double value(int r, std::size_t i, int turn) {
    return static_cast<double>((i * 7 + static_cast<std::size_t>(r) * 13 + static_cast<std::size_t>(turn) * 31) % 101);
  }
};

TEST_F(DirectViewAllReduces, AreOrderedByEventsWithoutTheHost) {
  if (size < 2 || !on_one_node() || !shares_memory()) GTEST_SKIP() << "needs two ranks of a node";
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    use({.seed = seed});
    EXPECT_EQ(wrong_sums(20, true), 0);
  }
}

/// On a busy machine the other ranks may be late too. Then longer delays of rank 0 show the missing event.
TEST_F(DirectViewAllReduces, NeedBothEvents) {
  if (size < 2 || !on_one_node() || !shares_memory()) GTEST_SKIP() << "needs two ranks of a node";
  for (const int ignored : {0, 1}) {
    int wrong = 0;
    for (int delay = 4000; wrong == 0 && delay <= 64'000; delay *= 2) {
      use({.longest_delay = std::chrono::microseconds(rank == 0 ? delay : 0), .ignored_event = ignored});
      wrong = wrong_sums(10, true);
    }
    EXPECT_GT(wrong, 0) << "event " << ignored;
  }
}

TEST_F(DirectViewAllReduces, AreOrderedByTheHostsIfOneRankHasNoEvents) {
  if (size < 2 || !on_one_node() || !shares_memory()) GTEST_SKIP() << "needs two ranks of a node";
  use({.shares_events = rank != size - 1});
  EXPECT_EQ(wrong_sums(10, false), 0);
}

}  // namespace test_shared_events
