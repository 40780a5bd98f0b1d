#include <aloni/halo/detail/batches.hpp>

#include <gmock/gmock.h>

namespace aloni::halo::detail {
namespace test_batches {

views::Box cells(Index lo, Index hi) { return {{0, 0, 0, lo, 0}, {1, 1, 1, hi, 1}}; }

TEST(Batches, KeepSumsIntoTheSameCellApartAndInOrder) {
  EXPECT_THAT(batches_of({{0, cells(0, 4)}, {0, cells(3, 6)}, {0, cells(6, 9)}, {0, cells(0, 9)}, {0, cells(2, 3)}}),
              testing::ElementsAre(0, 1, 0, 2, 3));
}

TEST(Batches, LetSumsIntoDifferentTensorsRunTogether) {
  EXPECT_THAT(batches_of({{0, cells(0, 4)}, {1, cells(0, 4)}, {0, cells(4, 5)}, {1, cells(4, 4)}}),
              testing::ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(batches_of({}), testing::IsEmpty());
}

}  // namespace test_batches
}  // namespace aloni::halo::detail
