#include <aloni/core/error.hpp>
#include <aloni/nn/model_file.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/operation.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

namespace aloni::nn {
namespace test_model_file {

using testing::AllOf;
using testing::HasSubstr;

void expect_equal(const NetworkDescription& a, const NetworkDescription& b) {
  EXPECT_EQ(a.spatial_rank, b.spatial_rank);
  EXPECT_EQ(a.input.values, b.input.values);
  EXPECT_EQ(a.loss, b.loss);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i) EXPECT_EQ(to_string(a.layers[i]), to_string(b.layers[i]));
}

/// Every operation, with other members than the default ones.
NetworkDescription all_operations() {
  const Window window{{1, 3, 2}, {1, 2, 1}, {1, 1, 2}, {0, 1, 0}, {0, 0, 3}};
  NetworkDescription net;
  net.input = views::make_extents(1, {16, 20}, 4);
  net.loss = Loss::dice;
  net.layers = {{"a", Convolution{8, window, false, 2}, {"input"}},
                {"b", BatchNorm{StatisticsScope::neighbours, 0.3, 1e-3, 2}, {"a"}},
                {"c", TransposedConvolution{6, square_window(2, 3, 2, 1), {0, 1, 0}, false, 2}, {"b"}},
                {"d", GroupNorm{3, 1e-4, false}, {"c"}},
                {"e", LayerNorm{1e-3, false}, {"d"}},
                {"f", LeakyRelu{0.125}, {"e"}},
                {"g", Pooling{PoolingKind::average, square_window(2, 3, 1, 1), false}, {"f"}},
                {"h", Upsampling{UpsamplingMode::linear, {1, 1, 1}, {0, 9, 11}}, {"g"}},
                {"i", AdaptivePooling{PoolingKind::max, {1, 4, 6}}, {"h"}},
                {"j", Dropout{0.25}, {"i"}},
                {"k", Silu{}, {"i"}},
                {"l", Add{}, {"j", "k"}},
                {"m", Concatenate{}, {"l", "k", "j"}},
                {"n", Gelu{}, {"m"}},
                {"o", Tanh{}, {"n"}},
                {"p", Sigmoid{}, {"o"}},
                {"q", Relu{}, {"p"}},
                {"r", GlobalAveragePooling{}, {"q"}},
                {"s", Flatten{}, {"r"}},
                {"t", Dense{7, false}, {"s"}}};
  return net;
}

TEST(ModelFile, GivesBackEveryOperationAndMember) {
  const NetworkDescription net = all_operations();
  std::vector<std::size_t> kinds;
  for (const LayerDescription& layer : net.layers) kinds.push_back(layer.operation.index());
  std::sort(kinds.begin(), kinds.end());
  kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  EXPECT_EQ(kinds.size(), std::variant_size_v<Operation>);  // none is missing here
  expect_equal(network_from_json(to_json(net), "text"), net);
}

TEST(ModelFile, GivesBackEveryModel) {
  for (const std::string& name : model_names()) {
    SCOPED_TRACE(name);
    const NetworkDescription net = make_model(name);
    const std::string text = to_json(net);
    expect_equal(network_from_json(text, name), net);
    EXPECT_EQ(to_json(network_from_json(text, name)), text);
  }
}

TEST(ModelFile, HasShortForms) {
  const NetworkDescription net = network_from_json(R"({
    "aloni_network": 1, "input": [8, 10, 12, 3], "loss": "mean_squared_error",
    "layers": [{"name": "c", "kind": "convolution", "filters": 4, "kernel": [1, 3, 5], "padding": [0, 1, 2]},
               {"name": "p", "kind": "pooling", "kernel": 3, "stride": 2, "padding": 1, "pad_high": 0}]})",
                                                   "text");
  EXPECT_EQ(net.spatial_rank, 3);
  EXPECT_EQ(net.input, views::make_extents(1, {8, 10, 12}, 3));
  const auto& c = std::get<Convolution>(net.layers[0].operation);
  EXPECT_EQ(c.window, (Window{{1, 3, 5}, {1, 1, 1}, {1, 1, 1}, {0, 1, 2}, {0, 1, 2}}));
  EXPECT_TRUE(c.bias);
  EXPECT_EQ(net.layers[1].inputs, std::vector<std::string>{"c"});
  EXPECT_EQ(std::get<Pooling>(net.layers[1].operation).window,
            (Window{{3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}}));
}

std::string error_of(const std::string& text) {
  try {
    network_from_json(text, "my.json");
  } catch (const FileError& e) {
    return e.what();
  } catch (const InvalidArgument& e) {
    return std::string("invalid: ") + e.what();
  }
  return "no error";
}

std::string with_layer(const std::string& members) {
  return R"({"aloni_network": 1, "input": [8, 8, 3], "loss": "dice", "layers": [{)" + members + "}]}";
}

TEST(ModelFile, ErrorsNameTheLayerTheMemberAndTheNearestName) {
  EXPECT_THAT(error_of("{"), HasSubstr("my.json"));
  EXPECT_THAT(error_of("[]"), HasSubstr("the network = []"));
  EXPECT_THAT(error_of("{}"), AllOf(HasSubstr("aloni_network"), HasSubstr("missing")));
  EXPECT_THAT(error_of(R"({"aloni_network": 2})"), AllOf(HasSubstr("aloni_network"), HasSubstr("= 2")));
  EXPECT_THAT(error_of(R"({"aloni_network": 1, "input": [8]})"), HasSubstr("\"input\" = [8]"));
  EXPECT_THAT(error_of(R"({"aloni_network": 1, "input": [8, -1]})"), HasSubstr("= -1"));
  EXPECT_THAT(error_of(R"({"aloni_network": 1, "input": [8, 18446744073709551615]})"),
              HasSubstr("18446744073709551615"));
  EXPECT_THAT(error_of(R"({"aloni_network": 1, "input": [8, 8], "loss": "dize"})"), HasSubstr("did you mean dice?"));
  const auto layer = [](const std::string& members) { return error_of(with_layer(R"("name": "first", )" + members)); };
  EXPECT_THAT(layer(R"("kind": "convolutoin")"), AllOf(HasSubstr("layer 1 (first)"), HasSubstr("mean convolution?")));
  EXPECT_THAT(layer(R"("kind": "convolution", "filter": 3)"),
              AllOf(HasSubstr("\"filter\" = unknown"), HasSubstr("mean filters?")));
  EXPECT_THAT(layer(R"("kind": "convolution", "filters": 3.5)"), HasSubstr("3.5"));
  EXPECT_THAT(layer(R"("kind": "convolution", "filters": "3")"), HasSubstr("an integer"));
  EXPECT_THAT(layer(R"("kind": "convolution", "kernel": [3, 3, 3])"), HasSubstr("list of 2"));
  EXPECT_THAT(layer(R"("kind": "convolution", "bias": 1)"), HasSubstr("true or false"));
  EXPECT_THAT(layer(R"("kind": "pooling", "pooling": "mean")"), HasSubstr("max, average"));
  EXPECT_THAT(layer(R"("kind": "dropout", "rate": "x")"), HasSubstr("a number"));
  EXPECT_THAT(layer(R"("kind": "relu", "inputs": [])"), HasSubstr("inputs"));
  EXPECT_THAT(layer(R"("kind": "relu", "kind": "tanh")"), HasSubstr("twice"));
  EXPECT_THAT(layer(R"("kind": "relu", "inputs": ["nobody"])"), AllOf(HasSubstr("invalid: "), HasSubstr("nobody")));
  EXPECT_THAT(error_of(with_layer(R"("kind": "relu")")), AllOf(HasSubstr("layer 1"), HasSubstr("name")));
  EXPECT_THAT(error_of(with_layer("\"name\": \"a\x1b\", \"kind\": \"r\"")), testing::Not(HasSubstr("\x1b")));
}

/// Damaged texts give the same network, another one, or a typed error; nothing else.
TEST(ModelFile, DamagedTextsGiveTypedErrors) {
  const std::string text = to_json(all_operations());
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_NE(error_of(text.substr(0, length)), "") << length;
  int errors = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'\0', '"', '9', '}', '\xff'}) {
      std::string damaged = text;
      damaged[i] = c;
      errors += error_of(damaged) != "no error";
    }
  }
  EXPECT_GT(errors, static_cast<int>(text.size()));
}

TEST(ModelFile, IsReadFromAFile) {
  const std::string path = testing::TempDir() + "aloni_model_file.json";
  std::ofstream(path) << to_json(all_operations());
  expect_equal(read_model_file(path), all_operations());
  std::filesystem::remove(path);
  EXPECT_THROW(read_model_file(path), FileError);
}

}  // namespace test_model_file
}  // namespace aloni::nn
