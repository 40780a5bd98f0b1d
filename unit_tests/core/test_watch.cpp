// The texts that ranks of a node publish about their waiting.
#include <aloni/core/comm/liveness/watch.hpp>

#include <support/random_cases.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace test_watch {

using namespace std::chrono_literals;
using aloni::comm::detail::Watch;

/// Two ranks as threads of this process.
class Pair {
 public:
  aloni::comm::detail::GatherBytes gather(std::size_t rank) {
    return [this, rank](std::span<const std::byte> mine) {
      said_[rank].assign(mine.begin(), mine.end());
      barrier_.arrive_and_wait();
      std::vector<std::byte> all = said_[0];
      all.insert(all.end(), said_[1].begin(), said_[1].end());
      barrier_.arrive_and_wait();
      return all;
    };
  }

 private:
  std::vector<std::byte> said_[2];
  std::barrier<> barrier_{2};
};

TEST(Watch, ReadersNeverSeePartsOfTwoTexts) {
  Pair pair;
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    Watch watch(0, {0, 1}, pair.gather(0));
    for (int i = 0; !stop; ++i)
      watch.waiting(Watch::Clock::now(), std::string(40 + i % 7 * 50, static_cast<char>('a' + i % 26)));
  });
  Watch watch(1, {0, 1}, pair.gather(1));
  const std::string waits = "waits for ";
  int texts = 0;
  for (int i = 0; i < aloni::test::random_cases(20'000); ++i) {
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

/// The watches of both ranks, in one process.
class Watches : public testing::Test {
 protected:
  Watches() {
    std::thread other([&] { watches_[1] = std::make_unique<Watch>(1, std::vector{0, 1}, pair_.gather(1)); });
    watches_[0] = std::make_unique<Watch>(0, std::vector{0, 1}, pair_.gather(0));
    other.join();
  }
  void SetUp() override {
    if (!watches_[0]->sees(1) || !watches_[1]->sees(0)) GTEST_SKIP() << "needs shared memory";
  }

  Pair pair_;
  std::unique_ptr<Watch> watches_[2];
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
