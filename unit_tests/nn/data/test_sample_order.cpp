#include <aloni/nn/data/sample_order.hpp>

#include <gmock/gmock.h>

#include <numeric>

namespace aloni::nn {
namespace test_sample_order {

TEST(SampleOrder, HasEachSampleOnce) {
  for (const Index samples : {0, 1, 2, 17, 1000}) {
    auto order = epoch_order(samples, 3, 1);
    std::sort(order.begin(), order.end());
    std::vector<Index> all(static_cast<std::size_t>(samples));
    std::iota(all.begin(), all.end(), Index{0});
    EXPECT_EQ(order, all);
  }
}

TEST(SampleOrder, ChangesWithSeedAndEpochOnly) {
  EXPECT_EQ(epoch_order(100, 3, 1), epoch_order(100, 3, 1));
  EXPECT_NE(epoch_order(100, 3, 1), epoch_order(100, 3, 2));
  EXPECT_NE(epoch_order(100, 3, 1), epoch_order(100, 4, 1));
}

// Losses of earlier trainings stay as they were only if this order does.
TEST(SampleOrder, KeepsItsBits) { EXPECT_THAT(epoch_order(8, 1, 0), testing::ElementsAre(4, 5, 2, 0, 1, 7, 3, 6)); }

TEST(SampleOrder, LastMiniBatchTakesTheRest) {
  const auto order = epoch_order(10, 1, 0);
  const MiniBatches batches{10, 4};
  ASSERT_EQ(batches.count(), 3);
  EXPECT_EQ(batches.size(1), 4);
  EXPECT_EQ(batches.size(2), 2);
  EXPECT_EQ(batches.of(order, 2)[0], order[8]);
  EXPECT_EQ((MiniBatches{8, 4}).count(), 2);
  EXPECT_EQ((MiniBatches{3, 4}).size(0), 3);
}

}  // namespace test_sample_order
}  // namespace aloni::nn
