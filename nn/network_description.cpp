#include <aloni/nn/network_description.hpp>

#include <aloni/core/error.hpp>
#include <aloni/halo/range_map.hpp>
#include <aloni/halo/stencil.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace aloni::nn {

using views::Dim;
using views::Extents;

namespace {

constexpr const char* infer_operation = "aloni::nn::infer_extents";

// Limits for window members and extents, far enough below 2^63 that no sum or product here overflows.
constexpr Index max_window_value = std::numeric_limits<std::int32_t>::max();
constexpr Index max_tensor_elements = Index{1} << 62;

std::string in_quotes(const std::string& text) { return '"' + text + '"'; }

bool has_plain_characters(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

std::string names_of(const NetworkDescription& network) {
  std::string names;
  for (const auto& layer : network.layers) names += (names.empty() ? "" : ", ") + layer.name;
  return names;
}

bool is_flat(const Extents& e) { return e[Dim::depth] == 1 && e[Dim::height] == 1 && e[Dim::width] == 1; }

void check_size(const std::string& what, const Extents& e) {
  Index size = 1;
  for (Dim d : views::all_dims) {
    if (e[d] > 0 && size > max_tensor_elements / e[d]) {
      throw InvalidArgument(infer_operation, what, to_string(e), "at most 2^62 elements");
    }
    size *= std::max<Index>(e[d], 1);
  }
}

// All known properties of one layer while its output extents are computed. Error messages name this layer.
struct Subject {
  const LayerDescription& layer;
  int spatial_rank;
  Extents input;

  [[noreturn]] void refuse(const std::string& what, const std::string& value, const std::string& expectation) const {
    throw InvalidArgument(infer_operation, "layer " + in_quotes(layer.name) + (what.empty() ? "" : ", " + what), value,
                          expectation);
  }

  void check_at_least(const std::string& what, Index value, Index lowest) const {
    if (value < lowest || value > max_window_value) {
      refuse(what, std::to_string(value),
             "between " + std::to_string(lowest) + " and " + std::to_string(max_window_value));
    }
  }

  void check_epsilon(double epsilon) const {
    if (!(epsilon > 0 && std::isfinite(epsilon))) refuse("epsilon", std::to_string(epsilon), "a positive number");
  }
};

halo::Stencil1D stencil(const Window& w, int d) {
  return {w.kernel[d], w.stride[d], w.dilation[d], w.pad_low[d], w.pad_high[d]};
}

// Whether every window has a tap inside [0, input). A window that starts inside has one. So only windows that start
// before the first element, and the last window, can have none.
bool every_window_touches(const halo::Stencil1D& w, Index input, Index outputs) {
  if ((outputs - 1) * w.stride - w.pad_low >= input) return false;
  for (Index o = 0; o < outputs && o * w.stride < w.pad_low; ++o) {
    const Index before = w.pad_low - o * w.stride;
    const Index first_tap = (before + w.dilation - 1) / w.dilation;
    if (first_tap >= w.kernel || first_tap * w.dilation - before >= input) return false;
  }
  return true;
}

void check_window(const Subject& s, const halo::Stencil1D& t, const std::string& at) {
  s.check_at_least("kernel" + at, t.kernel, 1);
  s.check_at_least("stride" + at, t.stride, 1);
  s.check_at_least("dilation" + at, t.dilation, 1);
  s.check_at_least("padding" + at, std::min(t.pad_low, t.pad_high), 0);
  s.check_at_least("padding" + at, std::max(t.pad_low, t.pad_high), 0);
}

Extents weight_extents(const Convolution& op, Index channels) {
  const auto& k = op.window.kernel;
  return {{op.filters, k[0], k[1], k[2], channels / op.groups}};
}
Extents weight_extents(const TransposedConvolution& op, Index channels) {
  const auto& k = op.window.kernel;
  return {{channels, k[0], k[1], k[2], op.filters / op.groups}};
}

Extents slide(const Subject& s, const Window& w, bool every_window_must_touch) {
  Extents out = s.input;
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    const std::string at = std::string(" in ") + views::name(d);
    const halo::Stencil1D t = stencil(w, i);
    if (i < 3 - s.spatial_rank && t != halo::Stencil1D{}) {
      s.refuse(
          "window" + at, "",
          "no window in this dimension: the network has " + std::to_string(s.spatial_rank) + " spatial dimensions");
    }
    check_window(s, t, at);
    const Index padded = s.input[d] + t.pad_low + t.pad_high;
    if (t.reach() > padded) {
      s.refuse("window" + at, std::to_string(t.reach()) + " elements",
               "at most the " + std::to_string(padded) + " elements of its padded input");
    }
    out[d] = t.output_extent(s.input[d]);
    if (every_window_must_touch && !every_window_touches(t, s.input[d], out[d])) {
      s.refuse("padding" + at, std::to_string(t.pad_low) + " and " + std::to_string(t.pad_high),
               "less padding, so that every window has an element of the input");
    }
  }
  return out;
}

// Checks filters, groups and weights of a convolution, transposed or not.
template <class Op>
void check_filters(const Subject& s, const Op& op) {
  const Index channels = s.input[Dim::channel];
  s.check_at_least("filters", op.filters, 1);
  s.check_at_least("groups", op.groups, 1);
  if (channels % op.groups != 0 || op.filters % op.groups != 0) {
    s.refuse(
        "groups", std::to_string(op.groups),
        "a divisor of its " + std::to_string(channels) + " channels and " + std::to_string(op.filters) + " filters");
  }
  check_size("layer " + in_quotes(s.layer.name) + ", weight", weight_extents(op, channels));
}

Extents output_of(const Subject& s, const Convolution& op) {
  s.check_at_least("filters", op.filters, 1);
  Extents out = slide(s, op.window, false);
  check_filters(s, op);
  out[Dim::channel] = op.filters;
  return out;
}

Extents output_of(const Subject& s, const TransposedConvolution& op) {
  Extents out = s.input;
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    const std::string at = std::string(" in ") + views::name(d);
    const halo::Stencil1D t = stencil(op.window, i);
    const Index extra = op.output_padding[i];
    if (i < 3 - s.spatial_rank && (t != halo::Stencil1D{} || extra != 0)) {
      s.refuse("window" + at, "",
               "no window there: the network has " + std::to_string(s.spatial_rank) + " spatial dimensions");
    }
    check_window(s, t, at);
    s.check_at_least("output padding" + at, extra, 0);
    if (extra > 0 && extra >= std::max(t.stride, t.dilation)) {
      s.refuse("output padding" + at, std::to_string(extra), "less than the larger of stride and dilation");
    }
    // Replaces products that could overflow. The size check refuses it as too large.
    const Index limit = Index{1} << 40;
    const Index steps = s.input[d] - 1;
    const Index padded = (steps > limit / t.stride ? limit : steps * t.stride) + t.reach() + extra;
    if (padded <= t.pad_low + t.pad_high) {
      s.refuse("padding" + at, std::to_string(t.pad_low) + " and " + std::to_string(t.pad_high),
               "a sum below the " + std::to_string(padded) + " elements of the output without padding");
    }
    out[d] = padded - t.pad_low - t.pad_high;
  }
  check_filters(s, op);
  out[Dim::channel] = op.filters;
  return out;
}

// The maximum of no elements is undefined. So is their mean, unless the padding counts as zeros.
Extents output_of(const Subject& s, const Pooling& op) {
  return slide(s, op.window, op.kind == PoolingKind::max || !op.count_include_pad);
}

Extents output_of(const Subject& s, const BatchNorm& op) {
  if (op.scope == StatisticsScope::neighbours) s.check_at_least("ranks that share statistics", op.ranks, 1);
  if (!(op.momentum >= 0 && op.momentum <= 1)) s.refuse("momentum", std::to_string(op.momentum), "between 0 and 1");
  s.check_epsilon(op.epsilon);
  return s.input;
}

Extents output_of(const Subject& s, const GroupNorm& op) {
  const Index channels = s.input[Dim::channel];
  if (op.groups < 1 || channels % op.groups != 0) {
    s.refuse("groups", std::to_string(op.groups),
             "a divisor of the " + std::to_string(channels) + " channels of its input");
  }
  s.check_epsilon(op.epsilon);
  return s.input;
}

Extents output_of(const Subject& s, const LayerNorm& op) {
  s.check_epsilon(op.epsilon);
  return s.input;
}

Extents output_of(const Subject& s, const Relu&) { return s.input; }

Extents output_of(const Subject& s, const Flatten&) {
  const Extents& e = s.input;
  return {{e[Dim::sample], 1, 1, 1, e[Dim::depth] * e[Dim::height] * e[Dim::width] * e[Dim::channel]}};
}

Extents output_of(const Subject& s, const Dense& op) {
  s.check_at_least("features", op.features, 1);
  if (!is_flat(s.input)) {
    s.refuse("input", to_string(s.input), "no spatial extent (a flatten or global_average_pooling layer before it)");
  }
  return {{s.input[Dim::sample], 1, 1, 1, op.features}};
}

Extents output_of(const Subject& s, const GlobalAveragePooling&) {
  return {{s.input[Dim::sample], 1, 1, 1, s.input[Dim::channel]}};
}

Extents output_of(const Subject& s, const Add&) { return s.input; }

// Output extents of a layer whose windows follow from a range map.
void check_resampling(const Subject& s, const Extents& out) {
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    const std::string at = std::string(" in ") + views::name(d);
    if (i < 3 - s.spatial_rank && out[d] != 1) {
      s.refuse("output" + at, std::to_string(out[d]),
               "1: the network has " + std::to_string(s.spatial_rank) + " spatial dimensions");
    }
    constexpr Index largest = halo::RangeMap1D::largest;
    if (out[d] < 1 || out[d] > largest) {
      s.refuse("output" + at, std::to_string(out[d]), "between 1 and " + std::to_string(largest));
    }
    if (out[d] != s.input[d] && s.input[d] > largest) {
      s.refuse("input" + at, std::to_string(s.input[d]), "at most " + std::to_string(largest));
    }
  }
}

Extents output_of(const Subject& s, const AdaptivePooling& op) {
  Extents out = s.input;
  for (int i = 0; i < 3; ++i) out[views::spatial_dims[i]] = op.output[i];
  check_resampling(s, out);
  Index elements = 1;
  for (Dim d : views::spatial_dims) {
    const Index longest = halo::RangeMap1D{halo::RangeRule::adaptive, s.input[d], out[d]}.longest_window();
    if (longest > max_window_value / elements) {
      s.refuse("output", to_string(out), "windows of at most " + std::to_string(max_window_value) + " elements");
    }
    elements *= longest;
  }
  return out;
}

Extents output_of(const Subject& s, const Upsampling& op) {
  Extents out = s.input;
  for (int i = 0; i < 3; ++i) {
    const Dim d = views::spatial_dims[i];
    const std::string at = std::string(" in ") + views::name(d);
    s.check_at_least("scale" + at, op.scale[i], 1);
    s.check_at_least("output" + at, op.output[i], 0);
    if (op.output[i] > 0 && op.scale[i] > 1) {
      s.refuse("scale" + at, std::to_string(op.scale[i]), "1, because the output extent is given");
    }
    // The input extent is at most 2^62. A product that does not fit is refused as too large.
    const Index limit = halo::RangeMap1D::largest + 1;
    if (op.output[i] > 0) {
      out[d] = op.output[i];
    } else if (op.scale[i] > 1) {
      out[d] = s.input[d] > limit / op.scale[i] ? limit : s.input[d] * op.scale[i];
    }
  }
  check_resampling(s, out);
  return out;
}

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
    const bool is_sum = std::holds_alternative<Add>(layer.operation);
    if (is_sum ? layer.inputs.size() < 2 : layer.inputs.size() != 1) {
      throw InvalidArgument(infer_operation, subject + ", number of inputs", std::to_string(layer.inputs.size()),
                            std::string(is_sum ? "2 or more for " : "1 for ") + kind(layer.operation));
    }
    inputs_of.emplace_back();
    for (const std::string& name : layer.inputs) {
      const auto input = seen.find(name);
      if (input == seen.end()) {
        throw InvalidArgument(infer_operation, subject + ", input", in_quotes(name), "\"input\" or an earlier layer");
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

bool has_learned_scale(const Operation& op) {
  if (const auto* group_norm = std::get_if<GroupNorm>(&op)) return group_norm->affine;
  if (const auto* layer_norm = std::get_if<LayerNorm>(&op)) return layer_norm->affine;
  return std::holds_alternative<BatchNorm>(op);
}

}  // namespace

int find_layer(const NetworkDescription& network, const std::string& name) {
  if (name == "input") return -1;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    if (network.layers[i].name == name) return static_cast<int>(i);
  }
  throw InvalidArgument("aloni::nn::find_layer", "name", in_quotes(name),
                        "a layer of the network (" + names_of(network) + ")");
}

std::vector<Extents> infer_extents(const NetworkDescription& network, Index samples) {
  if (samples < 0) throw InvalidArgument(infer_operation, "samples", std::to_string(samples), "at least 0");
  check_input(network);
  const std::vector<std::vector<int>> inputs_of = check_graph(network);

  Extents input = network.input;
  input[Dim::sample] = samples;
  check_size("network input", input);

  std::vector<Extents> outputs;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    const LayerDescription& layer = network.layers[i];
    const auto extents_of = [&](int source) { return source < 0 ? input : outputs[source]; };
    const Subject subject{layer, network.spatial_rank, extents_of(inputs_of[i][0])};
    for (std::size_t k = 1; k < inputs_of[i].size(); ++k) {
      const Extents other = extents_of(inputs_of[i][k]);
      if (other != subject.input) {
        subject.refuse("input " + in_quotes(layer.inputs[k]), to_string(other),
                       to_string(subject.input) + ", the extents of its first input");
      }
    }
    outputs.push_back(std::visit([&](const auto& op) { return output_of(subject, op); }, layer.operation));
    check_size("layer " + in_quotes(layer.name) + ", output", outputs.back());
  }
  if (network.loss == Loss::softmax_cross_entropy && !is_flat(outputs.back())) {
    throw InvalidArgument(infer_operation, "layer " + in_quotes(network.layers.back().name) + ", output",
                          to_string(outputs.back()),
                          "no spatial extent, as softmax cross-entropy takes one vector per sample");
  }
  return outputs;
}

std::vector<ParameterDescription> parameters_of(const NetworkDescription& network) {
  const std::vector<Extents> outputs = infer_extents(network, 1);
  std::vector<ParameterDescription> parameters;
  for (int i = 0; i < static_cast<int>(network.layers.size()); ++i) {
    const LayerDescription& layer = network.layers[i];
    const int from = find_layer(network, layer.inputs[0]);
    const Index channels = (from < 0 ? network.input : outputs[from])[Dim::channel];
    const auto add = [&](const char* what, const Extents& extents, Index fan_in) {
      parameters.push_back({layer.name + "." + what, i, extents, fan_in});
    };
    const auto vector_of = [](Index n) { return Extents{{1, 1, 1, 1, n}}; };
    const auto add_convolution = [&](const auto& op) {
      const auto& k = op.window.kernel;
      const Index fan_in = k[0] * k[1] * k[2] * (channels / op.groups);
      add("weight", weight_extents(op, channels), fan_in);
      if (op.bias) add("bias", vector_of(op.filters), fan_in);
    };
    if (const auto* conv = std::get_if<Convolution>(&layer.operation)) {
      add_convolution(*conv);
    } else if (const auto* transposed = std::get_if<TransposedConvolution>(&layer.operation)) {
      add_convolution(*transposed);
    } else if (const auto* dense = std::get_if<Dense>(&layer.operation)) {
      add("weight", {{dense->features, 1, 1, 1, channels}}, channels);
      if (dense->bias) add("bias", vector_of(dense->features), channels);
    } else if (has_learned_scale(layer.operation)) {
      add("gamma", vector_of(channels), 1);
      add("beta", vector_of(channels), 1);
    }
  }
  return parameters;
}

}  // namespace aloni::nn
