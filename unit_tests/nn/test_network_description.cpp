#include <aloni/core/error.hpp>
#include <aloni/nn/network_description.hpp>

#include <gmock/gmock.h>

#include <functional>
#include <limits>

namespace aloni::nn {
namespace test_network_description {

using testing::AllOf;
using testing::HasSubstr;
using views::Extents;

NetworkDescription image_network(std::vector<LayerDescription> layers, Loss loss = Loss::binary_cross_entropy) {
  NetworkDescription n;
  n.spatial_rank = 2;
  n.input = {{1, 1, 28, 20, 3}};
  n.layers = std::move(layers);
  n.loss = loss;
  return n;
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "not refused";
}

std::string refusal(const NetworkDescription& n) {
  return refusal([&] { infer_extents(n, 4); });
}

TEST(SquareWindow, FillsTheLastDimensions) {
  const Window w = square_window(2, 5, 2, 1, 3);
  EXPECT_EQ(w.kernel, (std::array<Index, 3>{1, 5, 5}));
  EXPECT_EQ(w.stride, (std::array<Index, 3>{1, 2, 2}));
  EXPECT_EQ(w.dilation, (std::array<Index, 3>{1, 3, 3}));
  EXPECT_EQ(w.pad_low, (std::array<Index, 3>{0, 1, 1}));
  EXPECT_EQ(w.pad_high, (std::array<Index, 3>{0, 1, 1}));
  EXPECT_EQ(square_window(3, 2).kernel, (std::array<Index, 3>{2, 2, 2}));
  EXPECT_EQ(square_window(1, 2).kernel, (std::array<Index, 3>{1, 1, 2}));
  EXPECT_THROW(square_window(0, 3), InvalidArgument);
  EXPECT_THROW(square_window(4, 3), InvalidArgument);
}

TEST(SquareExtents, FillTheLastDimensions) {
  EXPECT_EQ(square_extents(2, 5), (std::array<Index, 3>{1, 5, 5}));
  EXPECT_EQ(square_extents(3, 5), (std::array<Index, 3>{5, 5, 5}));
  EXPECT_THROW(square_extents(0, 5), InvalidArgument);
}

TEST(Kind, NamesEveryOperation) {
  EXPECT_STREQ(kind(Convolution{}), "convolution");
  EXPECT_STREQ(kind(Pooling{}), "pooling");
  EXPECT_STREQ(kind(BatchNorm{}), "batch_norm");
  EXPECT_STREQ(kind(GroupNorm{}), "group_norm");
  EXPECT_STREQ(kind(LayerNorm{}), "layer_norm");
  EXPECT_STREQ(kind(Relu{}), "relu");
  EXPECT_STREQ(kind(Flatten{}), "flatten");
  EXPECT_STREQ(kind(Dense{}), "dense");
  EXPECT_STREQ(kind(GlobalAveragePooling{}), "global_average_pooling");
  EXPECT_STREQ(kind(Add{}), "add");
  EXPECT_STREQ(kind(Concatenate{}), "concatenate");
  EXPECT_STREQ(kind(AdaptivePooling{}), "adaptive_pooling");
  EXPECT_STREQ(kind(Upsampling{}), "upsampling");
}

TEST(FindLayer, GivesPositionsAndMinusOneForTheInput) {
  const auto n = image_network({{"a", Relu{}, {"input"}}, {"b", Relu{}, {"a"}}});
  EXPECT_EQ(find_layer(n, "input"), -1);
  EXPECT_EQ(find_layer(n, "b"), 1);
  EXPECT_THAT(refusal([&] { find_layer(n, "c"); }), AllOf(HasSubstr("\"c\""), HasSubstr("(a, b)")));
}

TEST(InferExtents, ComputesTheOutputOfEveryKindOfLayer) {
  const auto n = image_network(
      {
          {"conv", Convolution{8, square_window(2, 3, 1, 1)}, {"input"}},
          {"norm", BatchNorm{}, {"conv"}},
          {"relu", Relu{}, {"norm"}},
          {"pool", Pooling{PoolingKind::max, square_window(2, 3, 2)}, {"relu"}},
          {"flat", Flatten{}, {"pool"}},
          {"fc", Dense{7}, {"flat"}},
      },
      Loss::softmax_cross_entropy);
  EXPECT_EQ(infer_extents(n, 4), (std::vector<Extents>{{{4, 1, 28, 20, 8}},
                                                       {{4, 1, 28, 20, 8}},
                                                       {{4, 1, 28, 20, 8}},
                                                       {{4, 1, 13, 9, 8}},
                                                       {{4, 1, 1, 1, 13 * 9 * 8}},
                                                       {{4, 1, 1, 1, 7}}}));
  const auto mean = image_network({{"mean", GlobalAveragePooling{}, {"input"}}}, Loss::softmax_cross_entropy);
  EXPECT_EQ(infer_extents(mean, 2)[0], (Extents{{2, 1, 1, 1, 3}}));
}

TEST(InferExtents, HandlesStrideDilationAndUnevenPadding) {
  Window w;
  w.kernel = {1, 4, 3};
  w.stride = {1, 3, 2};
  w.dilation = {1, 2, 5};
  w.pad_low = {0, 2, 0};
  w.pad_high = {0, 1, 4};
  const auto n = image_network({{"conv", Convolution{2, w}, {"input"}}});
  // height: (28 + 3 - 7) / 3 + 1; width: (20 + 4 - 11) / 2 + 1
  EXPECT_EQ(infer_extents(n, 1)[0], (Extents{{1, 1, 9, 7, 2}}));
}

TEST(InferExtents, TakesTheOutputsOfAdaptivePoolingAndUpsampling) {
  const auto n = image_network({
      {"pool", AdaptivePooling{PoolingKind::average, {1, 7, 5}}, {"input"}},
      {"twice", Upsampling{UpsamplingMode::linear, square_extents(2, 2)}, {"pool"}},
      {"back", Upsampling{UpsamplingMode::nearest, {1, 3, 1}, {0, 0, 20}}, {"twice"}},
      {"more", AdaptivePooling{PoolingKind::max, {1, 50, 1}}, {"back"}},
  });
  EXPECT_EQ(infer_extents(n, 4),
            (std::vector<Extents>{{{4, 1, 7, 5, 3}}, {{4, 1, 14, 10, 3}}, {{4, 1, 42, 20, 3}}, {{4, 1, 50, 1, 3}}}));
}

TEST(InferExtents, AddsTheChannelsOfAConcatenation) {
  const auto n = image_network({{"conv", Convolution{8, square_window(2, 3, 1, 1)}, {"input"}},
                                {"all", Concatenate{}, {"conv", "input", "conv"}}});
  EXPECT_EQ(infer_extents(n, 2).back(), (Extents{{2, 1, 28, 20, 19}}));
  EXPECT_EQ(to_string(n.layers[1]), "all: concatenate of conv input conv");
}

TEST(InferExtents, RefusesConcatenationsOfOtherSpatialExtents) {
  const auto n = image_network({{"pool", Pooling{PoolingKind::max, square_window(2, 2, 2)}, {"input"}},
                                {"both", Concatenate{}, {"input", "pool"}}});
  EXPECT_THAT(refusal(n), AllOf(HasSubstr("layer \"both\", input \"pool\" = 4x1x14x10x3"),
                                HasSubstr("the samples and spatial extents of its first input, 4x1x28x20x3")));
  EXPECT_THAT(refusal(image_network({{"one", Concatenate{}, {"input"}}})),
              AllOf(HasSubstr("\"one\", number of inputs = 1"), HasSubstr("2 or more for concatenate")));
}

TEST(InferExtents, RefusesWrongAdaptivePoolingAndUpsampling) {
  constexpr Index huge = std::numeric_limits<Index>::max();
  const auto with = [](Operation op, Index height = 28) {
    auto n = image_network({{"x", std::move(op), {"input"}}});
    n.input = {{1, 1, height, 20, 1}};
    return refusal(n);
  };
  EXPECT_THAT(with(AdaptivePooling{PoolingKind::max, {1, 0, 2}}), HasSubstr("layer \"x\", output in height = 0"));
  EXPECT_THAT(with(AdaptivePooling{PoolingKind::max, {2, 2, 2}}),
              AllOf(HasSubstr("output in depth = 2"), HasSubstr("2 spatial dimensions")));
  EXPECT_THAT(with(AdaptivePooling{PoolingKind::max, {1, 2, huge}}), HasSubstr("output in width"));
  EXPECT_THAT(with(AdaptivePooling{PoolingKind::max, {1, 1, 1}}, Index{1} << 28), HasSubstr("windows of at most"));
  EXPECT_THAT(with(AdaptivePooling{PoolingKind::max, {1, 1, 1}}, Index{1} << 31), HasSubstr("input in height"));
  EXPECT_THAT(with(Upsampling{UpsamplingMode::nearest, {1, 0, 1}}), HasSubstr("scale in height = 0"));
  EXPECT_THAT(with(Upsampling{UpsamplingMode::nearest, {2, 1, 1}}), HasSubstr("output in depth = 2"));
  EXPECT_THAT(with(Upsampling{UpsamplingMode::nearest, {1, 2, 1}, {0, 5, 0}}), HasSubstr("scale in height = 2"));
  EXPECT_THAT(with(Upsampling{UpsamplingMode::nearest, {1, 1, 1}, {0, -5, 0}}), HasSubstr("output in height = -5"));
  EXPECT_THAT(with(Upsampling{UpsamplingMode::nearest, {1, 1 << 30, 1}}), HasSubstr("output in height"));
  EXPECT_THAT(with(Upsampling{UpsamplingMode::nearest, {1, huge, 1}}), HasSubstr("scale in height"));
  EXPECT_EQ(with(Upsampling{UpsamplingMode::linear, {1, 1, 3}}), "not refused");
}

TEST(InferExtents, AcceptsEverySpatialRankAndNoSamples) {
  for (int rank = 1; rank <= 3; ++rank) {
    NetworkDescription n;
    n.spatial_rank = rank;
    n.input = {{1, rank > 2 ? 8 : 1, rank > 1 ? 8 : 1, 8, 1}};
    n.layers = {{"conv", Convolution{4, square_window(rank, 3)}, {"input"}}};
    n.loss = Loss::binary_cross_entropy;
    const Extents expected{{0, rank > 2 ? 6 : 1, rank > 1 ? 6 : 1, 6, 4}};
    EXPECT_EQ(infer_extents(n, 0)[0], expected);
  }
}

TEST(InferExtents, RefusesWrongNames) {
  EXPECT_THAT(refusal(image_network({})), HasSubstr("layers = none"));
  EXPECT_THAT(refusal(image_network({{"", Relu{}, {"input"}}})), HasSubstr("layer 0, name = \"\""));
  EXPECT_THAT(refusal(image_network({{"a b", Relu{}, {"input"}}})), HasSubstr("\"a b\""));
  EXPECT_THAT(refusal(image_network({{"input", Relu{}, {"input"}}})), HasSubstr("another name"));
  EXPECT_THAT(refusal(image_network({{"a", Relu{}, {"input"}}, {"a", Relu{}, {"a"}}})),
              HasSubstr("\"a\" = used twice"));
}

TEST(InferExtents, RefusesWrongInputs) {
  EXPECT_THAT(refusal(image_network({{"a", Relu{}, {}}})), HasSubstr("layer \"a\", number of inputs = 0"));
  EXPECT_THAT(refusal(image_network({{"a", Relu{}, {"input", "input"}}})), HasSubstr("number of inputs = 2"));
  EXPECT_THAT(refusal(image_network({{"a", Relu{}, {"b"}}, {"b", Relu{}, {"a"}}})),
              AllOf(HasSubstr("layer \"a\", input = \"b\""), HasSubstr("earlier layer")));
  EXPECT_THAT(refusal(image_network({{"a", Relu{}, {"a"}}})), HasSubstr("layer \"a\", input = \"a\""));
  EXPECT_THAT(refusal(image_network({{"lost", Relu{}, {"input"}}, {"b", Relu{}, {"input"}}})),
              AllOf(HasSubstr("layer \"lost\""), HasSubstr("reads its output")));
}

TEST(InferExtents, RefusesWrongWindows) {
  const auto with = [](auto change, bool pool = false) {
    Window w = square_window(2, 3, 1, 1);
    change(w);
    return refusal(pool ? image_network({{"p", Pooling{PoolingKind::max, w}, {"input"}}})
                        : image_network({{"c", Convolution{2, w}, {"input"}}}));
  };
  EXPECT_THAT(with([](Window& w) { w.kernel[1] = 0; }), HasSubstr("layer \"c\", kernel in height = 0"));
  EXPECT_THAT(with([](Window& w) { w.stride[2] = -1; }), HasSubstr("layer \"c\", stride in width = -1"));
  EXPECT_THAT(with([](Window& w) { w.dilation[1] = 0; }), HasSubstr("dilation in height = 0"));
  EXPECT_THAT(with([](Window& w) { w.pad_high[1] = -2; }), HasSubstr("padding in height = -2"));
  EXPECT_THAT(with([](Window& w) { w.kernel[1] = 31; }),
              AllOf(HasSubstr("window in height = 31 elements"), HasSubstr("at most the 30")));
  EXPECT_EQ(with([](Window& w) { w.kernel[1] = 30; }), "not refused");
  EXPECT_THAT(with([](Window& w) { w.kernel[0] = 2; }),
              AllOf(HasSubstr("in depth"), HasSubstr("2 spatial dimensions")));
  EXPECT_THAT(with([](Window& w) { w.kernel[1] = std::numeric_limits<Index>::max(); }), HasSubstr("kernel in height"));
  EXPECT_THAT(with([](Window& w) { w.pad_low[1] = 3; }, true),
              AllOf(HasSubstr("layer \"p\", padding in height"), HasSubstr("an element of the input")));
  EXPECT_THAT(with([](Window& w) { w.pad_high[2] = 3; }, true), HasSubstr("padding in width"));
  EXPECT_EQ(with([](Window& w) { w.pad_low[1] = w.pad_high[1] = 2; }, true), "not refused");
  EXPECT_EQ(with([](Window& w) { w.pad_low[1] = 3; }), "not refused");
}

TEST(InferExtents, RefusesPoolingWindowsThatStepOverTheTensor) {
  NetworkDescription n;
  n.spatial_rank = 1;
  n.input = {{1, 1, 1, 2, 1}};
  n.loss = Loss::binary_cross_entropy;
  Window w;  // taps at -3 and 0; at -2 and 1; at -1 and 2, both outside
  w.kernel[2] = 2;
  w.dilation[2] = 3;
  w.pad_low[2] = 3;
  w.pad_high[2] = 1;
  Pooling pool{PoolingKind::average, w, true};
  n.layers = {{"p", pool, {"input"}}};
  EXPECT_EQ(refusal(n), "not refused");
  pool.count_include_pad = false;
  n.layers = {{"p", pool, {"input"}}};
  EXPECT_THAT(refusal(n), HasSubstr("an element of the input"));
}

TEST(InferExtents, RefusesWrongLayers) {
  const auto with = [](Operation op) { return refusal(image_network({{"x", op, {"input"}}})); };
  EXPECT_THAT(with(Convolution{0, {}}), HasSubstr("layer \"x\", filters = 0"));
  EXPECT_THAT(with(Dense{5}), AllOf(HasSubstr("layer \"x\", input = 4x1x28x20x3"), HasSubstr("flatten")));
  EXPECT_THAT(with(BatchNorm{StatisticsScope::all, 1.5}), HasSubstr("momentum"));
  EXPECT_THAT(with(BatchNorm{StatisticsScope::all, 0.1, 0}), HasSubstr("epsilon"));
  EXPECT_THAT(with(BatchNorm{StatisticsScope::all, std::numeric_limits<double>::quiet_NaN()}), HasSubstr("momentum"));
  EXPECT_THAT(with(GroupNorm{2}), AllOf(HasSubstr("layer \"x\", groups = 2"), HasSubstr("divisor of the 3 channels")));
  EXPECT_THAT(with(GroupNorm{0}), HasSubstr("groups = 0"));
  EXPECT_THAT(with(GroupNorm{-3}), HasSubstr("groups = -3"));
  EXPECT_THAT(with(GroupNorm{6}), HasSubstr("groups = 6"));
  EXPECT_THAT(with(GroupNorm{3, 0}), HasSubstr("layer \"x\", epsilon"));
  EXPECT_THAT(with(LayerNorm{-1}), HasSubstr("layer \"x\", epsilon"));
  EXPECT_THAT(with(LayerNorm{std::numeric_limits<double>::infinity()}), HasSubstr("epsilon"));
  EXPECT_EQ(with(GroupNorm{3}), "not refused");
  EXPECT_EQ(with(LayerNorm{}), "not refused");
  EXPECT_THAT(refusal(image_network({{"x", Relu{}, {"input"}}}, Loss::softmax_cross_entropy)),
              AllOf(HasSubstr("layer \"x\", output"), HasSubstr("softmax")));
  const auto flat = image_network({{"f", Flatten{}, {"input"}}, {"d", Dense{-3}, {"f"}}});
  EXPECT_THAT(refusal(flat), HasSubstr("layer \"d\", features = -3"));
}

TEST(InferExtents, RefusesWrongNetworkInput) {
  const auto with = [](Extents e, int rank = 2) {
    auto n = image_network({{"r", Relu{}, {"input"}}});
    n.input = e;
    n.spatial_rank = rank;
    return refusal(n);
  };
  EXPECT_THAT(with({{2, 1, 4, 4, 1}}), HasSubstr("one sample"));
  EXPECT_THAT(with({{1, 1, 0, 4, 1}}), HasSubstr("at least 1"));
  EXPECT_THAT(with({{1, 2, 4, 4, 1}}), HasSubstr("depth 1"));
  EXPECT_THAT(with({{1, 1, 4, 4, 1}}, 1), HasSubstr("height 1"));
  EXPECT_THAT(with({{1, 1, 4, 4, 1}}, 0), HasSubstr("spatial_rank = 0"));
  EXPECT_THAT(with({{1, 1, 4, 4, 1}}, 4), HasSubstr("spatial_rank = 4"));
  EXPECT_THAT(refusal([] { infer_extents(image_network({{"r", Relu{}, {"input"}}}), -1); }), HasSubstr("samples = -1"));
}

TEST(InferExtents, RefusesSizesThatWouldOverflow) {
  auto n = image_network({{"r", Relu{}, {"input"}}});
  n.input = {{1, 1, Index{1} << 31, Index{1} << 31, 1}};
  EXPECT_THAT(refusal(n), AllOf(HasSubstr("network input"), HasSubstr("2^62")));
  n = image_network({{"c", Convolution{std::numeric_limits<std::int32_t>::max(), {}}, {"input"}}});
  n.input = {{1, 1, 1 << 20, 1 << 20, 1}};
  EXPECT_THAT(refusal(n), AllOf(HasSubstr("layer \"c\", output"), HasSubstr("2^62")));
  Window w = square_window(2, 1 << 30, 1, 1 << 30);
  n = image_network({{"c", Convolution{8, w}, {"input"}}});
  EXPECT_THAT(refusal(n), AllOf(HasSubstr("layer \"c\", weight"), HasSubstr("2^62")));
}

TEST(ParametersOf, ListsWeightsBeforeBiasesInTheOrderOfLayers) {
  const auto n = image_network({
      {"conv", Convolution{8, square_window(2, 3, 1, 1)}, {"input"}},
      {"plain", Convolution{4, square_window(2, 1), false}, {"conv"}},
      {"norm", BatchNorm{}, {"plain"}},
      {"group", GroupNorm{2}, {"norm"}},
      {"plain_group", GroupNorm{2, 1e-5, false}, {"group"}},
      {"layer", LayerNorm{}, {"plain_group"}},
      {"plain_layer", LayerNorm{1e-5, false}, {"layer"}},
      {"flat", GlobalAveragePooling{}, {"plain_layer"}},
      {"fc", Dense{7}, {"flat"}},
  });
  const auto parameters = parameters_of(n);
  struct Expected {
    const char* name;
    int layer;
    Extents extents;
    Index fan_in;
  };
  const std::vector<Expected> expected{
      {"conv.weight", 0, {{8, 1, 3, 3, 3}}, 27}, {"conv.bias", 0, {{1, 1, 1, 1, 8}}, 27},
      {"plain.weight", 1, {{4, 1, 1, 1, 8}}, 8}, {"norm.gamma", 2, {{1, 1, 1, 1, 4}}, 1},
      {"norm.beta", 2, {{1, 1, 1, 1, 4}}, 1},    {"group.gamma", 3, {{1, 1, 1, 1, 4}}, 1},
      {"group.beta", 3, {{1, 1, 1, 1, 4}}, 1},   {"layer.gamma", 5, {{1, 1, 1, 1, 4}}, 1},
      {"layer.beta", 5, {{1, 1, 1, 1, 4}}, 1},   {"fc.weight", 8, {{7, 1, 1, 1, 4}}, 4},
      {"fc.bias", 8, {{1, 1, 1, 1, 7}}, 4},
  };
  ASSERT_EQ(parameters.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(parameters[i].name, expected[i].name);
    EXPECT_EQ(parameters[i].layer, expected[i].layer);
    EXPECT_EQ(parameters[i].extents, expected[i].extents) << parameters[i].name;
    EXPECT_EQ(parameters[i].fan_in, expected[i].fan_in) << parameters[i].name;
  }
}

}  // namespace test_network_description
}  // namespace aloni::nn
