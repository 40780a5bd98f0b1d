#pragma once
// Types of the elements of tensors, as plain data.
#include <aloni/core/index.hpp>

#include <cstdint>

namespace aloni::nn {

enum class ElementType : std::uint8_t { float32, float64, bfloat16, float16, int32 };

/// Types of 16 bits. Layers of such activations have parameters of float, and compute in float.
constexpr bool is_16_bit(ElementType type) { return type == ElementType::bfloat16 || type == ElementType::float16; }

constexpr Index bytes_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
    case ElementType::int32:
      return 4;
    case ElementType::float64:
      return 8;
    case ElementType::bfloat16:
    case ElementType::float16:
      break;
  }
  return 2;
}

}  // namespace aloni::nn
