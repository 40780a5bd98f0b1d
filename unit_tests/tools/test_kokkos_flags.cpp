#include <aloni/tools/kokkos_flags.hpp>

#include <gmock/gmock.h>

namespace aloni::tools {
namespace test_kokkos_flags {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(SplitKokkosFlags, SeparatesFlagsInAnyPosition) {
  const auto split = split_kokkos_flags(
      {"aloni", "--kokkos-num-threads=2", "train", "--data", "x", "--kokkos-disable-warnings", "--batch", "3"});
  EXPECT_THAT(split.kokkos, ElementsAre("--kokkos-num-threads=2", "--kokkos-disable-warnings"));
  EXPECT_THAT(split.others, ElementsAre("aloni", "train", "--data", "x", "--batch", "3"));
  EXPECT_EQ(split.error, "");
  EXPECT_FALSE(split.help);
}

TEST(SplitKokkosFlags, KnowsAllFlagsThatKokkosDocuments) {
  for (const char* flag : {"--kokkos-help", "--kokkos-tools-help", "--kokkos-num-threads=4", "--kokkos-device-id=0",
                           "--kokkos-map-device-id-by=mpi_rank", "--kokkos-map-device-id-by=random",
                           "--kokkos-disable-warnings=yes", "--kokkos-print-configuration", "--kokkos-tune-internals",
                           "--kokkos-tools-libs=libkp.so", "--kokkos-tools-args=a b"}) {
    const auto split = split_kokkos_flags({"aloni", flag});
    EXPECT_THAT(split.kokkos, ElementsAre(flag));
    EXPECT_EQ(split.error, "");
  }
  EXPECT_TRUE(split_kokkos_flags({"aloni", "--kokkos-help"}).help);
}

TEST(SplitKokkosFlags, LeavesUnknownFlagsAmongTheOthers) {
  const auto split = split_kokkos_flags({"aloni", "--kokkos-dance", "--kokkosnum-threads=2", "--help"});
  EXPECT_THAT(split.kokkos, IsEmpty());
  EXPECT_THAT(split.others, ElementsAre("aloni", "--kokkos-dance", "--kokkosnum-threads=2", "--help"));
}

TEST(SplitKokkosFlags, ReportsValuesThatMakeKokkosAbort) {
  for (const char* flag :
       {"--kokkos-num-threads", "--kokkos-num-threads=", "--kokkos-num-threads=many", "--kokkos-num-threads=0",
        "--kokkos-num-threads=4x", "--kokkos-num-threads=100000000", "--kokkos-num-threads=99999999999",
        "--kokkos-device-id=-1", "--kokkos-map-device-id-by=name", "--kokkos-tools-libs",
        "--kokkos-disable-warnings=maybe"}) {
    const auto split = split_kokkos_flags({"aloni", flag, "info"});
    EXPECT_THAT(split.error, HasSubstr(flag));
    EXPECT_THAT(split.kokkos, IsEmpty());
    EXPECT_THAT(split.others, ElementsAre("aloni", "info"));
  }
}

}  // namespace test_kokkos_flags
}  // namespace aloni::tools
