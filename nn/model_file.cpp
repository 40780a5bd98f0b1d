#include <aloni/nn/model_file.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/nearest_name.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/nn/operation_members.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::nn {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* operation_name = "aloni::nn::read_model_file";
constexpr int format_version = 1;
constexpr Index largest_number = 1'000'000'000;  // of an extent, a kernel, a number of filters
constexpr std::array losses{Loss::softmax_cross_entropy, Loss::binary_cross_entropy, Loss::mean_squared_error,
                            Loss::pixel_cross_entropy, Loss::dice};

/// Windows have three dimensions in memory, and those of the network in a file.
using Triple = std::array<Index, 3>;

/// One default value of each operation.
template <std::size_t... I>
std::vector<Operation> operations(std::index_sequence<I...>) {
  return {std::variant_alternative_t<I, Operation>{}...};
}
const std::vector<Operation>& all_operations() {
  static const auto all = operations(std::make_index_sequence<std::variant_size_v<Operation>>());
  return all;
}

// --- writing ---

template <class T>
Json value_of(const T& value, int spatial_rank) {
  if constexpr (std::is_same_v<T, Triple>) {
    const std::vector<Index> present(value.end() - spatial_rank, value.end());
    if (std::ranges::count(present, present[0]) == spatial_rank) return present[0];
    return present;
  } else if constexpr (std::is_enum_v<T>) {
    return names_of(value)[static_cast<std::size_t>(value)];
  } else {
    return value;
  }
}

Json layer_to_json(const LayerDescription& layer, const std::string& before, int spatial_rank) {
  Json json{{"name", layer.name}, {"kind", kind(layer.operation)}};
  if (layer.inputs != std::vector{before}) json["inputs"] = layer.inputs;
  std::visit(
      [&](const auto& op) {
        const std::remove_cvref_t<decltype(op)> defaults{};
        std::vector<Json> of_defaults;
        visit_members(defaults, [&](const char*, const auto& v) { of_defaults.push_back(value_of(v, spatial_rank)); });
        std::size_t i = 0;
        visit_members(op, [&](const char* name, const auto& v) {
          Json value = value_of(v, spatial_rank);
          if (value != of_defaults[i++]) json[name] = std::move(value);
        });
      },
      layer.operation);
  return json;
}

// --- reading ---

/// The members of one JSON object. Errors name its place, for example "layer 3 (conv2)".
class Members {
 public:
  Members(const Json& object, const std::string& source, std::string place)
      : object_(object), source_(source), place_(std::move(place)) {
    if (!object.is_object()) fail(place_, text_of(object), "an object {…}");
  }

  /// Null if there is none. Each member that the object may have is asked for before check_unknown().
  const Json* find(const char* name) {
    known_.push_back(name);
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }

  const Json& get(const char* name, const char* expectation) {
    const Json* const found = find(name);
    if (!found) fail(member(name), "missing", expectation);
    return *found;
  }

  /// Throws for a member that no reader has asked for.
  void check_unknown() const {
    for (const auto& [name, value] : object_.items())
      if (std::ranges::find(known_, name) == known_.end()) fail(member(name), "unknown", one_of(name, known_));
  }

  std::string string(const char* name, const Json& value) const {
    if (!value.is_string()) fail(member(name), text_of(value), "a text \"…\"");
    return value.get<std::string>();
  }

  Index integer(const std::string& name, const Json& value, Index least) const {
    const bool fits = value.is_number_unsigned()
                          ? value.get<std::uint64_t>() <= largest_number
                          : value.is_number_integer() && value.get<std::int64_t>() <= largest_number;
    if (!fits || value.get<Index>() < least) {
      fail(member(name), text_of(value),
           "an integer from " + std::to_string(least) + " to " + std::to_string(largest_number));
    }
    return value.get<Index>();
  }

  template <class T>
  void set(const char* name, T& member_value, const Json& value, int spatial_rank) const {
    if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) fail(member(name), text_of(value), "true or false");
      member_value = value.get<bool>();
    } else if constexpr (std::is_same_v<T, double>) {
      if (!value.is_number() || !std::isfinite(value.get<double>())) fail(member(name), text_of(value), "a number");
      member_value = value.get<double>();
    } else if constexpr (std::is_same_v<T, Triple>) {
      set_triple(name, member_value, value, spatial_rank);
    } else if constexpr (std::is_enum_v<T>) {
      const auto names = names_of(member_value);
      const std::string text = string(name, value);
      const auto found = std::ranges::find(names, text);
      if (found == names.end())
        fail(member(name), text_of(value), one_of(text, std::vector<std::string>(names.begin(), names.end())));
      member_value = static_cast<T>(found - names.begin());
    } else {
      member_value = static_cast<T>(integer(name, value, 0));
    }
  }

  [[noreturn]] void fail(const std::string& argument, const std::string& found, const std::string& expectation) const {
    throw FileError(operation_name, printable(source_) + ", " + printable(argument), found, expectation);
  }
  std::string member(const std::string& name) const { return place_ + ", \"" + name + "\""; }
  static std::string text_of(const Json& value) {
    constexpr std::size_t most = 60;
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > most) text = text.substr(0, most) + "…";
    return printable(text);
  }

 private:
  /// One number for all dimensions, or a list with one number for each.
  void set_triple(const char* name, Triple& triple, const Json& value, int spatial_rank) const {
    const auto dimensions = static_cast<std::size_t>(spatial_rank);
    if (!value.is_array()) {
      std::fill(triple.end() - spatial_rank, triple.end(), integer(name, value, 0));
      return;
    }
    if (value.size() != dimensions) {
      fail(member(name), text_of(value),
           "a number, or a list of " + std::to_string(dimensions) + ", one for each spatial dimension of the input");
    }
    for (std::size_t d = 0; d < dimensions; ++d) triple[3 - dimensions + d] = integer(name, value[d], 0);
  }

  const Json& object_;
  const std::string& source_;
  std::string place_;
  std::vector<std::string> known_;
};

Operation operation_of(Members& members, int spatial_rank) {
  const std::string wanted = members.string("kind", members.get("kind", "the kind of the layer"));
  const auto& all = all_operations();
  const auto found = std::ranges::find_if(all, [&](const Operation& op) { return kind(op) == wanted; });
  if (found == all.end()) {
    std::vector<std::string> kinds;
    for (const Operation& op : all) kinds.emplace_back(kind(op));
    members.fail(members.member("kind"), Members::text_of(wanted), one_of(wanted, kinds));
  }
  Operation operation = *found;
  std::visit(
      [&](auto& op) {
        const auto set = [&](const char* name, auto& value) {
          if (const Json* const given = members.find(name)) members.set(name, value, *given, spatial_rank);
        };
        if constexpr (requires { op.window; }) {
          set("padding", op.window.pad_low);  // of both sides; pad_low and pad_high come after it
          op.window.pad_high = op.window.pad_low;
        }
        visit_members(op, set);
      },
      operation);
  return operation;
}

LayerDescription layer_of(const Json& json, const std::string& source, std::size_t number, const std::string& before,
                          int spatial_rank) {
  std::string place = "layer " + std::to_string(number);
  if (json.is_object() && json.contains("name") && json["name"].is_string())
    place += " (" + json["name"].get<std::string>() + ")";
  Members members(json, source, place);
  LayerDescription layer;
  layer.name = members.string("name", members.get("name", "the name of the layer"));
  layer.operation = operation_of(members, spatial_rank);
  layer.inputs = {before};
  if (const Json* const inputs = members.find("inputs")) {
    if (!inputs->is_array() || inputs->empty())
      members.fail(members.member("inputs"), Members::text_of(*inputs),
                   "a list of names of earlier layers, or \"input\"");
    layer.inputs.clear();
    for (const Json& input : *inputs) layer.inputs.push_back(members.string("inputs", input));
  }
  members.check_unknown();
  return layer;
}

/// A parser's callback cannot see that a name comes twice in an object; the sequence of its events shows it.
Json parse(std::string_view text, const std::string& source) {
  std::vector<std::vector<std::string>> open;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto name = parsed.get<std::string>();
      if (std::ranges::find(open.back(), name) != open.back().end()) twice = name;
      open.back().push_back(name);
    }
    return true;
  };
  try {
    Json json = Json::parse(text, watch);
    if (!twice.empty())
      throw FileError(operation_name, printable(source) + ", \"" + printable(twice) + "\"", "twice",
                      "once in an object");
    return json;
  } catch (const Json::exception& e) {
    throw FileError(operation_name, printable(source), printable(e.what()), "a network as JSON (docs/model_files.md)");
  }
}

}  // namespace

std::string to_json(const NetworkDescription& network) {
  Json json{{"aloni_network", format_version}};
  const auto& extents = network.input.values;
  json["input"] = std::vector<Index>(extents.end() - network.spatial_rank - 1, extents.end());
  json["loss"] = name(network.loss);
  if (network.label_smoothing > 0) json["label_smoothing"] = network.label_smoothing;
  json["layers"] = Json::array();
  std::string before = "input";
  for (const LayerDescription& layer : network.layers) {
    json["layers"].push_back(layer_to_json(layer, before, network.spatial_rank));
    before = layer.name;
  }
  // One line for each layer.
  std::string text = "{\n";
  for (const char* member : {"aloni_network", "input", "loss", "label_smoothing"})
    if (json.contains(member)) text += std::string("  \"") + member + "\": " + json[member].dump() + ",\n";
  text += "  \"layers\": [";
  const char* separator = "\n";
  for (const Json& layer : json["layers"]) {
    text += separator + std::string("    ") + layer.dump();
    separator = ",\n";
  }
  return text + "\n  ]\n}\n";
}

NetworkDescription network_from_json(std::string_view text, const std::string& source) {
  const Json json = parse(text, source);
  Members members(json, source, "the network");
  const Json& version = members.get("aloni_network", "1, the version of the format");
  if (version != format_version)
    members.fail(members.member("aloni_network"), Members::text_of(version), "1, the version that this library reads");
  NetworkDescription network;
  const Json& input = members.get("input", "the extents of one sample: height, width, channels");
  if (!input.is_array() || input.size() < 2 || input.size() > 4) {
    members.fail(members.member("input"), Members::text_of(input),
                 "a list of 2 to 4 numbers: one to three spatial extents, then the channels");
  }
  network.spatial_rank = static_cast<int>(input.size()) - 1;
  network.input.values.fill(1);
  for (std::size_t i = 0; i < input.size(); ++i)
    network.input.values[5 - input.size() + i] = members.integer("input", input[i], 1);

  const std::string wanted = members.string("loss", members.get("loss", "the name of the loss"));
  const auto loss = std::ranges::find_if(losses, [&](Loss l) { return name(l) == wanted; });
  if (loss == losses.end()) {
    std::vector<std::string> names;
    for (const Loss l : losses) names.emplace_back(name(l));
    members.fail(members.member("loss"), Members::text_of(wanted), one_of(wanted, names));
  }
  network.loss = *loss;
  if (const Json* const smoothing = members.find("label_smoothing"))
    members.set("label_smoothing", network.label_smoothing, *smoothing, network.spatial_rank);

  const Json& layers = members.get("layers", "the list of layers");
  if (!layers.is_array() || layers.empty())
    members.fail(members.member("layers"), Members::text_of(layers), "a list of at least one layer");
  members.check_unknown();
  std::string before = "input";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    network.layers.push_back(layer_of(layers[i], source, i + 1, before, network.spatial_rank));
    before = network.layers.back().name;
  }
  infer_extents(network, 1);
  return network;
}

NetworkDescription read_model_file(const std::string& path) {
  return network_from_json(read_text_file(operation_name, path, "a model file"), path);
}

}  // namespace aloni::nn
