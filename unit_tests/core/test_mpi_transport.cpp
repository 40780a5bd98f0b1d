// Two ranks; each plays both sides.
#include <aloni/core/comm/detail/mpi_transport.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

namespace {

std::atomic<long> allocations{0};

}  // namespace

// Not inlined: gcc would complain that free() meets memory of new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using aloni::comm::Request;
using aloni::comm::detail::MpiTransport;

class MpiTransportTest : public testing::Test {
 protected:
  void SetUp() override {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    int size = 0;
    MPI_Comm_size(comm_, &size);
    if (size != 2) GTEST_SKIP() << "needs two ranks";
    peer_ = 1 - rank_;
  }
  void TearDown() override { MPI_Comm_free(&comm_); }

  static void finish(MpiTransport& transport, Request request) {
    while (!transport.test(request)) std::this_thread::yield();
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, peer_ = 0;
};

TEST_F(MpiTransportTest, MessagesOfOneTagKeepTheirOrder) {
  MpiTransport transport(comm_, "mpi", {});
  constexpr int count = 200;
  std::array<int, count> sent, received{};
  std::iota(sent.begin(), sent.end(), 1000 * rank_);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) requests.push_back(transport.receive(&received[i], sizeof(int), peer_, 5));
  for (int i = 0; i < count; ++i) requests.push_back(transport.send(&sent[i], sizeof(int), peer_, 5));
  // The requests may be completed in any order.
  for (auto i = requests.rbegin(); i != requests.rend(); ++i) finish(transport, *i);
  for (int i = 0; i < count; ++i) EXPECT_EQ(received[i], 1000 * peer_ + i);
}

TEST_F(MpiTransportTest, TagsKeepMessagesApart) {
  MpiTransport transport(comm_, "mpi", {});
  const int first = 10 * rank_ + 1, second = 10 * rank_ + 2;
  int a = 0, b = 0;
  const std::array sends{transport.send(&first, sizeof first, peer_, 1),
                         transport.send(&second, sizeof second, peer_, 2)};
  finish(transport, transport.receive(&b, sizeof b, peer_, 2));
  finish(transport, transport.receive(&a, sizeof a, peer_, 1));
  for (const Request request : sends) finish(transport, request);
  EXPECT_EQ(a, 10 * peer_ + 1);
  EXPECT_EQ(b, 10 * peer_ + 2);
}

// Sizes around multiples of the limit, several of them under way at once.
TEST_F(MpiTransportTest, LongMessagesTravelInParts) {
  MpiTransport transport(comm_, "mpi", {});
  constexpr std::array<std::size_t, 9> sizes{0, 1, 6, 7, 8, 13, 14, 15, 1000};
  transport.set_max_message_bytes(7);
  std::vector<std::vector<unsigned char>> sent, received;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sent.emplace_back(sizes[i]);
    received.emplace_back(sizes[i]);
    for (std::size_t k = 0; k < sizes[i]; ++k) sent[i][k] = static_cast<unsigned char>(31 * k + 7 * i + 100 * rank_);
  }
  std::vector<Request> requests;
  for (auto& data : received) requests.push_back(transport.receive(data.data(), data.size(), peer_, 0));
  for (auto& data : sent) requests.push_back(transport.send(data.data(), data.size(), peer_, 0));
  for (const Request request : requests) finish(transport, request);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::size_t k = 0; k < sizes[i]; ++k) {
      ASSERT_EQ(received[i][k], static_cast<unsigned char>(31 * k + 7 * i + 100 * peer_))
          << "message " << i << " byte " << k;
    }
  }
  EXPECT_EQ(transport.counters().messages_sent, sizes.size());
  EXPECT_EQ(transport.counters().bytes_sent, 1064u);
  EXPECT_EQ(transport.counters().messages_received, sizes.size());
  EXPECT_EQ(transport.counters().bytes_received, 1064u);
}

// Also those whose parts all fit, so that only the number of parts tells.
TEST_F(MpiTransportTest, AnyOtherSizeIsAnErrorOfTheReceiver) {
  constexpr std::size_t limit = 8;
  for (const std::size_t sent : {0, 1, 7, 8, 9, 16, 24}) {
    for (const std::size_t expected : {0, 1, 7, 8, 9, 16, 24}) {
      if (sent == expected) continue;
      MPI_Comm comm;  // left-over parts must not meet the next pair
      MPI_Comm_dup(comm_, &comm);
      MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
      {
        MpiTransport transport(comm, "mpi", {4, 6});
        transport.set_max_message_bytes(limit);
        std::array<std::byte, 32> out{}, in{};
        Request receive = transport.receive(in.data(), expected, peer_, 3);
        const Request send = transport.send(out.data(), sent, peer_, 3);
        try {
          finish(transport, receive);
          ADD_FAILURE() << sent << " bytes were taken for " << expected;
        } catch (const aloni::CommunicationError& error) {
          const std::string text = error.what();
          EXPECT_NE(text.find("rank " + std::to_string(peer_)), std::string::npos) << text;
          EXPECT_NE(text.find("tag 3"), std::string::npos) << text;
          EXPECT_NE(text.find("bytes: expected"), std::string::npos) << text;
        }
        finish(transport, send);
        MPI_Barrier(comm);
      }
      MPI_Comm_free(&comm);
    }
  }
}

TEST_F(MpiTransportTest, ErrorsNameTheRankOfTheRootCommunicatorToo) {
  const std::vector root_ranks{4, 6};
  MpiTransport transport(comm_, "mpi", root_ranks);
  int value = 0;
  const Request send = transport.send(&value, 2, peer_, 0);
  Request receive = transport.receive(&value, 4, peer_, 0);
  try {
    finish(transport, receive);
    ADD_FAILURE();
  } catch (const aloni::CommunicationError& error) {
    EXPECT_EQ(error.argument(), "message from rank " + std::to_string(peer_) + " (rank " +
                                    std::to_string(root_ranks[static_cast<std::size_t>(peer_)]) +
                                    " of the root communicator), tag 0");
    EXPECT_EQ(error.value(), "2 bytes");
    EXPECT_EQ(error.expectation(), "4 bytes");
  }
  finish(transport, send);
}

TEST_F(MpiTransportTest, ARepeatedPatternAllocatesNothing) {
  MpiTransport transport(comm_, "mpi", {});
  transport.set_max_message_bytes(1000);
  std::vector<std::byte> in(4 * 2500), out(in.size());
  std::array<Request, 8> requests;
  const auto step = [&] {
    for (int i = 0; i < 4; ++i) {
      requests[i] = transport.receive(in.data() + 2500 * i, 2500, peer_, i);
      requests[4 + i] = transport.send(out.data() + 2500 * i, 2500, peer_, i);
    }
    for (const Request request : requests) finish(transport, request);
  };
  step();
  const long before = allocations;
  for (int repetition = 0; repetition < 10; ++repetition) step();
  EXPECT_EQ(allocations - before, 0);
}

TEST_F(MpiTransportTest, ARepeatedCollectiveAllocatesNothing) {
  const auto comm = aloni::comm::from_mpi(comm_);
  std::vector<float> small(10), large(100'000);
  const auto step = [&] {
    comm.all_reduce(std::span(small), aloni::comm::Reduction::sum);
    comm.all_reduce(std::span(large), aloni::comm::Reduction::sum);
    comm.broadcast(std::as_writable_bytes(std::span(large)), 1);
    comm.barrier();
  };
  step();
  const long before = allocations;
  for (int repetition = 0; repetition < 10; ++repetition) step();
  EXPECT_EQ(allocations - before, 0);
}

TEST_F(MpiTransportTest, CancelledReceivesGiveTheirBuffersBack) {
  MpiTransport transport(comm_, "mpi", {});
  int value = -1;
  const int sent = 5;
  (void)transport.receive(&value, sizeof value, peer_, 1);
  transport.cancel_receives();
  MPI_Barrier(comm_);
  const Request send = transport.send(&sent, sizeof sent, peer_, 1);
  int second = 0;
  finish(transport, transport.receive(&second, sizeof second, peer_, 1));
  finish(transport, send);
  EXPECT_EQ(second, 5);
  EXPECT_EQ(value, -1);
}

}  // namespace
