#include <aloni/core/error.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/strategy.hpp>

#include <gmock/gmock.h>

namespace aloni::nn {
namespace test_models {

const views::Extents digit{{1, 1, 28, 28, 1}};

TEST(Lenet5, Has61706ParametersOnDigits) {
  Index count = 0;
  for (const auto& p : parameters_of(lenet5(digit, 10))) count += p.extents.size();
  EXPECT_EQ(count, 61706);
}

TEST(Lenet5, HasTheShapesOfTheOriginalPaper) {
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
  for (const auto& name : model_names()) EXPECT_NO_THROW(infer_extents(make_model(name), 1)) << name;
}

Index parameters_in(const NetworkDescription& net) {
  Index count = 0;
  for (const auto& p : parameters_of(net)) count += p.extents.size();
  return count;
}

TEST(MakeModel, GivesEachModelItsPublishedNumberOfParameters) {
  EXPECT_EQ(parameters_in(make_model("lenet5")), 61706);
  EXPECT_EQ(parameters_in(make_model("vgg16")), 138357544);
  EXPECT_EQ(parameters_in(make_model("resnet18")), 11689512);
  EXPECT_EQ(parameters_in(make_model("resnet50")), 25557032);
  EXPECT_EQ(parameters_in(make_model("resnet152")), 60192808);
  EXPECT_EQ(parameters_in(make_model("densenet121")), 7978856);
  EXPECT_EQ(parameters_in(make_model("unet2d", {{{1, 1, 64, 64, 3}}, 2})), 31037698);
  EXPECT_EQ(parameters_in(make_model("cosmoflow")), 9437348);
}

TEST(MakeModel, HasTheDocumentedNumberOfParametersByDefault) {
  EXPECT_EQ(parameters_in(make_model("unet2d")), 31036481);
  EXPECT_EQ(parameters_in(make_model("unet3d")), 19071329);
  EXPECT_EQ(parameters_in(make_model("mesh1k")), 7843521);
  EXPECT_EQ(parameters_in(make_model("mesh2k")), 13396545);
}

/// Output extents of a layer of a model for one sample.
views::Extents output_of(const NetworkDescription& net, const std::string& layer) {
  return infer_extents(net, 1)[static_cast<std::size_t>(find_layer(net, layer))];
}

TEST(MakeModel, HasThePublishedExtents) {
  using views::Extents;
  const auto resnet = make_model("resnet50");
  EXPECT_EQ(output_of(resnet, "stem.pool"), (Extents{{1, 1, 56, 56, 64}}));
  EXPECT_EQ(output_of(resnet, "stage1.block3.relu"), (Extents{{1, 1, 56, 56, 256}}));
  EXPECT_EQ(output_of(resnet, "stage4.block1.conv1"), (Extents{{1, 1, 14, 14, 512}}));
  EXPECT_EQ(output_of(resnet, "stage4.block3.relu"), (Extents{{1, 1, 7, 7, 2048}}));
  EXPECT_EQ(output_of(make_model("vgg16"), "pool5"), (Extents{{1, 1, 7, 7, 512}}));
  EXPECT_EQ(output_of(make_model("densenet121"), "block3.layer24.join"), (Extents{{1, 1, 14, 14, 1024}}));
  EXPECT_EQ(output_of(make_model("densenet121"), "relu"), (Extents{{1, 1, 7, 7, 1024}}));
  EXPECT_EQ(output_of(make_model("mesh1k"), "conv1_1"), (Extents{{1, 1, 512, 512, 128}}));
  EXPECT_EQ(output_of(make_model("mesh1k"), "prediction"), (Extents{{1, 1, 16, 16, 1}}));
  EXPECT_EQ(output_of(make_model("mesh2k"), "relu6_5"), (Extents{{1, 1, 32, 32, 128}}));
  EXPECT_EQ(output_of(make_model("unet2d"), "up4.join"), (Extents{{1, 1, 64, 64, 1024}}));
  EXPECT_EQ(output_of(make_model("unet2d"), "prediction"), (Extents{{1, 1, 512, 512, 1}}));
  EXPECT_EQ(output_of(make_model("unet3d"), "up3.join"), (Extents{{1, 32, 32, 32, 768}}));
  EXPECT_EQ(output_of(make_model("unet3d"), "prediction"), (Extents{{1, 128, 128, 128, 1}}));
  EXPECT_EQ(output_of(make_model("cosmoflow"), "flatten"), (Extents{{1, 1, 1, 1, 2048}}));
  EXPECT_EQ(output_of(make_model("cosmoflow", {{{1, 256, 256, 256, 4}}, {}}), "flatten"),
            (Extents{{1, 1, 1, 1, 2048}}));
}

TEST(MakeModel, BeginsWithoutReductionForSmallImages) {
  for (const char* name : {"resnet18", "resnet50", "densenet121"}) {
    const auto small = make_model(name, {{{1, 1, 64, 32, 3}}, {}});
    EXPECT_EQ(output_of(small, "stem.relu"), (views::Extents{{1, 1, 64, 32, 64}})) << name;
    EXPECT_EQ(infer_extents(small, 1).back()[views::Dim::channel], 10) << name;
    EXPECT_THROW(find_layer(small, "stem.pool"), InvalidArgument) << name;
    const auto large = make_model(name, {{{1, 1, 65, 64, 3}}, {}});
    EXPECT_EQ(output_of(large, "stem.pool"), (views::Extents{{1, 1, 17, 16, 64}})) << name;
    EXPECT_EQ(infer_extents(large, 1).back()[views::Dim::channel], 1000) << name;
  }
}

TEST(MakeModel, TakesInputAndClassesFromTheOptions) {
  const auto net = make_model("mesh1k", {{{1, 1, 128, 192, 5}}, 3});
  EXPECT_EQ(infer_extents(net, 2).back(), (views::Extents{{2, 1, 2, 3, 3}}));
  EXPECT_EQ(make_model("lenet5", digit, 7).layers.back().name, "fc3");
}

std::string refusal(const NetworkDescription& net) {
  try {
    infer_extents(net, 1);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "not refused";
}

TEST(MakeModel, NamesTheLayerForWhichTheInputIsTooSmall) {
  EXPECT_THAT(refusal(make_model("vgg16", {{{1, 1, 16, 16, 3}}, {}})), testing::HasSubstr("layer \"pool5\""));
  EXPECT_THAT(refusal(make_model("lenet5", {{{1, 1, 8, 8, 1}}, {}})), testing::HasSubstr("layer \"conv2\""));
  EXPECT_THAT(refusal(make_model("unet2d", {{{1, 1, 24, 24, 1}}, {}})), testing::HasSubstr("layer \"up4.join\""));
  EXPECT_THAT(refusal(make_model("unet3d", {{{1, 4, 8, 8, 1}}, {}})), testing::HasSubstr("layer \"down3.pool\""));
  EXPECT_THAT(refusal(make_model("densenet121", {{{1, 1, 4, 4, 3}}, {}})),
              testing::HasSubstr("layer \"transition3.pool\""));
}

TEST(MakeModel, CanBeSplitByEveryKindOfStrategy) {
  for (const auto& name : model_names()) {
    const NetworkDescription net = make_model(name);
    for (const char* split : {"n4", "h2w2", "c2", "f4", "n2h2c2"}) {
      const LayerSplit layer_split = LayerSplit::parse(split);
      for (const int copies : {1, 3}) {
        const int ranks = layer_split.size() * copies;
        const auto plan = plan_network(net, resolve(Strategy::uniform(layer_split), net, ranks), ranks, 8);
        ASSERT_EQ(plan.layers.size(), net.layers.size());
        Index owned = 0;
        for (int r = 0; r < ranks; ++r)
          if (plan.layers[0].output.is_first_copy(r)) owned += plan.layers[0].output.owned(r).size();
        EXPECT_EQ(owned, infer_extents(net, 8)[0].size()) << name << ", " << split;
      }
    }
  }
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
