// The texts that ranks of a node publish about their waiting.
#include <aloni/core/comm/liveness/watch.hpp>

#include <support/random_cases.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace test_watch {

using namespace std::chrono_literals;
using aloni::comm::detail::Watch;

/// Ranks as threads of this process.
class Group {
 public:
  explicit Group(std::size_t ranks) : said_(ranks), barrier_(static_cast<std::ptrdiff_t>(ranks)) {}

  aloni::comm::detail::GatherBytes gather(std::size_t rank) {
    return [this, rank](std::span<const std::byte> mine) {
      said_[rank].assign(mine.begin(), mine.end());
      barrier_.arrive_and_wait();
      std::vector<std::byte> all;
      for (const auto& bytes : said_) all.insert(all.end(), bytes.begin(), bytes.end());
      barrier_.arrive_and_wait();
      return all;
    };
  }

 private:
  std::vector<std::vector<std::byte>> said_;
  std::barrier<> barrier_;
};

TEST(Watch, ReadersNeverSeePartsOfTwoTexts) {
  Group pair(2);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    Watch watch(0, {0, 1}, pair.gather(0));
    for (int i = 0; !stop; ++i)
      watch.waiting(Watch::Clock::now(), std::string(40 + i % 7 * 50, static_cast<char>('a' + i % 26)));
  });
  Watch watch(1, {0, 1}, pair.gather(1));
  const std::string waits = "waits for ";
  int texts = 0;
  // On a busy machine the writer may not have run by the last of these readings.
  const auto deadline = Watch::Clock::now() + std::chrono::seconds(10);
  const int readings = aloni::test::random_cases(20'000);
  for (int i = 0; i < readings || (texts == 0 && Watch::Clock::now() < deadline); ++i) {
    const std::string state = watch.state_of(0, Watch::Clock::now());
    if (!state.starts_with(waits) || state.size() == waits.size()) continue;
    const std::string text = state.substr(waits.size());
    ++texts;
    if (text.find_first_not_of(text.front()) != std::string::npos || (text.size() - 40) % 50 != 0) {
      ADD_FAILURE() << text;
      break;
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(texts, 0);
}

/// The watches of all ranks, in one process.
class Watches : public testing::Test {
 protected:
  explicit Watches(int ranks = 2) : group_(static_cast<std::size_t>(ranks)), watches_(static_cast<std::size_t>(ranks)) {
    std::vector<int> all(watches_.size());
    std::iota(all.begin(), all.end(), 0);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < watches_.size(); ++r)
      threads.emplace_back(
          [&, r] { watches_[r] = std::make_unique<Watch>(static_cast<int>(r), all, group_.gather(r)); });
    for (auto& thread : threads) thread.join();
  }
  void SetUp() override {
    if (!watches_[0]->sees(1) || !watches_[1]->sees(0)) GTEST_SKIP() << "needs shared memory";
  }

  Group group_;
  std::vector<std::unique_ptr<Watch>> watches_;
  const Watch::Clock::time_point now_ = Watch::Clock::now();
};

TEST_F(Watches, ReadTheFailureThatTheOtherRankPublishes) {
  EXPECT_FALSE(watches_[1]->failure());
  watches_[0]->fail(0, "disk full");
  const auto failure = watches_[1]->failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 0);
  EXPECT_EQ(failure->what, "disk full");
}

class WatchesOfThree : public Watches {
 protected:
  WatchesOfThree() : Watches(3) {}
};

TEST_F(WatchesOfThree, ReadTheFirstOfSeveralFailures) {
  watches_[1]->fail(1, "disk full");
  watches_[0]->fail(0, "out of memory");
  EXPECT_EQ(watches_[2]->failure()->rank, 1);
  EXPECT_EQ(watches_[0]->failure()->rank, 1);
}

TEST_F(Watches, LetOneRankReport) {
  EXPECT_TRUE(watches_[1]->claim_report());
  EXPECT_FALSE(watches_[0]->claim_report());
  EXPECT_FALSE(watches_[1]->claim_report());
}

TEST_F(Watches, LetOneRankWarnWithinAPause) {
  EXPECT_TRUE(watches_[1]->claim_warning(now_, 1s));
  EXPECT_FALSE(watches_[0]->claim_warning(now_ + 900ms, 1s));
  EXPECT_TRUE(watches_[0]->claim_warning(now_ + 1100ms, 1s));
}

TEST_F(Watches, TellWaitingFromIdleRanksAndFromRanksThatHaveLeft) {
  EXPECT_EQ(watches_[1]->idle_ranks(now_), std::vector{0});
  watches_[0]->waiting(now_, "a barrier");
  EXPECT_EQ(watches_[1]->idle_ranks(now_), std::vector<int>());
  EXPECT_EQ(watches_[1]->state_of(0, now_), "waits for a barrier");
  EXPECT_EQ(watches_[1]->idle_ranks(now_ + 10s), std::vector{0});
  watches_[0].reset();
  EXPECT_EQ(watches_[1]->idle_ranks(now_ + 10s), std::vector<int>());
}

}  // namespace test_watch
