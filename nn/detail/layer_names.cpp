#include <aloni/nn/detail/layer_names.hpp>

#include <aloni/core/nearest_name.hpp>

#include <vector>

namespace aloni::nn::detail {

std::string layer_expected(const NetworkDescription& network, std::string_view name) {
  std::vector<std::string> names;
  std::string text;
  for (const LayerDescription& layer : network.layers) {
    text += (names.empty() ? "" : ", ") + layer.name;
    names.push_back(layer.name);
  }
  return "a layer of the network (" + text + ")" + did_you_mean(name, names);
}

}  // namespace aloni::nn::detail
