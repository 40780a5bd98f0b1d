#include <aloni/core/nearest_name.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aloni {
namespace test_nearest_name {

const std::vector<std::string> models{"resnet18", "resnet50", "lenet5", "unet2d", "unet3d"};

TEST(NearestName, IsTheOneWithTheFewestChanges) {
  EXPECT_EQ(nearest_name("resnet180", models), "resnet18");
  EXPECT_EQ(nearest_name("rsenet50", models), "resnet50");  // one swap
  EXPECT_EQ(nearest_name("ResNet50", models), "resnet50");
  EXPECT_EQ(nearest_name("lenet", models), "lenet5");
  EXPECT_EQ(nearest_name("unet", models), "unet2d");  // the first of two
}

TEST(NearestName, IsNoneOfNamesThatAreTooDifferent) {
  EXPECT_EQ(nearest_name("transformer", models), "");
  EXPECT_EQ(nearest_name("", models), "");
  EXPECT_EQ(nearest_name("x", {}), "");
  EXPECT_EQ(nearest_name(std::string(100'000, 'e'), models), "");
}

TEST(NearestName, FollowsTheListInErrors) {
  EXPECT_EQ(one_of("unet2", models), "one of: resnet18, resnet50, lenet5, unet2d, unet3d; did you mean unet2d?");
  EXPECT_EQ(one_of("q", models), "one of: resnet18, resnet50, lenet5, unet2d, unet3d");
}

TEST(NearestName, IsSuggestedAtTheEndOfAnError) {
  EXPECT_EQ(did_you_mean("lenet", models), "; did you mean lenet5?");
  EXPECT_EQ(did_you_mean("transformer", models), "");
}

}  // namespace test_nearest_name
}  // namespace aloni
