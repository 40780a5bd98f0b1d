#include <aloni/core/nearest_file.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <support/temporary_folder.hpp>

namespace aloni {
namespace test_nearest_file {

TEST(NearestFile, IsAnEntryOfTheSameFolder) {
  const aloni::test::TemporaryFolder folder;
  for (const char* name : {"mnist", "cifar-10"}) std::filesystem::create_directory(folder.path(name));
  EXPECT_EQ(did_you_mean_file(folder.path("minst")), "; did you mean " + folder.path("mnist") + "?");
  EXPECT_EQ(did_you_mean_file(folder.path("cifar10/")), "; did you mean " + folder.path("cifar-10") + "?");
}

TEST(NearestFile, IsNoneForOtherNamesMissingFoldersAndExistingPaths) {
  const aloni::test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("mnist"));
  EXPECT_EQ(did_you_mean_file(folder.path("imagenet")), "");
  EXPECT_EQ(did_you_mean_file(folder.path("none/mnist")), "");
  EXPECT_EQ(did_you_mean_file(folder.path("mnist")), "");
  EXPECT_EQ(did_you_mean_file(""), "");
}

}  // namespace test_nearest_file
}  // namespace aloni
