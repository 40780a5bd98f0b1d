#include <aloni/nn/detail/layer_names.hpp>

#include <aloni/core/nearest_name.hpp>

namespace aloni::nn::detail {

std::vector<std::string> layer_names(const NetworkDescription& network) {
  std::vector<std::string> names;
  for (const LayerDescription& layer : network.layers) names.push_back(layer.name);
  return names;
}

std::string layer_expected(const NetworkDescription& network, std::string_view name) {
  const std::vector<std::string> names = layer_names(network);
  std::string text;
  for (const std::string& known : names) text += (text.empty() ? "" : ", ") + known;
  return "a layer of the network (" + text + ")" + did_you_mean(name, names);
}

}  // namespace aloni::nn::detail
