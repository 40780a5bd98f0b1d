// Tiles between real ranks: worker threads run random task graphs and a Cholesky graph. The values are those of a
// serial run. Then errors of tasks, and of wrong events.
#include "support/transport.hpp"
#include "tasks/mail_traffic.hpp"
#include "tasks/tile_task.hpp"

#include <support/random_cases.hpp>

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tasks/detail/tile_mail.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <condition_variable>
#include <cstring>
#include <iterator>
#include <map>
#include <memory_resource>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace test_tile_mail {

using namespace aloni::tasks;
using aloni::comm::Communicator;
using aloni::tasks::detail::TileMail;
using aloni::tasks::detail::TileMemory;
using aloni::test::TileTask;
using testing::HasSubstr;

/// Bytes of a tile; equal on all ranks. The first eight are its value.
std::size_t bytes_of(TileKey key) {
  constexpr std::size_t sizes[] = {8, 100, 4096, 4104, 20'000, 200'000};
  return sizes[(key * 0x9e3779b97f4a7c15u >> 40) % std::size(sizes)];
}

/// The tasks of one rank, run by worker threads as their tiles arrive.
class RankTasks final : public TileMemory {
 public:
  RankTasks(const Communicator& comm, const std::vector<TileTask>& tasks, std::uint64_t seed, int most_clients,
            bool in_shared_memory)
      : tasks_(tasks),
        rank_(comm.rank()),
        memory_(in_shared_memory ? comm.shared_memory() : nullptr),
        resource_(memory_ ? memory_.get() : std::pmr::new_delete_resource()),
        random_(seed + static_cast<std::uint64_t>(rank_)),
        mail_(comm, *this, {.most_clients = most_clients}) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      owner_[tasks[i].writes] = tasks[i].rank;
      for (const TileKey key : tasks[i].reads) {
        if (tasks[i].rank == rank_) {
          readers_[key].push_back(i);
          if (owner_.at(key) != rank_) ++uses_[key];
        } else if (owner_.at(key) == rank_) {
          clients_[key].insert(tasks[i].rank);
        }
      }
      if (tasks[i].rank != rank_) continue;
      missing_[i] = tasks[i].reads.size();
      if (missing_[i] == 0) ready_.push_back(i);
    }
    needs_ = uses_.size();
  }

  /// Collective. Throws what run() throws.
  void run(int workers) {
    std::vector<std::thread> threads;
    for (const auto& [key, uses] : uses_) mail_.need(key, owner_.at(key));
    if (missing_.empty()) mail_.tasks_finished();
    working_ = workers;
    for (int i = 0; i < workers; ++i) threads.emplace_back([this] { work(); });
    const auto join = [&] {
      {
        const std::lock_guard lock(mutex_);
        ended_ = true;
      }
      wake_.notify_all();
      for (std::thread& t : threads) t.join();
    };
    try {
      mail_.run();
    } catch (...) {
      join();
      throw;
    }
    join();
  }

  void check(const std::vector<std::uint64_t>& expected) const {
    for (const auto& [task, value] : values_) EXPECT_EQ(value, expected[task]) << "task " << task;
    EXPECT_EQ(values_.size(), missing_.size());
    EXPECT_EQ(copies_, 0u) << "copies that were not freed";
    EXPECT_EQ(served_, missing_.size());
    EXPECT_EQ(mail_.counts().requests, needs_);
    EXPECT_EQ(mail_.counts().copies, needs_);
    EXPECT_EQ(mail_.counts().freed, needs_);
  }
  /// Copies of tiles that are too long for a mail.
  std::uint64_t long_copies() const {
    return static_cast<std::uint64_t>(std::ranges::count_if(
        uses_, [](const auto& use) { return bytes_of(use.first) > aloni::comm::Mailbox::inline_bytes; }));
  }
  std::uint64_t tiles_in_place() const { return mail_.place_counts().tiles_in_place; }
  std::uint64_t payloads() const { return mail_.counts().payloads; }

  TileKey fails_to_write = ~TileKey{0};  ///< the task that writes it fails

 private:
  using Bytes = std::pmr::vector<std::byte>;

  // Called by the communication thread.
  std::span<std::byte> room(TileKey key, std::size_t bytes) override {
    EXPECT_EQ(bytes, bytes_of(key));
    const std::lock_guard lock(mutex_);
    return tiles_.emplace(key, Bytes(bytes, resource_)).first->second;
  }
  void arrived(TileKey key, std::span<const std::byte> data) override {
    std::uint64_t value = 0;
    std::memcpy(&value, data.data(), sizeof value);
    for (std::size_t i = sizeof value; i < data.size(); ++i)
      ASSERT_EQ(data[i], static_cast<std::byte>(value * i >> 3)) << "byte " << i << " of tile " << key;
    const std::lock_guard lock(mutex_);
    ++copies_;
    here_[key] = data;
    value_of_copy_[key] = value;
    release(key);
  }
  void free_copy(TileKey key) override {
    const std::lock_guard lock(mutex_);
    --copies_;
    EXPECT_EQ(uses_.at(key), 0);
    // A rank that frees a tile must not read it any more. Its owner still has it, unchanged.
    std::uint64_t value = 0;
    std::memcpy(&value, here_.at(key).data(), sizeof value);
    EXPECT_EQ(value, value_of_copy_.at(key));
    here_.erase(key);
    tiles_.erase(key);
  }
  /// No other rank reads the tile: a copy of its old value would show up as a wrong value.
  void served(TileKey key) override {
    const std::lock_guard lock(mutex_);
    ++served_;
    if (readers_[key].empty()) std::ranges::fill(tiles_.at(key), std::byte{0xff});
  }

  void failed() override {
    {
      const std::lock_guard lock(mutex_);
      failed_ = ended_ = true;
    }
    wake_.notify_all();
  }

  /// A tile is here. @pre mutex_ is held
  void release(TileKey key) {
    for (const std::size_t task : readers_[key])
      if (--missing_[task] == 0) ready_.push_back(task);
    wake_.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return ended_ || !ready_.empty(); });
      if (ended_) {
        if (--working_ == 0 && failed_) mail_.tasks_finished();
        return;
      }
      const std::size_t i = random_() % ready_.size();
      const std::size_t task = std::exchange(ready_[i], ready_.back());
      ready_.pop_back();
      run_task(task, lock);
    }
  }

  void run_task(std::size_t task, std::unique_lock<std::mutex>& lock) {
    const TileTask& t = tasks_[task];
    if (t.writes == fails_to_write) {
      return mail_.fail(
          std::make_exception_ptr(std::runtime_error("task " + std::to_string(task) + " failed on purpose")));
    }
    std::vector<std::uint64_t> read;
    for (const TileKey key : t.reads) std::memcpy(&read.emplace_back(), here_.at(key).data(), 8);
    const std::set<int>& clients = clients_[t.writes];
    lock.unlock();
    const std::uint64_t value = aloni::test::value_of(task, read);
    Bytes bytes(bytes_of(t.writes), resource_);
    std::memcpy(bytes.data(), &value, sizeof value);
    for (std::size_t i = sizeof value; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value * i >> 3);
    lock.lock();
    values_[task] = value;
    Bytes& written = tiles_.emplace(t.writes, std::move(bytes)).first->second;
    here_[t.writes] = written;
    mail_.produced(t.writes, written, std::vector<int>(clients.begin(), clients.end()));
    for (const TileKey key : t.reads)
      if (owner_.at(key) != rank_ && --uses_.at(key) == 0) mail_.released(key);
    release(t.writes);
    if (values_.size() == missing_.size()) mail_.tasks_finished();
    mail_.set_waiting(ready_.empty());
  }

  const std::vector<TileTask>& tasks_;
  int rank_;
  std::shared_ptr<std::pmr::memory_resource> memory_;
  std::pmr::memory_resource* resource_;
  std::map<TileKey, int> owner_;
  std::size_t needs_ = 0, copies_ = 0, served_ = 0;
  std::mutex mutex_;  // guards all that follows
  std::condition_variable wake_;
  std::mt19937_64 random_;
  std::map<TileKey, std::vector<std::size_t>> readers_;  // tasks of this rank
  std::map<TileKey, int> uses_;                          // copies: tasks of this rank that have not read them
  std::map<TileKey, std::set<int>> clients_;             // other ranks that read an own tile
  std::map<std::size_t, std::size_t> missing_;           // own tasks: tiles that are not here
  std::vector<std::size_t> ready_;
  std::map<TileKey, Bytes> tiles_;                      // in memory of this rank
  std::map<TileKey, std::span<const std::byte>> here_;  // that tasks may read
  std::map<TileKey, std::uint64_t> value_of_copy_;
  std::map<std::size_t, std::uint64_t> values_;
  int working_ = 0;  // threads
  bool ended_ = false, failed_ = false;
  TileMail mail_;
};

/// Of a rank that neither writes nor reads tiles.
struct Nothing final : TileMemory {
  std::span<std::byte> room(TileKey, std::size_t) override { return {}; }
  void arrived(TileKey, std::span<const std::byte>) override {}
  void free_copy(TileKey) override {}
  void served(TileKey) override {}
  void failed() override {}
};

class TileMails : public testing::Test {
 protected:
  Communicator comm = aloni::test::make_communicator();
  const int rank = comm.rank(), size = comm.size();

  /// Collective.
  void run(const std::vector<TileTask>& tasks, std::uint64_t seed, int most_clients, bool in_shared_memory) {
    RankTasks rank_tasks(comm, tasks, seed, most_clients, in_shared_memory);
    rank_tasks.run(2);
    rank_tasks.check(aloni::test::serial_values(tasks));
    std::set<std::pair<TileKey, int>> compulsory;  // each tile once per rank that reads it
    std::map<TileKey, int> owner;
    for (const TileTask& t : tasks) {
      owner[t.writes] = t.rank;
      for (const TileKey key : t.reads)
        if (owner.at(key) != t.rank) compulsory.insert({key, t.rank});
    }
    const double payloads = comm.all_reduce(static_cast<double>(rank_tasks.payloads()), aloni::comm::Reduction::sum);
    EXPECT_EQ(payloads, static_cast<double>(compulsory.size()));
    EXPECT_EQ(aloni::test::messages_left(comm), 0);
    if (!in_shared_memory || !reaches_all()) return;
    EXPECT_EQ(rank_tasks.tiles_in_place(), rank_tasks.long_copies());
  }

  /// Whether all ranks share memory.
  bool reaches_all() const {
    const std::pmr::vector<std::byte> memory(1, comm.shared_memory().get());
    for (int r = 0; r < size; ++r)
      if (r != rank && !comm.expose(memory.data(), 1, r).reachable()) return false;
    return true;
  }
};

TEST_F(TileMails, TasksOfRandomGraphsReadTheRightValues) {
  const int graphs = aloni::test::random_cases(12);
  for (int seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(static_cast<std::uint64_t>(seed));
    const auto tasks = aloni::test::random_tasks(random, size, 100);
    run(tasks, random(), seed % 3 == 0 ? 0 : TileRequests::any_number, seed % 2 == 0);
  }
}

TEST_F(TileMails, RanksOfANodeReadInPlaceOnlyWhatLiesInSharedMemory) {
  if (size == 1) GTEST_SKIP() << "one rank";
  // All other ranks read both tiles of rank 0. The keys have 200'000 bytes, and 8 bytes.
  TileKey long_key = 0, short_key = 0;
  while (bytes_of(long_key) != 200'000) ++long_key;
  while (bytes_of(short_key) != 8) ++short_key;
  std::vector<TileTask> tasks{{.rank = 0, .reads = {}, .writes = long_key},
                              {.rank = 0, .reads = {}, .writes = short_key}};
  for (int r = 1; r < size; ++r)
    tasks.push_back({.rank = r, .reads = {long_key, short_key}, .writes = 1000 + static_cast<TileKey>(r)});
  for (const bool in_shared_memory : {false, true}) {
    RankTasks rank_tasks(comm, tasks, 1, TileRequests::any_number, in_shared_memory);
    rank_tasks.run(1);
    rank_tasks.check(aloni::test::serial_values(tasks));
    const bool in_place = in_shared_memory && reaches_all() && rank != 0;
    if (in_shared_memory && !reaches_all()) continue;  // only the ranks of a node read in place
    EXPECT_EQ(rank_tasks.tiles_in_place(), in_place ? 1u : 0u);
  }
}

TEST_F(TileMails, ACholeskyGraphReadsTheRightValues) {
  int rows = 1;
  while (size % (rows * 2) == 0 && rows * rows * 2 <= size) rows *= 2;
  run(aloni::test::cholesky_tasks(8, rows, size / rows), 3, TileRequests::any_number, true);
}

/// The task that fails has no predecessor, and other tasks run before it, at the same time and after it.
TEST_F(TileMails, AFailedTaskEndsTheRunOnAllRanksWithItsText) {
  for (const std::uint64_t seed : {5u, 6u, 7u, 8u}) {  // the communicator stays usable
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    auto tasks = aloni::test::random_tasks(random, size, 100);
    const TileKey never_written = 1'000'000;
    tasks.push_back({.rank = size - 1, .reads = {}, .writes = never_written});
    for (int r = 0; r < size - 1; ++r)  // all ranks wait for its tile
      tasks.push_back({.rank = r, .reads = {never_written}, .writes = 2'000'000u + static_cast<unsigned>(r)});
    std::string text;
    {
      RankTasks rank_tasks(comm, tasks, seed, TileRequests::any_number, seed % 2 == 0);
      rank_tasks.fails_to_write = never_written;
      try {
        rank_tasks.run(1);
        ADD_FAILURE() << "rank " << rank << " returned";
      } catch (const aloni::PeerFailed& error) {
        EXPECT_NE(rank, size - 1);
        EXPECT_EQ(error.rank(), size - 1);
        text = error.what();
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(rank, size - 1);
        text = error.what();
      }
    }
    EXPECT_THAT(text, HasSubstr("failed on purpose"));
    EXPECT_EQ(aloni::test::messages_left(comm), 0);
  }
}

/// All ranks fail at once, before any of them knows of the others.
TEST_F(TileMails, TheFailureOfTheLowestRankIsThrownOnAllRanks) {
  for (int first = 0; first < size; ++first) {
    SCOPED_TRACE("ranks " + std::to_string(first) + " and above fail");
    Nothing nothing;
    TileMail mail(comm, nothing);
    const auto error = [](int r) {
      return aloni::FactorisationError("operation", "tile " + std::to_string(r), "pivot -1", "more");
    };
    if (rank >= first) {
      mail.fail(std::make_exception_ptr(error(rank)));
    } else {
      mail.tasks_finished();
    }
    try {
      mail.run();
      ADD_FAILURE() << "rank " << rank << " returned";
    } catch (const aloni::FactorisationError& e) {
      EXPECT_EQ(e.argument(), "tile " + std::to_string(first));
      EXPECT_EQ(e.value(), "pivot -1 on rank " + std::to_string(first));
    }
    EXPECT_EQ(aloni::test::messages_left(comm), 0);
  }
}

TEST_F(TileMails, AWrongEventEndsTheRunOnAllRanks) {
  Nothing nothing;
  TileMail mail(comm, nothing);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    mail.need(7, 0);  // its own tile
    EXPECT_THROW(mail.run(), aloni::InvalidArgument);
  } else {
    mail.need(7, 0);
    EXPECT_THROW(mail.run(), aloni::PeerFailed);
  }
}

}  // namespace test_tile_mail
