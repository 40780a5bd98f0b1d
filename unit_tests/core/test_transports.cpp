// Tests the guarantees of every transport, each with two ranks (self: with one).
#include <aloni/core/comm/faulty_transport.hpp>
#include <aloni/core/comm/shared_heap.hpp>
#include <aloni/core/comm/transport/mpi_transport.hpp>
#include <aloni/core/comm/transport/self_transport.hpp>
#include <aloni/core/comm/transport/shared_transport.hpp>
#include <aloni/core/comm/transport/ucx_transport.hpp>
#include <aloni/core/config.hpp>

#include <gtest/gtest.h>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

std::atomic<long> allocations{0};

}  // namespace

// Not inlined: otherwise gcc warns about free() of memory from new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using namespace aloni::comm;
using namespace aloni::comm::detail;

/// At least `bytes` bytes of the payload of a message. Copied and compared as a whole, since loops over bytes take long
/// under sanitizers.
const std::byte* payload_of(std::size_t message, int from, std::size_t bytes) {
  static const std::vector<std::byte> counted = [] {
    std::vector<std::byte> values(1'000'001 + 256);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::byte>(i);
    return values;
  }();
  const std::size_t first = (13 * message + 101 * static_cast<std::size_t>(from)) % 256;
  if (first + bytes > counted.size()) throw std::length_error("payload_of");
  return counted.data() + first;
}

class Receiver final : public Transport::Sink {
 public:
  explicit Receiver(Transport& transport) : transport_(transport) {}

  void arrived(const Transport::Fragment& f) override {
    Message& m = messages[f.header.operation];
    m.header = f.header;
    m.peer = f.peer;
    m.payload.resize(f.header.bytes);
    if (f.header.bytes == 0 || f.data) {
      if (f.header.bytes > 0) std::memcpy(m.payload.data(), f.data, f.header.bytes);
      if (f.stays) transport_.release(f);
      ++m.complete;
    } else {
      transport_.fetch(f, m.payload.data(), f.header.operation);
    }
  }
  void sent(std::uint32_t ticket) override { ++freed[ticket]; }
  void fetched(std::uint32_t ticket) override { ++messages[ticket].complete; }

  struct Message {
    Header header;
    int peer = -1, complete = 0;
    std::vector<std::byte> payload;
  };
  std::map<std::uint32_t, Message> messages;
  std::map<std::uint32_t, int> freed;

 private:
  Transport& transport_;
};

class Transports : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    int size = 0;
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size);
    ASSERT_EQ(size, 2);
    peer_ = GetParam() == "self" ? rank_ : 1 - rank_;
    if (GetParam() == "self") transport_ = std::make_unique<SelfTransport>();
    const std::string name = GetParam().substr(GetParam().find('_') + 1);
    if (name == "mpi") transport_ = std::make_unique<MpiTransport>(comm_);
    const auto all_gather = [this](std::span<const std::byte> mine) {
      std::vector<std::byte> all(2 * mine.size());
      const int bytes = static_cast<int>(mine.size());
      MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, comm_);
      return all;
    };
    if constexpr (aloni::config::has_ucx) {
      if (name == "ucx")
        transport_ = make_ucx_transport(rank_, std::array{1 - rank_}, all_gather, [this](const auto& progress) {
          MPI_Request request;
          MPI_Ibarrier(comm_, &request);
          for (int here = 0; MPI_Test(&request, &here, MPI_STATUS_IGNORE), !here;) progress();
        });
    }
    if (name == "shared") {
      auto shared = std::make_unique<SharedTransport>(heap_, rank_, std::vector{0, 1}, all_gather);
      ASSERT_TRUE(shared->reaches(1 - rank_)) << "/proc of the other rank cannot be opened";
      transport_ = std::move(shared);
    }
    if (name != GetParam()) {
      inner_ = std::move(transport_);
      const Faults harmless{.seed = static_cast<std::uint64_t>(rank_), .delay = 0.3, .no_room = 0.2};
      transport_ = std::make_unique<FaultyTransport>(*inner_, harmless);
    }
  }
  void TearDown() override {
    MPI_Barrier(comm_);
    transport_.reset();
    inner_.reset();
    MPI_Comm_free(&comm_);
  }

  /// Sends messages of these sizes to the peer and receives the peer's messages.
  void exchange(const std::vector<std::size_t>& sizes, std::pmr::memory_resource& memory) {
    Receiver receiver(*transport_);
    std::deque<std::pmr::vector<std::byte>> outgoing;
    std::size_t next = 0, free_at_once = 0;
    const auto done = [&] {
      return next == sizes.size() && receiver.messages.size() == sizes.size() &&
             receiver.freed.size() + free_at_once == sizes.size() &&
             std::ranges::all_of(receiver.messages, [](const auto& m) { return m.second.complete == 1; });
    };
    while (!done() || !transport_->flushed()) {
      while (next < sizes.size()) {
        if (outgoing.size() == next) {
          auto& data = outgoing.emplace_back(sizes[next], &memory);
          std::copy_n(payload_of(next, rank_, data.size()), data.size(), data.data());
        }
        const Header header{.context = 7,
                            .operation = static_cast<std::uint32_t>(next),
                            .bytes = static_cast<std::uint32_t>(sizes[next])};
        const auto result = transport_->send(peer_, header, outgoing[next].data(), static_cast<std::uint32_t>(next));
        if (result == Transport::Sent::no_room) break;
        if (result == Transport::Sent::copied) {
          ++free_at_once;
          std::ranges::fill(outgoing[next], std::byte{0xee});
        }
        ++next;
      }
      transport_->poll(receiver);
    }
    for (const auto& [number, message] : receiver.messages) {
      ASSERT_EQ(message.header.context, 7u);
      ASSERT_EQ(message.peer, peer_);
      ASSERT_EQ(message.payload.size(), sizes[number]);
      const auto* const expected = payload_of(number, peer_, sizes[number]);
      ASSERT_TRUE(sizes[number] == 0 || std::memcmp(message.payload.data(), expected, sizes[number]) == 0)
          << "message " << number << ", byte "
          << std::ranges::mismatch(message.payload, std::span(expected, sizes[number])).in1 - message.payload.begin();
    }
    for (const auto& [ticket, times] : receiver.freed) EXPECT_EQ(times, 1) << ticket;
    MPI_Barrier(comm_);
  }

  SharedHeap heap_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, peer_ = 0;
  std::unique_ptr<Transport> inner_, transport_;  // inner_: the transport inside a FaultyTransport
};

TEST_P(Transports, EverySizeArrivesOnceAndComplete) {
  std::vector<std::size_t> sizes;
  for (const std::size_t threshold : {0u, 16u, 200u, 4048u, 4096u, 16'384u, 131'072u}) {
    for (std::size_t size : {threshold - 1, threshold, threshold + 1}) {
      if (size <= 131'072) sizes.push_back(size);
    }
  }
  exchange(sizes, *std::pmr::new_delete_resource());
  sizes.push_back(1'000'001);
  exchange(sizes, heap_);
}

TEST_P(Transports, AFloodOfMessagesWaitsForRoom) {
  exchange(std::vector<std::size_t>(1000, 8), *std::pmr::new_delete_resource());
  exchange(std::vector<std::size_t>(300, 10'000), *std::pmr::new_delete_resource());
  exchange(std::vector<std::size_t>(300, 100'000), heap_);
}

TEST_P(Transports, AllocateNothingForARepeatedPattern) {
  struct Discard final : Transport::Sink {
    Transport& transport;
    int arrivals = 0, freed = 0, pending = 0;
    std::vector<std::byte> memory = std::vector<std::byte>(100'000);
    explicit Discard(Transport& t) : transport(t) {}
    void arrived(const Transport::Fragment& f) override {
      if (f.data || f.header.bytes == 0) {
        if (f.stays) transport.release(f);
        ++arrivals;
      } else {
        transport.fetch(f, memory.data(), 0);
      }
    }
    void sent(std::uint32_t) override { ++freed; }
    void fetched(std::uint32_t) override { ++arrivals; }
  } sink(*transport_);
  const std::vector<std::byte> data(100'000);
  int rounds = 0;  // the peer may be one round ahead
  const auto round = [&] {
    ++rounds;
    for (const std::uint32_t bytes : {8u, 3000u, 100'000u}) {
      Transport::Sent result;
      while ((result = transport_->send(peer_, Header{.bytes = bytes}, data.data(), 0)) == Transport::Sent::no_room)
        transport_->poll(sink);
      sink.pending += result == Transport::Sent::pending;
    }
    while (sink.arrivals < 3 * rounds || sink.freed < sink.pending) transport_->poll(sink);
  };
  for (int i = 0; i < 100; ++i) round();
  // MPI also allocates, but rarely. An allocation of the transport would show in every round.
  const long before = allocations;
  for (int i = 0; i < 100; ++i) round();
  EXPECT_LT(allocations - before, 50);
  while (!transport_->flushed()) transport_->poll(sink);
}

std::vector<std::string> transports() {
  std::vector<std::string> names{"self", "shared", "mpi", "faulty_shared", "faulty_mpi"};
  if (aloni::config::has_ucx) names.insert(names.end(), {"ucx", "faulty_ucx"});
  return names;
}

INSTANTIATE_TEST_SUITE_P(Each, Transports, testing::ValuesIn(transports()),
                         [](const auto& info) { return info.param; });

}  // namespace
