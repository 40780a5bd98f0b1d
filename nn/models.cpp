#include <aloni/nn/models.hpp>

#include <aloni/core/error.hpp>

#include <map>

namespace aloni::nn {

NetworkDescription lenet5(const views::Extents& image, Index classes) {
  const Pooling halve{PoolingKind::max, square_window(2, 2, 2)};
  NetworkDescription network;
  network.spatial_rank = 2;
  network.input = image;
  network.loss = Loss::softmax_cross_entropy;
  network.layers = {
      {"conv1", Convolution{6, square_window(2, 5, 1, 2)}, {"input"}},
      {"relu1", Relu{}, {"conv1"}},
      {"pool1", halve, {"relu1"}},
      {"conv2", Convolution{16, square_window(2, 5)}, {"pool1"}},
      {"relu2", Relu{}, {"conv2"}},
      {"pool2", halve, {"relu2"}},
      {"flatten", Flatten{}, {"pool2"}},
      {"fc1", Dense{120}, {"flatten"}},
      {"relu3", Relu{}, {"fc1"}},
      {"fc2", Dense{84}, {"relu3"}},
      {"relu4", Relu{}, {"fc2"}},
      {"fc3", Dense{classes}, {"relu4"}},
  };
  return network;
}

namespace {

using MakeNetwork = NetworkDescription (*)(const views::Extents&, Index);

const std::map<std::string, MakeNetwork>& models() {
  static const std::map<std::string, MakeNetwork> table{{"lenet5", &lenet5}};
  return table;
}

}  // namespace

NetworkDescription make_model(const std::string& name, const views::Extents& image, Index classes) {
  const auto found = models().find(name);
  if (found == models().end()) {
    std::string known;
    for (const auto& n : model_names()) known += (known.empty() ? "" : ", ") + n;
    throw InvalidArgument("aloni::nn::make_model", "model", '"' + name + '"', "one of: " + known);
  }
  return found->second(image, classes);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : models()) names.push_back(name);
  return names;
}

}  // namespace aloni::nn
