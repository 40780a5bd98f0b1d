#include <aloni/nn/network_description.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/nearest_name.hpp>
#include <aloni/nn/detail/layer_names.hpp>
#include <aloni/nn/detail/output_extents.hpp>
#include <aloni/nn/operation.hpp>

#include <algorithm>
#include <array>
#include <map>

namespace aloni::nn {

using views::Dim;
using views::Extents;

namespace {

constexpr const char* infer_operation = "aloni::nn::infer_extents";

std::string in_quotes(const std::string& text) { return '"' + text + '"'; }

bool has_plain_characters(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

std::vector<std::string> names_in(const std::map<std::string, int>& positions) {
  std::vector<std::string> names;
  for (const auto& [name, position] : positions) names.push_back(name);
  return names;
}

bool is_flat(const Extents& e) { return e[Dim::depth] == 1 && e[Dim::height] == 1 && e[Dim::width] == 1; }

void check_input(const NetworkDescription& network) {
  const auto refuse = [&](const std::string& expectation) {
    throw InvalidArgument(infer_operation, "network input", to_string(network.input), expectation);
  };
  if (network.spatial_rank < 1 || network.spatial_rank > 3) {
    throw InvalidArgument(infer_operation, "spatial_rank", std::to_string(network.spatial_rank), "1, 2 or 3");
  }
  if (network.input[Dim::sample] != 1) refuse("one sample");
  for (Dim d : views::all_dims) {
    if (network.input[d] < 1) refuse("extents of at least 1");
  }
  for (int i = 0; i < 3 - network.spatial_rank; ++i) {
    if (network.input[views::spatial_dims[i]] != 1) {
      refuse(std::string(views::name(views::spatial_dims[i])) + " 1, as the network has " +
             std::to_string(network.spatial_rank) + " spatial dimensions");
    }
  }
}

// Checks names, order and number of inputs. Returns the positions of each layer's inputs, -1 for the network's input.
std::vector<std::vector<int>> check_graph(const NetworkDescription& network) {
  if (network.layers.empty()) throw InvalidArgument(infer_operation, "layers", "none", "at least one");
  std::map<std::string, int> seen{{"input", -1}};
  std::vector<std::vector<int>> inputs_of;
  std::vector<bool> used(network.layers.size(), false);
  for (int i = 0; i < static_cast<int>(network.layers.size()); ++i) {
    const LayerDescription& layer = network.layers[i];
    const std::string who = "layer " + std::to_string(i);
    if (!has_plain_characters(layer.name)) {
      throw InvalidArgument(infer_operation, who + ", name", in_quotes(layer.name),
                            "letters, digits, '_', '.' and '-'");
    }
    if (layer.name == "input") {
      throw InvalidArgument(infer_operation, who + ", name", in_quotes(layer.name),
                            "another name: this one is the network's input");
    }
    const std::string subject = "layer " + in_quotes(layer.name);
    if (seen.count(layer.name) != 0)
      throw InvalidArgument(infer_operation, subject, "used twice", "a distinct name for each layer");
    const OperationProperties properties = properties_of(layer.operation);
    const int inputs = static_cast<int>(layer.inputs.size()), most = properties.most_inputs;
    if (inputs < properties.least_inputs || (most >= 0 && inputs > most)) {
      throw InvalidArgument(
          infer_operation, subject + ", number of inputs", std::to_string(inputs),
          std::to_string(properties.least_inputs) + (most < 0 ? " or more for " : " for ") + properties.kind);
    }
    inputs_of.emplace_back();
    for (const std::string& name : layer.inputs) {
      const auto input = seen.find(name);
      if (input == seen.end()) {
        throw InvalidArgument(infer_operation, subject + ", input", in_quotes(name),
                              "\"input\" or an earlier layer" + did_you_mean(name, names_in(seen)));
      }
      if (input->second >= 0) used[input->second] = true;
      inputs_of.back().push_back(input->second);
    }
    seen[layer.name] = i;
  }
  for (std::size_t i = 0; i + 1 < network.layers.size(); ++i) {
    if (!used[i]) {
      throw InvalidArgument(infer_operation, "layer " + in_quotes(network.layers[i].name), "",
                            "a later layer that reads its output");
    }
  }
  return inputs_of;
}

}  // namespace

const char* name(Loss loss) {
  constexpr std::array names{"softmax_cross_entropy", "binary_cross_entropy", "mean_squared_error",
                             "pixel_cross_entropy", "dice"};
  return names[static_cast<std::size_t>(loss)];
}

LossTargets targets_of(Loss loss) {
  switch (loss) {
    case Loss::softmax_cross_entropy:
      return LossTargets::sample_labels;
    case Loss::pixel_cross_entropy:
      return LossTargets::pixel_labels;
    case Loss::binary_cross_entropy:
    case Loss::mean_squared_error:
    case Loss::dice:
      break;
  }
  return LossTargets::elements;
}

int find_layer(const NetworkDescription& network, const std::string& name) {
  if (name == "input") return -1;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    if (network.layers[i].name == name) return static_cast<int>(i);
  }
  throw InvalidArgument("aloni::nn::find_layer", "name", in_quotes(name), detail::layer_expected(network, name));
}

std::vector<Extents> infer_extents(const NetworkDescription& network, Index samples) {
  if (samples < 0) throw InvalidArgument(infer_operation, "samples", std::to_string(samples), "at least 0");
  check_input(network);
  const std::vector<std::vector<int>> inputs_of = check_graph(network);

  Extents input = network.input;
  input[Dim::sample] = samples;
  detail::check_size("network input", input);

  std::vector<Extents> outputs;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    const LayerDescription& layer = network.layers[i];
    LayerInputs inputs{layer, network.spatial_rank, {}};
    for (const int source : inputs_of[i]) inputs.extents.push_back(source < 0 ? input : outputs[source]);
    outputs.push_back(properties_of(layer.operation).output_extents(inputs));
    detail::check_size("layer " + in_quotes(layer.name) + ", output", outputs.back());
  }
  if (network.loss == Loss::softmax_cross_entropy && !is_flat(outputs.back())) {
    throw InvalidArgument(infer_operation, "layer " + in_quotes(network.layers.back().name) + ", output",
                          to_string(outputs.back()),
                          "no spatial extent, as softmax cross-entropy takes one vector per sample; "
                          "pixel_cross_entropy takes one per pixel");
  }
  if (network.loss == Loss::pixel_cross_entropy && outputs.back()[Dim::channel] < 2) {
    throw InvalidArgument(infer_operation, "layer " + in_quotes(network.layers.back().name) + ", output",
                          to_string(outputs.back()),
                          "two or more channels, one per class of pixel_cross_entropy; binary_cross_entropy and dice "
                          "take one");
  }
  const double s = network.label_smoothing;
  const bool has_labels = targets_of(network.loss) != LossTargets::elements;
  if (!(s >= 0 && s < 1) || (s > 0 && !has_labels)) {
    throw InvalidArgument(
        infer_operation, "label smoothing", std::to_string(s),
        has_labels ? "a number in [0, 1)" : "0, as " + std::string(name(network.loss)) + " has no labels");
  }
  return outputs;
}

std::vector<ParameterDescription> parameters_of(const NetworkDescription& network) {
  const std::vector<Extents> outputs = infer_extents(network, 1);
  std::vector<ParameterDescription> parameters;
  for (int i = 0; i < static_cast<int>(network.layers.size()); ++i) {
    const LayerDescription& layer = network.layers[i];
    const int from = find_layer(network, layer.inputs[0]);
    const OperationProperties properties = properties_of(layer.operation);
    if (!properties.parameters) continue;
    for (const ParameterShape& p : properties.parameters(from < 0 ? network.input : outputs[from]))
      parameters.push_back({layer.name + "." + p.name, i, p.extents, p.fan_in});
  }
  return parameters;
}

Index count_parameters(const NetworkDescription& network) {
  Index elements = 0;
  for (const ParameterDescription& p : parameters_of(network)) elements += p.extents.size();
  return elements;
}

}  // namespace aloni::nn
