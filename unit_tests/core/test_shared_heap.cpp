// The shared heap and the memory of other processes: bounds, reuse, and resources that go back to the system.
#include "support/transport.hpp"

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/shared_heap.hpp>
#include <aloni/core/comm/shared_view.hpp>
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>

#include <support/experiment.hpp>
#include <support/random_cases.hpp>

#include <gmock/gmock.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace test_shared_heap {

using namespace aloni::comm;
using aloni::InvalidArgument;

constexpr std::size_t MiB = std::size_t{1} << 20;

TEST(SharedHeapTest, ReusesFreedMemory) {
  SharedHeap heap;
  void* const a = heap.allocate(1000);
  void* const b = heap.allocate(5 << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % SharedHeap::alignment, 0u);
  EXPECT_GE(heap.address_of(b, 5 << 20).descriptor, 0);
  EXPECT_EQ(heap.address_of(&heap, 8).descriptor, -1);
  std::memset(b, 1, 5 << 20);
  heap.deallocate(b, 5 << 20);
  heap.deallocate(a, 1000);
  EXPECT_EQ(heap.bytes_in_use(), 0u);
  EXPECT_EQ(heap.allocate(60 << 20), a) << "free neighbours must be merged";
}

TEST(SharedHeapTest, DetachedMemoryKeepsItsValuesAndIsPrivate) {
  // UCX replaces functions of the system.
  if (aloni::config::has_ucx)
    (void)from_mpi(MPI_COMM_WORLD, {.shared_memory = false, .messages = MessageTransport::ucx});
  SharedHeap heap;
  auto* const data = static_cast<int*>(heap.allocate(100'000));
  data[0] = 5;
  data[20'000] = 6;
  const SharedAddress where = heap.address_of(data, 100'000);
  PeerMemory other(getpid());
  auto* const seen = reinterpret_cast<int*>(other.at(where, 100'000));
  EXPECT_EQ(seen[20'000], 6);
  heap.detach();
  seen[0] = 99;
  EXPECT_EQ(data[0], 5);
  EXPECT_EQ(data[20'000], 6);
  data[1] = 1;
  EXPECT_EQ(heap.address_of(data, 8).descriptor, -1);
}

TEST(SharedHeapTest, RefusesSizesBeyondItsBound) {
  SharedHeap heap;
  void* const first = heap.allocate(64);
  for (const std::size_t bytes : {~std::size_t{0}, ~std::size_t{0} - 100, ~std::size_t{0} - 4096, std::size_t{1} << 63,
                                  (std::size_t{1} << 63) - 1, (std::size_t{1} << 61) + 1}) {
    EXPECT_THROW((void)heap.allocate(bytes), InvalidArgument) << bytes;
  }
  EXPECT_EQ(heap.bytes_in_use(), 64u);
  EXPECT_EQ(heap.address_of(first, ~std::size_t{0} - 8).descriptor, -1) << "the end of the range overflows";
}

TEST(SharedHeapTest, AlignsAddressesBeyondAPage) {
  SharedHeap heap;
  for (std::size_t align = 64; align <= 128 * MiB; align *= 2) {
    void* const p = heap.allocate(100, align);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % align, 0u) << align;
    EXPECT_GE(heap.address_of(p, 100).descriptor, 0) << align;
  }
}

TEST(SharedHeapTest, BlocksOfRandomSizesAreDisjointOrRefused) {
  SharedHeap heap;
  std::mt19937_64 random(1);
  std::map<std::uintptr_t, std::size_t> blocks;
  std::size_t in_use = 0;
  aloni::test::Experiment experiment("bounds/shared_heap");
  for (int i = 0; i < aloni::test::random_cases(4000); ++i) {
    if (!blocks.empty() && random() % 2 == 0) {
      const auto it = std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size()));
      heap.deallocate(reinterpret_cast<void*>(it->first), it->second);
      in_use -= it->second;
      blocks.erase(it);
      continue;
    }
    const int power = static_cast<int>(random() % 64);
    const std::size_t bytes = (std::size_t{1} << power) + random() % 200 - 100;
    if (bytes > 256 * MiB && bytes <= std::size_t{1} << 61) continue;  // valid, but more than a test should take
    const aloni::test::Experiment::Trial trial(experiment);
    try {
      void* const p = heap.allocate(bytes);
      ASSERT_LE(bytes, 256 * MiB);
      const auto at = reinterpret_cast<std::uintptr_t>(p);
      const auto after = blocks.lower_bound(at);
      ASSERT_TRUE(after == blocks.end() || at + bytes <= after->first) << "block " << i;
      ASSERT_TRUE(after == blocks.begin() || std::prev(after)->first + std::prev(after)->second <= at) << "block " << i;
      ASSERT_GE(heap.address_of(p, bytes).descriptor, 0);
      blocks.emplace(at, bytes);
      in_use += bytes;
    } catch (const InvalidArgument&) {
      ASSERT_GT(bytes, std::size_t{1} << 61);
    }
  }
  EXPECT_GE(heap.bytes_in_use(), in_use);
}

TEST(SharedView, RefusesAnOverflowOfItsBytes) {
  const auto comm = aloni::test::make_communicator();
  const Kokkos::DefaultExecutionSpace exec;
  for (const std::size_t elements : {std::size_t{1} << 62, (std::size_t{1} << 62) + 1, std::size_t{1} << 60}) {
    EXPECT_THROW(allocate_shared<float>(comm, exec, "aloni::test: too large", elements), InvalidArgument) << elements;
  }
}

int num_descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

/// Mappings of shared segments, those of other processes included.
int num_mappings() {
  std::ifstream file("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(file, line);) count += line.find("memfd:aloni") != std::string::npos ? 1 : 0;
  return count;
}

/// A block of the heap whose first and last words hold a number.
struct Block {
  SharedHeap& heap;
  std::size_t bytes;
  std::uint64_t* words;

  Block(SharedHeap& h, std::size_t b, std::uint64_t number)
      : heap(h), bytes(b), words(static_cast<std::uint64_t*>(h.allocate(b))) {
    words[0] = words[bytes / 8 - 1] = number;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { heap.deallocate(words, bytes); }

  /// Whether a process that reads the block through `peer` finds the number.
  bool is_seen_by(PeerMemory& peer, std::uint64_t number) const {
    const auto* const seen = reinterpret_cast<const std::uint64_t*>(peer.at(heap.address_of(words, bytes), bytes));
    return seen[0] == number && seen[bytes / 8 - 1] == number;
  }
};

TEST(SharedHeapTest, ABlockThatGrowsKeepsNoDescriptorsAndMappings) {
  const int descriptors = num_descriptors(), mappings = num_mappings();
  SharedHeap heap;
  PeerMemory peer(getpid());
  std::unique_ptr<Block> block;
  for (std::uint64_t i = 0; i < 60; ++i) {
    auto larger = std::make_unique<Block>(heap, (65 + i) * MiB, i);
    ASSERT_TRUE(larger->is_seen_by(peer, i)) << i;
    ASSERT_TRUE(!block || block->is_seen_by(peer, i - 1)) << i;
    block = std::move(larger);
  }
  EXPECT_LE(num_descriptors(), descriptors + 2);
  EXPECT_LE(num_mappings(), mappings + 8);
}

TEST(SharedHeapTest, ManyLargeBlocksNeedOneDescriptor) {
  const int descriptors = num_descriptors(), mappings = num_mappings();
  {
    SharedHeap heap;
    std::vector<std::unique_ptr<Block>> blocks;
    for (std::uint64_t i = 0; i < 60; ++i) blocks.push_back(std::make_unique<Block>(heap, 65 * MiB, i));
    EXPECT_LE(num_descriptors(), descriptors + 1);
    blocks.clear();
    EXPECT_LE(num_mappings(), mappings + 1) << "one empty segment may stay for the next block";
  }
  EXPECT_EQ(num_descriptors(), descriptors);
  EXPECT_EQ(num_mappings(), mappings);
}

TEST(SharedHeapTest, PeersSeeEachBlockAfterOthersCameAndWent) {
  std::mt19937_64 random(3);
  SharedHeap heap;
  PeerMemory peers[2] = {PeerMemory(getpid()), PeerMemory(getpid())};
  std::map<std::uint64_t, std::unique_ptr<Block>> blocks;
  for (std::uint64_t number = 0; number < static_cast<std::uint64_t>(aloni::test::random_cases(1000)); ++number) {
    if (blocks.size() > random() % 8) {
      blocks.erase(std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size())));
    } else {
      const std::size_t sizes[] = {4096, MiB, 30 * MiB, 64 * MiB, (1 + random() % 200) * MiB};
      blocks.emplace(number, std::make_unique<Block>(heap, sizes[random() % std::size(sizes)], number));
    }
    for (PeerMemory& peer : peers) {
      if (random() % 2 == 0) continue;  // it has not looked for a while
      for (const auto& [expected, block] : blocks) ASSERT_TRUE(block->is_seen_by(peer, expected)) << number;
    }
  }
}

TEST(SharedHeapTest, AChildOfThisProcessHasNoMappings) {
  SharedHeap heap;
  PeerMemory peer(getpid());
  const Block block(heap, 65 * MiB, 1);
  ASSERT_TRUE(block.is_seen_by(peer, 1));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(num_mappings());
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "mappings in the child";
  EXPECT_TRUE(block.is_seen_by(peer, 1));
}

TEST(SharedMemory, OpenedMemoryStaysMappedUntilItIsReleased) {
  const auto comm = aloni::test::make_communicator();
  if (comm.size() < 2) GTEST_SKIP() << "needs two ranks";
  const auto heap = comm.shared_memory();
  const std::size_t bytes = 80 * MiB;
  std::vector<std::shared_ptr<std::byte>> opened;
  for (int i = 0; i < 10; ++i) {
    ExposedMemory where;
    void* data = nullptr;
    if (comm.rank() == 1) {
      data = heap->allocate(bytes);
      static_cast<std::byte*>(data)[0] = static_cast<std::byte>(i + 1);
      where = comm.expose(data, bytes, 0);
      comm.wait(comm.send(std::span(&where, 1), 0, 0));
    } else if (comm.rank() == 0) {
      comm.wait(comm.receive(std::span(&where, 1), 1, 0));
      opened.push_back(comm.open(1, where, bytes));
      ASSERT_NE(opened.back(), nullptr);
      EXPECT_EQ(opened.back().get()[0], static_cast<std::byte>(i + 1));
    }
    comm.barrier();
    if (data) heap->deallocate(data, bytes);
    comm.barrier();
    // The owner has freed the memory: its values are lost, but a late reader does not crash.
    for (const auto& p : opened) (void)*static_cast<volatile const std::byte*>(p.get());
  }
}

TEST(SharedMemory, LargeMessagesFromBlocksThatGrowLeaveNoMappings) {
  const auto comm = aloni::test::make_communicator();
  const int descriptors = num_descriptors(), mappings = num_mappings(), to = (comm.rank() + 1) % comm.size(),
            from = (comm.rank() + comm.size() - 1) % comm.size();
  const auto heap = comm.shared_memory();
  for (int i = 0; i < 20; ++i) {
    const std::size_t bytes = (70 + static_cast<std::size_t>(i)) * MiB;
    std::span out(static_cast<std::byte*>(heap->allocate(bytes)), bytes);
    std::vector<std::byte> in(MiB);
    out[0] = out[MiB - 1] = static_cast<std::byte>(10 * i + comm.rank());
    std::array requests{comm.receive(std::span(in), from, 0), comm.send(out.first(MiB), to, 0)};
    comm.wait(requests);
    EXPECT_EQ(in[0], static_cast<std::byte>(10 * i + from));
    EXPECT_EQ(in[MiB - 1], static_cast<std::byte>(10 * i + from));
    comm.barrier();
    heap->deallocate(out.data(), bytes);
  }
  EXPECT_LE(num_descriptors(), descriptors + 1);
  EXPECT_LE(num_mappings(), mappings + 2 + comm.size());
}

}  // namespace test_shared_heap
