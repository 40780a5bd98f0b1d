#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>

#include <gmock/gmock.h>

namespace aloni::nn {
namespace test_models {

const views::Extents digit{{1, 1, 28, 28, 1}};

TEST(Lenet5, Has61706ParametersOnDigits) {
  Index count = 0;
  for (const auto& p : parameters_of(lenet5(digit, 10))) count += p.extents.size();
  EXPECT_EQ(count, 61706);
}

TEST(Lenet5, HasTheShapesOfTheFirstPaper) {
  const auto net = lenet5(digit, 10);
  const auto extents = infer_extents(net, 64);
  const auto of = [&](const char* name) { return extents[find_layer(net, name)]; };
  EXPECT_EQ(of("conv1"), (views::Extents{{64, 1, 28, 28, 6}}));
  EXPECT_EQ(of("pool1"), (views::Extents{{64, 1, 14, 14, 6}}));
  EXPECT_EQ(of("conv2"), (views::Extents{{64, 1, 10, 10, 16}}));
  EXPECT_EQ(of("pool2"), (views::Extents{{64, 1, 5, 5, 16}}));
  EXPECT_EQ(of("fc1"), (views::Extents{{64, 1, 1, 1, 120}}));
  EXPECT_EQ(of("fc2"), (views::Extents{{64, 1, 1, 1, 84}}));
  EXPECT_EQ(of("fc3"), (views::Extents{{64, 1, 1, 1, 10}}));
}

TEST(Lenet5, TakesImagesOfOtherSizes) {
  const auto net = lenet5({{1, 1, 32, 48, 3}}, 7);
  EXPECT_EQ(infer_extents(net, 2).back(), (views::Extents{{2, 1, 1, 1, 7}}));
  EXPECT_THROW(infer_extents(lenet5({{1, 1, 8, 8, 1}}, 10), 1), InvalidArgument);
}

TEST(MakeModel, KnowsEveryNameItLists) {
  EXPECT_THAT(model_names(), testing::Contains("lenet5"));
  for (const auto& name : model_names()) EXPECT_NO_THROW(infer_extents(make_model(name, digit, 10), 1)) << name;
}

TEST(MakeModel, RefusesUnknownNamesWithTheList) {
  try {
    make_model("resnet9000", digit, 10);
    FAIL() << "not refused";
  } catch (const InvalidArgument& e) {
    EXPECT_THAT(e.what(), testing::AllOf(testing::HasSubstr("\"resnet9000\""), testing::HasSubstr("lenet5")));
  }
}

}  // namespace test_models
}  // namespace aloni::nn
