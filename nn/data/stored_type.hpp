#pragma once
// The type of the elements of a data set, as a value.
#include <aloni/core/index.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

namespace aloni::nn {

enum class StoredType { uint8, int8, int16, int32, int64, float32, float64 };

/// "uint8", …, "float64".
const char* name(StoredType type);
/// The type with this name; nothing for other names.
std::optional<StoredType> stored_type_of(const std::string& name);
/// "uint8, int8, …": for error texts.
std::string stored_type_names();
/// Bytes of one element: 1, 2, 4 or 8.
Index bytes_of(StoredType type);
/// Whether elements can be labels.
bool is_integer(StoredType type);

/// f(std::type_identity<E>{}), where E is the C++ type of `type`.
template <class Function>
decltype(auto) with_stored_type(StoredType type, Function&& f) {
  switch (type) {
    case StoredType::uint8:
      return f(std::type_identity<std::uint8_t>{});
    case StoredType::int8:
      return f(std::type_identity<std::int8_t>{});
    case StoredType::int16:
      return f(std::type_identity<std::int16_t>{});
    case StoredType::int32:
      return f(std::type_identity<std::int32_t>{});
    case StoredType::int64:
      return f(std::type_identity<std::int64_t>{});
    case StoredType::float32:
      return f(std::type_identity<float>{});
    case StoredType::float64:
      break;
  }
  return f(std::type_identity<double>{});
}

}  // namespace aloni::nn
