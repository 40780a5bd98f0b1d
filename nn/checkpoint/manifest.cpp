#include <aloni/nn/checkpoint/manifest.hpp>

#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/checkpoint/manifest_checks.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>
#include <utility>

namespace aloni::nn::checkpoint {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char* format = "aloni checkpoint";
constexpr std::int64_t version = 1;

// The end of the text: ,"crc32c":"01234567"} and a newline.
constexpr std::string_view before_checksum = R"(,"crc32c":")";
constexpr std::string_view after_checksum = "\"}\n";
constexpr std::size_t checksum_digits = 8;
constexpr std::size_t end_length = before_checksum.size() + checksum_digits + after_checksum.size();

std::string checksum_of(std::string_view body) {
  char digits[checksum_digits + 1];
  std::snprintf(digits, sizeof digits, "%08x", comm::detail::crc32c(body.data(), body.size()));
  return digits;
}

Json json_of(const views::Box& box) { return Json::array({box.lo, box.hi}); }

/// JSON has no NaN and no infinity.
Json json_of(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

Json json_of(const NamedValues& state) {
  Json numbers = Json::object();
  for (const auto& [name, value] : state.numbers) numbers[name] = json_of(value);
  return {{"integers", state.integers}, {"numbers", std::move(numbers)}, {"texts", state.texts}};
}

[[noreturn]] void refuse(const std::string& path, const std::string& value, const std::string& expectation) {
  throw FileError("aloni::nn::checkpoint", path, value, expectation);
}

/// Reads members with checks. Errors name the place in the manifest.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  const Json& member(const Json& object, const char* name, const std::string& place) const {
    if (!object.is_object()) refuse(path_, place + " is no object", "a JSON object");
    const auto found = object.find(name);
    if (found == object.end()) refuse(path_, place + " has no member " + name, "a whole manifest");
    return *found;
  }
  std::int64_t integer(const Json& value, const std::string& place) const {
    const bool fits =
        value.is_number_integer() &&
        (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max());
    if (!fits) refuse(path_, place + " is " + brief(value), "an integer of 64 bits");
    return value.get<std::int64_t>();
  }
  std::int64_t at_least_0(const Json& value, const std::string& place) const {
    const std::int64_t i = integer(value, place);
    if (i < 0) refuse(path_, place + " is " + std::to_string(i), "at least 0");
    return i;
  }
  double number(const Json& value, const std::string& place) const {
    if (value.is_number()) return value.get<double>();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
    refuse(path_, place + " is " + brief(value), "a number, \"nan\", \"inf\" or \"-inf\"");
  }
  std::string text(const Json& value, const std::string& place) const {
    if (!value.is_string()) refuse(path_, place + " is " + brief(value), "a string");
    return value.get<std::string>();
  }
  const Json& array(const Json& value, const std::string& place) const {
    if (!value.is_array()) refuse(path_, place + " is " + brief(value), "an array");
    return value;
  }
  std::array<Index, views::num_dims> indices(const Json& value, const std::string& place) const {
    std::array<Index, views::num_dims> result{};
    if (array(value, place).size() != result.size()) refuse(path_, place + " is " + brief(value), "five integers");
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = at_least_0(value[i], place);
    return result;
  }

 private:
  static std::string brief(const Json& value) {
    constexpr std::size_t most = 40;
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= most ? text : text.substr(0, most) + "…";
  }

  const std::string& path_;
};

NamedValues state_of(const Reader& reader, const Json& json) {
  NamedValues state;
  const auto each = [&](const char* group, const auto& add) {
    const Json& members = reader.member(json, group, "state");
    if (!members.is_object()) reader.member(members, "", std::string("state.") + group);  // throws
    for (const auto& [name, value] : members.items()) add(name, value, std::string("state.") + group + "." + name);
  };
  each("integers", [&](auto& name, auto& v, const auto& at) { state.integers[name] = reader.integer(v, at); });
  each("numbers", [&](auto& name, auto& v, const auto& at) { state.numbers[name] = reader.number(v, at); });
  each("texts", [&](auto& name, auto& v, const auto& at) { state.texts[name] = reader.text(v, at); });
  return state;
}

Block block_of(const Reader& reader, const Json& json, const std::string& place) {
  Block block;
  const Json& box = reader.array(reader.member(json, "box", place), place + ".box");
  if (box.size() != 2) reader.indices(Json::array(), place + ".box");  // throws
  block.box = {reader.indices(box[0], place + ".box"), reader.indices(box[1], place + ".box")};
  block.file = reader.text(reader.member(json, "file", place), place + ".file");
  block.offset = reader.at_least_0(reader.member(json, "offset", place), place + ".offset");
  block.bytes = reader.at_least_0(reader.member(json, "bytes", place), place + ".bytes");
  const std::int64_t checksum = reader.at_least_0(reader.member(json, "crc32c", place), place + ".crc32c");
  constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
  reader.at_least_0(most - checksum, place + ".crc32c, subtracted from 2^32 - 1,");
  block.crc32c = static_cast<std::uint32_t>(checksum);
  return block;
}

SavedTensor tensor_of(const Reader& reader, const Json& json, const std::string& path, std::size_t number) {
  SavedTensor tensor;
  std::string place = "tensor " + std::to_string(number);
  tensor.name = reader.text(reader.member(json, "name", place), place + ".name");
  place += " (" + tensor.name + ")";
  const std::string type = reader.text(reader.member(json, "type", place), place + ".type");
  if (type != "float32" && type != "float64") refuse(path, place + ".type is " + type, "float32 or float64");
  tensor.type = type == "float32" ? ElementType::float32 : ElementType::float64;
  tensor.extents.values = reader.indices(reader.member(json, "extents", place), place + ".extents");
  const Json& blocks = reader.array(reader.member(json, "blocks", place), place + ".blocks");
  for (std::size_t i = 0; i < blocks.size(); ++i)
    tensor.blocks.push_back(block_of(reader, blocks[i], place + ", block " + std::to_string(i)));
  return tensor;
}

/// The text without its end. Throws FileError for a wrong checksum.
std::string_view checked_body(std::string_view text, const std::string& path) {
  const auto refuse_torn = [&] {
    refuse(path, "has no checksum at its end: it is torn or no manifest", "a manifest of aloni");
  };
  if (text.size() < end_length) refuse_torn();
  const std::string_view body = text.substr(0, text.size() - end_length), end = text.substr(body.size());
  if (!end.starts_with(before_checksum) || !end.ends_with(after_checksum)) refuse_torn();
  const std::string found(end.substr(before_checksum.size(), checksum_digits)), computed = checksum_of(body);
  if (found != computed) refuse(path, "has the CRC32C " + computed, found + ", as its end says");
  return body;
}

Manifest parse(const std::string& text, const std::string& path, bool covers) {
  const std::string body = std::string(checked_body(text, path)) + "}";
  const Json json = Json::parse(body, nullptr, false);
  if (json.is_discarded()) refuse(path, "is no JSON", "a manifest of aloni");
  const Reader reader(path);
  const std::string found = reader.text(reader.member(json, "format", "manifest"), "format");
  if (found != format) refuse(path, "format is " + found, format);
  const std::int64_t number = reader.integer(reader.member(json, "version", "manifest"), "version");
  if (number != version)
    refuse(path, "version is " + std::to_string(number), std::to_string(version) + ", the version of this program");
  Manifest manifest;
  manifest.step = reader.at_least_0(reader.member(json, "step", "manifest"), "step");
  manifest.state = state_of(reader, reader.member(json, "state", "manifest"));
  const Json& tensors = reader.array(reader.member(json, "tensors", "manifest"), "tensors");
  for (std::size_t i = 0; i < tensors.size(); ++i) manifest.tensors.push_back(tensor_of(reader, tensors[i], path, i));
  detail::check_blocks(manifest, path, covers);
  return manifest;
}

}  // namespace

std::string data_file_name(int rank) { return "rank-" + std::to_string(rank) + ".bin"; }

std::string to_json(const Manifest& manifest) {
  Json json{{"format", format}, {"version", version}, {"step", manifest.step}, {"state", json_of(manifest.state)}};
  Json& tensors = json["tensors"] = Json::array();
  for (const SavedTensor& tensor : manifest.tensors) {
    Json blocks = Json::array();
    for (const Block& b : tensor.blocks)
      blocks.push_back(
          {{"box", json_of(b.box)}, {"file", b.file}, {"offset", b.offset}, {"bytes", b.bytes}, {"crc32c", b.crc32c}});
    tensors.push_back({{"name", tensor.name},
                       {"type", name(tensor.type)},
                       {"extents", tensor.extents.values},
                       {"blocks", std::move(blocks)}});
  }
  std::string body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  body.pop_back();  // the brace; the checksum follows as the last member
  const std::string checksum = checksum_of(body);
  return body.append(before_checksum).append(checksum).append(after_checksum);
}

Manifest parse_manifest(const std::string& text, const std::string& path) { return parse(text, path, true); }

Manifest parse_part(const std::string& text, const std::string& path) { return parse(text, path, false); }

void merge(Manifest& whole, const Manifest& part) {
  std::map<std::string, std::size_t> positions;
  for (std::size_t i = 0; i < whole.tensors.size(); ++i) positions[whole.tensors[i].name] = i;
  for (const SavedTensor& tensor : part.tensors) {
    const auto found = positions.find(tensor.name);
    if (found == positions.end()) {
      whole.tensors.push_back(tensor);
    } else {
      auto& blocks = whole.tensors[found->second].blocks;
      blocks.insert(blocks.end(), tensor.blocks.begin(), tensor.blocks.end());
    }
  }
}

const char* name(ElementType type) { return type == ElementType::float64 ? "float64" : "float32"; }

}  // namespace aloni::nn::checkpoint
