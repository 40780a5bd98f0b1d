#include <aloni/nn/models.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/models/families.hpp>

#include <map>

namespace aloni::nn {

namespace {

using MakeNetwork = NetworkDescription (*)(const ModelOptions&);

const std::map<std::string, MakeNetwork>& table() {
  static const std::map<std::string, MakeNetwork> all{
      {"lenet5", &models::lenet5},           {"vgg16", &models::vgg16},        {"resnet18", &models::resnet18},
      {"resnet50", &models::resnet50},       {"mesh1k", &models::mesh1k},      {"mesh2k", &models::mesh2k},
      {"unet2d", &models::unet2d},           {"unet3d", &models::unet3d},      {"cosmoflow", &models::cosmoflow},
      {"densenet121", &models::densenet121}, {"resnet152", &models::resnet152}};
  return all;
}

}  // namespace

NetworkDescription make_model(const std::string& name, const ModelOptions& options) {
  const auto found = table().find(name);
  if (found == table().end()) {
    std::string known;
    for (const auto& n : model_names()) known += (known.empty() ? "" : ", ") + n;
    throw InvalidArgument("aloni::nn::make_model", "model", '"' + name + '"', "one of: " + known);
  }
  return found->second(options);
}

NetworkDescription make_model(const std::string& name, const views::Extents& image, Index classes) {
  return make_model(name, ModelOptions{image, classes});
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : table()) names.push_back(name);
  return names;
}

}  // namespace aloni::nn
