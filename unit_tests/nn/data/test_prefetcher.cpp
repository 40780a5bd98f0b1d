#include <aloni/core/error.hpp>
#include <aloni/nn/data/prefetcher.hpp>

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <vector>

namespace aloni::nn {
namespace test_prefetcher {

using Item = std::vector<std::int64_t>;

TEST(Prefetcher, GivesAllItemsInOrderThenNull) {
  Prefetcher<Item> items([](std::int64_t k, Item& item) {
    item.assign(100, k);
    return k < 1000;
  });
  for (std::int64_t k = 0; k < 1000; ++k) {
    const Item* item = items.next();
    ASSERT_TRUE(item != nullptr);
    ASSERT_EQ(*item, Item(100, k));
  }
  EXPECT_EQ(items.next(), nullptr);
  EXPECT_EQ(items.next(), nullptr);
}

TEST(Prefetcher, DoesNotOverwriteTheItemInUse) {
  std::atomic<std::int64_t> made = 0;
  Prefetcher<Item> items([&](std::int64_t k, Item& item) {
    item.assign(10, k);
    made = k + 1;
    return true;
  });
  for (std::int64_t k = 0; k < 20; ++k) {
    const Item* item = items.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_LE(made, k + 2) << "one item in use, and one ahead";
    ASSERT_EQ(*item, Item(10, k));
  }
}

TEST(Prefetcher, WorksWhileTheCallerUsesAnItem) {
  std::atomic<std::int64_t> made = 0;
  Prefetcher<Item> items([&](std::int64_t k, Item&) {
    made = k + 1;
    return true;
  });
  items.next();
  for (int i = 0; i < 10000 && made < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(made, 2);
}

TEST(Prefetcher, RethrowsTheErrorAfterAllEarlierItems) {
  Prefetcher<Item> items([](std::int64_t k, Item& item) {
    if (k == 3) throw FileError("test", "file", "broken", "whole");
    item = {k};
    return true;
  });
  for (std::int64_t k = 0; k < 3; ++k) EXPECT_EQ(*items.next(), Item{k});
  EXPECT_THROW(items.next(), FileError);
  EXPECT_THROW(items.next(), FileError);
}

TEST(Prefetcher, EndsAtAnyTime) {
  for (int taken = 0; taken < 4; ++taken) {
    for (int i = 0; i < 50; ++i) {
      Prefetcher<Item> items([](std::int64_t, Item& item) {
        item.assign(1000, 1);
        return true;
      });
      for (int t = 0; t < taken; ++t) items.next();
    }
    Prefetcher<Item> failing([](std::int64_t, Item&) -> bool { throw std::runtime_error("fails"); });
    Prefetcher<Item> empty([](std::int64_t, Item&) { return false; });
  }
}

}  // namespace test_prefetcher
}  // namespace aloni::nn
