#pragma once
// What a reduction does to elements of which type. Pure.
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace aloni::comm {

/// Minimum and maximum of anything with NaN are NaN.
enum class Reduction : std::uint8_t { sum, min, max, product };

enum class ElementType : std::uint8_t { bytes, float32, float64, int32, int64, uint64 };

template <class T>
constexpr ElementType element_type() {
  if constexpr (std::is_same_v<T, float>)
    return ElementType::float32;
  else if constexpr (std::is_same_v<T, double>)
    return ElementType::float64;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return ElementType::int32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return ElementType::int64;
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    return ElementType::uint64;
  else
    return ElementType::bytes;
}

constexpr std::size_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::bytes:
      return 1;
    case ElementType::float32:
    case ElementType::int32:
      return 4;
    default:
      return 8;
  }
}

}  // namespace aloni::comm
