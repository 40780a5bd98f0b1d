// Device memory that ranks share. On a device made of host memory, which counts memory that its owner frees while
// another process has it open.
#include <aloni/core/comm/device/device_heap.hpp>

#include "support/late_device.hpp"
#include "support/transport.hpp"

#include <aloni/core/error.hpp>

#include <gmock/gmock.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace test_device_heap {

using namespace aloni::comm;
using aloni::test::LateDevice;
using detail::DeviceHeap;
using testing::HasSubstr;

constexpr std::size_t MiB = std::size_t{1} << 20;

class DeviceHeaps : public testing::Test {
 protected:
  DeviceHeaps() { detail::set_device(comm, device); }

  static bool shares_memory() { return aloni::test::transport_options().shared_memory; }

  Communicator comm = aloni::test::make_communicator();
  const int rank = comm.rank(), size = comm.size();
  std::shared_ptr<LateDevice> device = std::make_shared<LateDevice>(
      LateDevice::Options{.seed = static_cast<std::uint64_t>(comm.rank()), .memory = 256 * MiB});
};

TEST_F(DeviceHeaps, PutSmallBlocksIntoOneSegmentAndLargeOnesIntoTheirOwn) {
  DeviceHeap heap(device, std::make_shared<SharedHeap>());
  void* const a = heap.allocate(1, 64);
  void* const b = heap.allocate(1000, 64);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b) - reinterpret_cast<std::uintptr_t>(a), DeviceHeap::alignment);
  EXPECT_EQ(device->bytes(), DeviceHeap::segment_bytes);
  void* const large = heap.allocate(17 * MiB + 1, 64);
  EXPECT_EQ(device->bytes(), DeviceHeap::segment_bytes + 18 * MiB);
  heap.deallocate(large, 17 * MiB + 1, 64);
  EXPECT_EQ(device->bytes(), DeviceHeap::segment_bytes);
  heap.deallocate(a, 1, 64);
  EXPECT_EQ(heap.allocate(200, 64), a) << "the freed block is used again";
  heap.deallocate(a, 200, 64);
  heap.deallocate(b, 1000, 64);
  EXPECT_EQ(device->bytes(), DeviceHeap::segment_bytes) << "one empty segment stays";
}

TEST_F(DeviceHeaps, JoinFreedNeighbours) {
  DeviceHeap heap(device, std::make_shared<SharedHeap>());
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(heap.allocate(8 * MiB, 64));
  for (const int i : {1, 3, 2, 0}) heap.deallocate(blocks[static_cast<std::size_t>(i)], 8 * MiB, 64);
  EXPECT_EQ(heap.allocate(16 * MiB, 64), blocks.front());
  EXPECT_EQ(heap.allocate(16 * MiB, 64), blocks[2]);
  EXPECT_EQ(device->bytes(), DeviceHeap::segment_bytes);
  for (const int i : {0, 2}) heap.deallocate(blocks[static_cast<std::size_t>(i)], 16 * MiB, 64);
}

TEST_F(DeviceHeaps, RefuseImpossibleRequests) {
  DeviceHeap heap(device, std::make_shared<SharedHeap>());
  const volatile std::size_t too_many = ~std::size_t{0};  // volatile: compilers warn of the constant
  EXPECT_THROW((void)heap.allocate(too_many, 64), aloni::InvalidArgument);
  EXPECT_THROW((void)heap.allocate(1, 512), aloni::InvalidArgument);
  EXPECT_THROW((void)heap.allocate(300 * MiB, 64), aloni::CommunicationError);
}

TEST_F(DeviceHeaps, ExistOnlyWhereAnotherRankCanOpenThem) {
  EXPECT_EQ(comm.device_memory() != nullptr, size > 1 && shares_memory() && comm.node().size() > 1);
  detail::set_device(comm, nullptr);
  EXPECT_EQ(comm.device_memory(), nullptr);
}

// These tests need another rank of the node.
class SharedDeviceMemory : public DeviceHeaps {
 protected:
  void SetUp() override {
    if (!heap || node.size() < 2) GTEST_SKIP() << "needs a second rank on the node that shares memory";
  }

  Communicator node = comm.node();
  std::shared_ptr<std::pmr::memory_resource> heap = comm.device_memory();

  /// Memory of the first rank of the node, opened by the others.
  std::shared_ptr<std::byte> open_from_first(const void* data, std::size_t bytes) {
    ExposedMemory where;
    for (int peer = 1; peer < node.size(); ++peer) {
      if (node.rank() == 0) where = node.expose(data, bytes, peer);
      if (node.rank() == 0) node.wait(node.send(std::span(&where, 1), peer, 0));
      if (node.rank() == peer) node.wait(node.receive(std::span(&where, 1), 0, 0));
    }
    return node.rank() == 0 ? nullptr : node.open(0, where, bytes);
  }
};

TEST_F(SharedDeviceMemory, IsFreedOnlyAfterTheLastReaderHasClosedIt) {
  const std::size_t bytes = 20 * MiB;
  std::byte* data = nullptr;
  if (node.rank() == 0) {
    data = static_cast<std::byte*>(heap->allocate(bytes));
    data[bytes - 1] = std::byte{42};
  }
  auto opened = open_from_first(data, bytes);
  if (node.rank() != 0) {
    ASSERT_NE(opened, nullptr);
    EXPECT_EQ(opened.get()[bytes - 1], std::byte{42});
  }
  node.barrier();
  if (node.rank() == 0) {
    heap->deallocate(data, bytes);
    EXPECT_EQ(device->bytes(), bytes) << "the others have it open";
    EXPECT_EQ(heap->allocate(bytes - MiB), data) << "its owner uses it for other memory";
    heap->deallocate(data, bytes - MiB);
  }
  node.barrier();
  for (int last = 1; last < node.size(); ++last) {  // one reader after the other
    if (node.rank() == last) opened = nullptr;
    node.barrier();
    if (node.rank() == 0) {
      void* const other = heap->allocate(1000);
      heap->deallocate(other, 1000);
      EXPECT_EQ(device->bytes(), last + 1 < node.size() ? bytes : 0) << "the segment of 20 MiB serves small blocks too";
    }
    node.barrier();
  }
  EXPECT_EQ(device->freed_while_open(), 0);
}

TEST_F(SharedDeviceMemory, CannotBeOpenedAfterItsEnd) {
  const std::size_t bytes = 20 * MiB;
  ExposedMemory where;
  if (node.rank() == 0) {
    void* const data = heap->allocate(bytes);
    where = node.expose(data, bytes, 1);
    EXPECT_EQ(where.kind, ExposedMemory::Kind::device);
    heap->deallocate(data, bytes);
    EXPECT_EQ(device->bytes(), 0);
    void* const next = heap->allocate(bytes);  // has the same word, with another generation
    node.wait(node.send(std::span(&where, 1), 1, 0));
    node.barrier();
    heap->deallocate(next, bytes);
    return;
  }
  if (node.rank() == 1) {
    node.wait(node.receive(std::span(&where, 1), 0, 0));
    EXPECT_EQ(node.open(0, where, bytes), nullptr);
  }
  node.barrier();
}

TEST_F(SharedDeviceMemory, IsNamedInTheErrorOfAFullDevice) {
  const std::size_t bytes = 200 * MiB;
  void* const data = node.rank() == 0 ? heap->allocate(bytes) : nullptr;
  const auto opened = open_from_first(data, bytes);
  node.barrier();
  if (node.rank() == 0) {
    heap->deallocate(data, bytes);
    try {
      (void)heap->allocate(bytes + MiB);
      FAIL();
    } catch (const aloni::CommunicationError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(bytes) + " bytes are free here, but open on other ranks"));
    }
  }
  node.barrier();
}

// All ranks take, free, expose, open and close without waiting for each other. No order of these may free memory that
// is open elsewhere; and in the end all of it is free.
TEST_F(SharedDeviceMemory, MayBeReleasedInAnyOrder) {
  struct Block {
    void* data;
    std::size_t bytes;
  };
  device = std::make_shared<LateDevice>(LateDevice::Options{.memory = 4096 * MiB});
  detail::set_device(comm, device);
  heap = comm.device_memory();
  std::mt19937 random(static_cast<unsigned>(100 + rank));
  const auto pick = [&](std::size_t n) { return random() % n; };
  std::vector<Block> blocks;
  std::vector<std::shared_ptr<std::byte>> opened;
  std::vector<Request> sends;
  std::vector<std::unique_ptr<ExposedMemory>> sent;
  const int next = (node.rank() + 1) % node.size(), before = (node.rank() + node.size() - 1) % node.size();
  ExposedMemory received;
  Request receive;
  // The first block stays until its reader has it open: of the later ones, a busy machine may open none in time.
  blocks.push_back({heap->allocate(MiB), MiB});
  ExposedMemory first = node.expose(blocks[0].data, MiB, next);
  Request telling = node.send(std::span(&first, 1), next, 0);
  node.wait(node.receive(std::span(&received, 1), before, 0));
  opened.push_back(node.open(before, received, 1));
  EXPECT_NE(opened[0], nullptr);
  node.wait(telling);
  node.barrier();
  constexpr int messages = 60;
  int heard = 0, told = 0;
  const auto listen = [&] {
    if (heard == messages) return;
    if (!receive.pending) receive = node.receive(std::span(&received, 1), before, 0);
    if (!node.test(receive)) return;
    ++heard;
    if (auto p = node.open(before, received, 1)) opened.push_back(std::move(p));  // else freed in the meantime
  };
  while (heard < messages || told < messages) {
    switch (pick(5)) {
      case 0: {
        const std::size_t bytes = (pick(2) == 0 ? 1 : 17 + pick(4)) * MiB;
        if (blocks.size() < 5) blocks.push_back({heap->allocate(bytes), bytes});
        break;
      }
      case 1: {
        if (blocks.empty()) break;
        const std::size_t i = pick(blocks.size());
        heap->deallocate(blocks[i].data, blocks[i].bytes);
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
      case 2: {
        if (blocks.empty() || told == messages) break;
        const Block& block = blocks[pick(blocks.size())];
        sent.push_back(std::make_unique<ExposedMemory>(node.expose(block.data, block.bytes, next)));
        sends.push_back(node.send(std::span(sent.back().get(), 1), next, 0));
        ++told;
        break;
      }
      case 3:
        if (!opened.empty()) opened.erase(opened.begin() + static_cast<std::ptrdiff_t>(pick(opened.size())));
        break;
      default:
        listen();
    }
    if (pick(20) == 0) std::this_thread::sleep_for(std::chrono::microseconds(pick(500)));
  }
  node.wait(sends);
  for (const Block& block : blocks) heap->deallocate(block.data, block.bytes);
  opened.clear();
  node.barrier();
  void* const small = heap->allocate(1);  // looks for what the last readers have closed
  heap->deallocate(small, 1);
  EXPECT_LE(device->bytes(), DeviceHeap::segment_bytes);
  EXPECT_EQ(device->freed_while_open(), 0);
}

TEST_F(SharedDeviceMemory, OfAHeapThatHasEndedIsFreedByALaterOne) {
  const std::size_t bytes = 20 * MiB;
  const auto words = std::dynamic_pointer_cast<SharedHeap>(comm.shared_memory());
  auto ending = std::make_unique<DeviceHeap>(device, words);
  void* data = ending->allocate(bytes, 64);
  const auto address = ending->address_of(data, bytes);
  ASSERT_TRUE(address.has_value());
  // This process in place of another one that has it open.
  const auto mapping = PeerMemory(getpid()).open(address->users, sizeof(detail::SegmentUsers));
  auto& word = detail::SegmentUsers::at(mapping.get());
  ASSERT_TRUE(word.enter(address->generation));
  ending->deallocate(data, bytes, 64);
  ending.reset();
  EXPECT_EQ(device->bytes(), bytes);
  word.leave();
  DeviceHeap later(device, words);
  later.deallocate(later.allocate(1, 64), 1, 64);
  EXPECT_EQ(device->bytes(), DeviceHeap::segment_bytes);
}

TEST_F(DeviceHeaps, StayAfterAFailure) {
  const Communicator node = comm.node();
  const auto heap = comm.device_memory();
  const std::size_t bytes = 20 * MiB;
  void* const data = heap ? heap->allocate(bytes) : nullptr;
  if (rank != 0) comm.wait(comm.send(std::span<const std::byte>(), 0, 1));
  for (int r = 1; rank == 0 && r < size; ++r) comm.wait(comm.receive(std::span<std::byte>(), r, 1));
  if (rank == 0) comm.poison("a failure of the test");                // all have left the calls above
  EXPECT_THROW(while (true) comm.check_poison(), aloni::PeerFailed);  // on every rank
  if (!heap || node.size() < 2) return;
  EXPECT_FALSE(node.expose(data, bytes, (node.rank() + 1) % node.size()).reachable());
  heap->deallocate(data, bytes);
  EXPECT_EQ(device->bytes(), bytes) << "other ranks may have it open, and nobody can know";
}

}  // namespace test_device_heap
