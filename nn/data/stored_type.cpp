#include <aloni/nn/data/stored_type.hpp>

#include <array>
#include <utility>

namespace aloni::nn {

namespace {

constexpr std::array<std::pair<StoredType, const char*>, 7> types{{{StoredType::uint8, "uint8"},
                                                                   {StoredType::int8, "int8"},
                                                                   {StoredType::int16, "int16"},
                                                                   {StoredType::int32, "int32"},
                                                                   {StoredType::int64, "int64"},
                                                                   {StoredType::float32, "float32"},
                                                                   {StoredType::float64, "float64"}}};

}  // namespace

const char* name(StoredType type) { return types[static_cast<std::size_t>(type)].second; }

std::optional<StoredType> stored_type_of(const std::string& name) {
  for (const auto& [type, text] : types)
    if (name == text) return type;
  return std::nullopt;
}

std::string stored_type_names() {
  std::string all;
  for (const auto& [type, text] : types) all += (all.empty() ? "" : ", ") + std::string(text);
  return all;
}

Index bytes_of(StoredType type) {
  return with_stored_type(type, [](auto t) { return static_cast<Index>(sizeof(typename decltype(t)::type)); });
}

bool is_integer(StoredType type) { return type < StoredType::float32; }

}  // namespace aloni::nn
