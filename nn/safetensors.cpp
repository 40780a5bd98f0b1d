#include <aloni/nn/safetensors.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/nearest_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>

namespace aloni::nn {

using Json = nlohmann::ordered_json;

namespace {

constexpr const char* metadata_name = "__metadata__";
constexpr Index length_bytes = 8;
constexpr Index most_header_bytes = 100'000'000;  // of the format

[[noreturn]] void refuse(const std::string& path, const std::string& value, const std::string& expectation) {
  throw FileError("aloni::nn::Safetensors", path, value, expectation);
}

/// Bytes per element of each type of the format; none for an unknown type.
std::optional<Index> bytes_of_type(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, Index>, 15> types{{{"F64", 8},
                                                                      {"F32", 4},
                                                                      {"F16", 2},
                                                                      {"BF16", 2},
                                                                      {"I64", 8},
                                                                      {"I32", 4},
                                                                      {"I16", 2},
                                                                      {"I8", 1},
                                                                      {"U64", 8},
                                                                      {"U32", 4},
                                                                      {"U16", 2},
                                                                      {"U8", 1},
                                                                      {"BOOL", 1},
                                                                      {"F8_E4M3", 1},
                                                                      {"F8_E5M2", 1}}};
  for (const auto& [name, bytes] : types)
    if (name == type) return bytes;
  return std::nullopt;
}

const char* name_of(ElementType type) {
  return type == ElementType::float64    ? "F64"
         : type == ElementType::bfloat16 ? "BF16"
         : type == ElementType::float16  ? "F16"
                                         : "F32";
}

std::string header_of(io::FileSystem& files, const std::string& path, Index size) {
  if (size < 0)
    refuse(path, "missing, or no regular file",
           "a file of tensors in the format safetensors" + did_you_mean_file(path));
  std::array<std::uint8_t, length_bytes> bytes{};
  if (size < length_bytes) refuse(path, "has " + std::to_string(size) + " bytes", "at least 8 bytes");
  files.read(path, 0, std::as_writable_bytes(std::span(bytes)));
  std::uint64_t length = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) length = length << 8 | bytes[i];
  if (length > static_cast<std::uint64_t>(std::min(most_header_bytes, size - length_bytes)))
    refuse(path, "has a header of " + std::to_string(length) + " bytes", "a header within the file, of at most 100 MB");
  std::string header(length, '\0');
  files.read(path, length_bytes, std::as_writable_bytes(std::span(header)));
  return header;
}

/// A member of the header that is an array of integers of at least 0.
std::vector<Index> integers(const Json& entry, const char* member, const std::string& path, const std::string& name) {
  const auto found = entry.find(member);
  std::vector<Index> values;
  bool good = found != entry.end() && found->is_array();
  if (good) {
    for (const Json& value : *found) {
      good = good && value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t{max_bytes};
      if (good) values.push_back(value.get<Index>());
    }
  }
  if (!good) refuse(path, "tensor " + name + " has wrong " + member, "an array of integers of at least 0");
  return values;
}

Safetensors::Entry entry_of(const Json& json, const std::string& path, const std::string& name) {
  Safetensors::Entry entry;
  const auto type = json.is_object() ? json.find("dtype") : json.end();
  if (!json.is_object() || type == json.end() || !type->is_string())
    refuse(path, "tensor " + name + " has no dtype", "an object with dtype, shape and data_offsets");
  entry.type = type->get<std::string>();
  entry.shape = integers(json, "shape", path, name);
  const std::vector<Index> offsets = integers(json, "data_offsets", path, name);
  const auto element_bytes = bytes_of_type(entry.type);
  if (!element_bytes) refuse(path, "tensor " + name + " has the type " + entry.type, "a type of safetensors");
  if (offsets.size() != 2 || offsets[1] < offsets[0])
    refuse(path, "tensor " + name + " has wrong data_offsets", "begin and end");
  Index bytes = *element_bytes;
  for (const Index extent : entry.shape) bytes = saturating_product(bytes, extent);
  if (offsets[1] - offsets[0] != bytes)
    refuse(path, "tensor " + name + " has " + std::to_string(offsets[1] - offsets[0]) + " bytes",
           std::to_string(bytes) + ", as its shape says");
  entry.offset = offsets[0];
  entry.bytes = bytes;
  return entry;
}

}  // namespace

Safetensors::Safetensors(io::FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {
  const Index size = files_.size(path_);
  const std::string text = header_of(files_, path_, size);
  // Of two tensors with one name one is lost, and its data are a gap.
  const Json header = Json::parse(text, nullptr, false);
  if (!header.is_object()) refuse(path_, "has a header that is no JSON object", "a file of safetensors");
  const Index begin = length_bytes + static_cast<Index>(text.size());
  std::vector<std::tuple<Index, Index, std::string>> ranges;
  for (const auto& [name, json] : header.items()) {
    if (name == metadata_name) {
      if (!json.is_object()) refuse(path_, "has __metadata__ that is no object", "an object of strings");
      for (const auto& [key, value] : json.items())
        if (value.is_string()) metadata_[key] = value.get<std::string>();
      continue;
    }
    Entry entry = entry_of(json, path_, name);
    ranges.emplace_back(entry.offset, entry.bytes, name);
    entry.offset += begin;
    entries_[name] = std::move(entry);
  }
  std::ranges::sort(ranges);
  Index next = 0;
  for (const auto& [offset, bytes, name] : ranges) {
    if (offset != next)
      refuse(path_, "tensor " + name + " begins at byte " + std::to_string(offset) + " of the data",
             std::to_string(next) + ", the end of the tensor before");
    next = offset + bytes;
  }
  if (begin + next != size)
    refuse(path_, "has " + std::to_string(size) + " bytes", std::to_string(begin + next) + ", as its header says");
}

void Safetensors::read(const std::string& name, std::span<std::byte> bytes) const {
  files_.read(path_, entries_.at(name).offset, bytes);
}

std::optional<ElementType> element_type_of(const std::string& type) {
  for (const ElementType some :
       {ElementType::float32, ElementType::float64, ElementType::bfloat16, ElementType::float16})
    if (type == name_of(some)) return some;
  return std::nullopt;
}

void write_safetensors(io::FileSystem& files, const std::string& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[metadata_name] = metadata;
  std::size_t offset = 0;
  for (const NamedTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", name_of(tensor.type)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');  // the data are aligned
  std::string length(static_cast<std::size_t>(length_bytes), '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  std::vector<std::string_view> parts{length, text};
  for (const NamedTensor& tensor : tensors)
    parts.emplace_back(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  io::write_file(files, path, parts);
}

}  // namespace aloni::nn
