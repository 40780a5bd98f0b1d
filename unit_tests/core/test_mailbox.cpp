// Mails: random traffic of all ranks, sizes at the borders of all ways, late receives, errors and failures.
#include "support/transport.hpp"

#include <support/random_cases.hpp>

#include <aloni/core/comm/mailbox.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace test_mailbox {

using namespace aloni::comm;
using namespace std::chrono_literals;
using aloni::CommunicationError;
using aloni::InvalidArgument;
using aloni::PeerFailed;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

class Mailboxes : public testing::Test {
 protected:
  Communicator comm = aloni::test::make_communicator();
  const int rank = comm.rank(), size = comm.size();

  /// Makes progress until done() is true on this rank, and then until all mails of this rank have left.
  static void run_until(Mailbox& mailbox, const std::function<bool()>& done) {
    while (!done())
      if (!mailbox.progress(true)) std::this_thread::yield();
    mailbox.wait();
  }

  /// All ranks call `f`; each throws an error that is a CommunicationError or names a rank. Returns this rank's text.
  std::string expect_all_to_throw(const std::function<void()>& f) {
    std::string text;
    bool found = false;
    MPI_Barrier(MPI_COMM_WORLD);  // all ranks have their mailboxes
    try {
      f();
      ADD_FAILURE() << "rank " << rank << " returned";
    } catch (const CommunicationError& error) {
      found = true;
      text = error.what();
    } catch (const PeerFailed& error) {
      text = error.what();
    }
    MPI_Allreduce(MPI_IN_PLACE, &found, 1, MPI_CXX_BOOL, MPI_LOR, MPI_COMM_WORLD);
    EXPECT_TRUE(found) << "no rank has found the error";
    return text;
  }
};

/// A mail, as its sender and its receiver draw it from the same seed.
struct Letter {
  int to = 0, kind = 0;
  std::size_t head = 0, data = 0;
  std::uint64_t number = 0;

  std::byte byte(std::size_t i) const { return static_cast<std::byte>(number * 31 + i * 7 + i / 256); }
};

std::vector<Letter> letters_of(int source, int size, std::uint64_t seed, int count, std::size_t largest) {
  std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(source));
  const std::size_t borders[] = {0, 1, Mailbox::inline_bytes, Mailbox::inline_bytes + 1, 16'385, 131'073, largest};
  std::vector<Letter> letters;
  for (int i = 0; i < count; ++i) {
    Letter l{.to = static_cast<int>(random() % static_cast<std::uint64_t>(size)), .number = random()};
    l.kind = static_cast<int>(random() % 2) * Mailbox::max_kind;
    l.head = 8 + (random() % 50 == 0 ? Mailbox::max_head_bytes - 8 : random() % 300);
    l.data = random() % 3 == 0 ? 0 : random() % 2 == 0 ? borders[random() % 7] : random() % 40'000;
    letters.push_back(l);
  }
  return letters;
}

TEST_F(Mailboxes, DeliverEachMailOnceWithItsBytes) {
  const int count = 60;
  for (const bool in_shared_memory : {false, true}) {
    for (const std::size_t fragment : {std::size_t{1} << 30, std::size_t{1000}}) {
      SCOPED_TRACE(std::string(in_shared_memory ? "in" : "out of") + " shared memory, fragments of " +
                   std::to_string(fragment));
      comm.set_max_message_bytes(fragment);
      const auto memory = comm.shared_memory();
      std::pmr::memory_resource* const resource = in_shared_memory ? memory.get() : std::pmr::new_delete_resource();
      const std::uint64_t seed = fragment + in_shared_memory;
      const std::size_t largest = fragment < 10'000 ? 50'000 : 1'000'000;
      std::map<std::pair<int, std::uint64_t>, Letter> expected;
      for (int source = 0; source < size; ++source) {
        for (const Letter& l : letters_of(source, size, seed, count, largest))
          if (l.to == rank) expected[{source, l.number}] = l;
      }
      Mailbox mailbox(comm, "test");
      std::mt19937_64 random(seed + static_cast<std::uint64_t>(rank));
      std::deque<std::pair<Mail, Letter>> late;
      std::size_t left = expected.size();
      const auto take = [&](const Mail& mail, const Letter& l) {
        auto room = std::make_shared<std::pmr::vector<std::byte>>(mail.data_bytes, resource);
        mailbox.receive(mail, *room, [room, l, &left] {
          for (std::size_t i = 0; i < room->size(); ++i) ASSERT_EQ((*room)[i], l.byte(i)) << "byte " << i;
          --left;
        });
      };
      for (const int kind : {0, Mailbox::max_kind}) {
        mailbox.handle(kind, Mailbox::any_size, [&, kind](const Mail& mail) {
          ASSERT_GE(mail.head.size(), 8u);
          std::uint64_t number = 0;
          std::memcpy(&number, mail.head.data(), 8);
          const auto found = expected.find({mail.source, number});
          ASSERT_NE(found, expected.end()) << "from rank " << mail.source << ", or twice";
          const Letter l = found->second;
          expected.erase(found);
          EXPECT_EQ(mail.kind, kind);
          EXPECT_EQ(l.kind, kind);
          ASSERT_EQ(mail.head.size(), l.head);
          ASSERT_EQ(mail.data_bytes, l.data);
          for (std::size_t i = 8; i < l.head; ++i) ASSERT_EQ(mail.head[i], l.byte(i));
          if (l.data == 0) {
            --left;
          } else if (random() % 2 == 0) {
            take(mail, l);
          } else {
            late.emplace_back(mail, l);  // received after other mails
          }
        });
      }
      int unsent = 0;
      for (const Letter& l : letters_of(rank, size, seed, count, largest)) {
        Bytes head(l.head);
        std::memcpy(head.data(), &l.number, 8);
        for (std::size_t i = 8; i < l.head; ++i) head[i] = l.byte(i);
        auto data = std::make_shared<std::pmr::vector<std::byte>>(l.data, resource);
        for (std::size_t i = 0; i < l.data; ++i) (*data)[i] = l.byte(i);
        ++unsent;
        mailbox.send(l.to, l.kind, head, *data, [data, &unsent] { --unsent; },
                     {.priority = static_cast<int>(random() % 3)});
        if (random() % 4 == 0) mailbox.progress(false);
      }
      run_until(mailbox, [&] {
        if (!late.empty() && random() % 3 == 0) {
          take(late.front().first, late.front().second);
          late.pop_front();
        }
        return left == 0 && unsent == 0;
      });
      EXPECT_TRUE(expected.empty());
      EXPECT_TRUE(mailbox.idle());
    }
  }
}

/// Rank 0 answers; the others ask, with sums of the same communicator and messages with tags in between.
TEST_F(Mailboxes, DoNotMeetOtherTraffic) {
  Mailbox mailbox(comm, "test");
  int asked = 0, answered = 0;
  mailbox.handle(0, sizeof(int), [&](const Mail& mail) {
    ++asked;
    mailbox.send(mail.source, 1, mail.head);
  });
  mailbox.handle(1, sizeof(int), [&](const Mail& mail) {
    EXPECT_EQ(mail.source, 0);
    ++answered;
  });
  constexpr int rounds = 20;
  for (int i = 0; i < rounds; ++i) {
    mailbox.send(0, 0, std::as_bytes(std::span(&i, 1)));
    EXPECT_EQ(comm.all_reduce(1.0, Reduction::sum), size);
    int theirs = -1;
    std::vector<Request> requests{comm.receive(std::span(&theirs, 1), (rank + size - 1) % size, 0),
                                  comm.send(std::span<const int>(&i, 1), (rank + 1) % size, 0)};
    comm.wait(requests);
    EXPECT_EQ(theirs, i);
  }
  run_until(mailbox, [&] { return answered == rounds && (rank > 0 || asked == rounds * size); });
}

/// A rank sends more than the others take at once. Its sends complete only as the receivers take them.
TEST_F(Mailboxes, ASenderRunsAheadOnlyAsFarAsFlowControlAllows) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  Mailbox mailbox(comm, "test");
  constexpr int count = 200;
  constexpr std::size_t bytes = 100'000;  // 20 MB in all
  int got = 0, complete = 0;
  std::vector<Mail> waiting;
  mailbox.handle(3, 0, [&](const Mail& mail) { waiting.push_back(mail); });
  const Bytes data(bytes, std::byte{5});
  Bytes room(bytes);
  bool free = true;
  if (rank == 0) {
    for (int i = 0; i < count; ++i) mailbox.send(1, 3, {}, data, [&] { ++complete; });
    for (int i = 0; i < 1000; ++i) mailbox.progress(false);
    EXPECT_LT(complete, count / 2);
  }
  MPI_Barrier(MPI_COMM_WORLD);  // until then the receiver makes no progress
  run_until(mailbox, [&] {
    if (free && !waiting.empty()) {
      free = false;
      mailbox.receive(waiting.back(), room, [&] {
        EXPECT_EQ(room, data);
        ++got;
        free = true;
      });
      waiting.pop_back();
    }
    return rank == 0 ? complete == count : rank == 1 ? got == count : true;
  });
}

TEST_F(Mailboxes, RefuseWrongArguments) {
  Mailbox mailbox(comm, "test");
  EXPECT_EQ(mailbox.rank(), rank);
  EXPECT_EQ(mailbox.size(), size);
  const Bytes head(Mailbox::max_head_bytes + 1);
  EXPECT_THROW(mailbox.handle(-1, 0, {}), InvalidArgument);
  EXPECT_THROW(mailbox.handle(Mailbox::max_kind + 1, 0, {}), InvalidArgument);
  EXPECT_THROW(mailbox.handle(0, Mailbox::max_head_bytes + 1, {}), InvalidArgument);
  EXPECT_THROW(mailbox.send(size, 0, {}), InvalidArgument);
  EXPECT_THROW(mailbox.send(-1, 0, {}), InvalidArgument);
  EXPECT_THROW(mailbox.send(0, -1, {}), InvalidArgument);
  EXPECT_THROW(mailbox.send(0, 0, head), InvalidArgument);
  EXPECT_THROW(mailbox.send(0, 0, {}, {}, {}, {.on_device = true}), InvalidArgument);
  EXPECT_TRUE(mailbox.idle());
  int got = 0;
  Bytes room(10);
  mailbox.handle(0, 0, [&](const Mail& mail) {
    EXPECT_THROW(mailbox.receive(mail, std::span(room).first(9), {}), InvalidArgument);
    EXPECT_THROW(mailbox.receive(mail, room, {}, {.on_device = true}), InvalidArgument);
    mailbox.receive(mail, room, [&] { ++got; });
    EXPECT_THROW(mailbox.receive(mail, room, {}), InvalidArgument);  // twice
  });
  mailbox.send(rank, 0, {}, Bytes(10));
  run_until(mailbox, [&] { return got == 1; });
  mailbox.check_thread();
}

TEST_F(Mailboxes, AMailWithoutAHandlerIsAnErrorOnAllRanks) {
  Mailbox mailbox(comm, "test");
  if (rank == size - 1) mailbox.handle(9, 0, [](const Mail&) {});
  const std::string text = expect_all_to_throw([&] {
    mailbox.send(0, rank == 0 ? 8 : 9, {});
    run_until(mailbox, [] { return false; });
  });
  EXPECT_THAT(text, HasSubstr("without a handler on this rank"));
}

TEST_F(Mailboxes, AHeadOfAnotherSizeIsAnErrorOnAllRanks) {
  Mailbox mailbox(comm, "test");
  mailbox.handle(2, 16, [](const Mail&) {});
  const std::string text = expect_all_to_throw([&] {
    if (rank == size - 1) mailbox.send(0, 2, Bytes(15));
    run_until(mailbox, [] { return false; });
  });
  EXPECT_THAT(text, HasSubstr("mail of kind 2 from rank " + std::to_string(size - 1)));
  EXPECT_THAT(text, HasSubstr("15 bytes"));
}

TEST_F(Mailboxes, ACommunicationErrorOfAHandlerReachesAllRanks) {
  Mailbox mailbox(comm, "test");
  mailbox.handle(2, 0, [](const Mail&) { throw CommunicationError("test", "a request", "twice", "once"); });
  const std::string text = expect_all_to_throw([&] {
    if (rank == 0) mailbox.send(size - 1, 2, {});
    run_until(mailbox, [] { return false; });
  });
  EXPECT_THAT(text, HasSubstr("a request"));
}

/// The other ranks learn why no more mails come.
TEST_F(Mailboxes, EndingWithPendingMailsPoisonsTheFamily) {
  if (size == 1) GTEST_SKIP() << "needs a second rank";
  Mailbox mailbox(comm, "test");
  mailbox.handle(1, 0, [](const Mail&) {});
  if (rank == 0) {
    const Bytes data(20 << 20, std::byte{});
    {
      Mailbox second(comm, "second");
      second.send(1, 1, {}, data);
    }
    EXPECT_THROW(mailbox.progress(true), PeerFailed);
    return;
  }
  try {
    Mailbox second(comm, "second");
    run_until(mailbox, [] { return false; });
    ADD_FAILURE() << "rank " << rank << " returned";
  } catch (const PeerFailed& error) {
    EXPECT_THAT(error.what(), HasSubstr("have not left"));
    EXPECT_EQ(error.rank(), 0);
  }
}

/// All ranks wait for a mail that none sends.
TEST_F(Mailboxes, WaitingForNothingEndsAfterTheLimit) {
  comm.set_stuck_after(300ms);
  Mailbox mailbox(comm, "test");
  const auto start = std::chrono::steady_clock::now();
  try {
    run_until(mailbox, [] { return false; });
    ADD_FAILURE() << "rank " << rank << " returned";
  } catch (const PeerFailed& error) {
    EXPECT_THAT(error.what(), HasSubstr("no progress"));
    EXPECT_THAT(error.what(), HasSubstr("wait"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

}  // namespace test_mailbox
