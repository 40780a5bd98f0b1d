#pragma once
// Types of the elements of tensors, as plain data.
#include <aloni/core/bfloat16.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/core/index.hpp>
#include <aloni/nn/compiled_activations.hpp>

#include <cstdint>
#include <type_traits>

namespace aloni::nn {

enum class ElementType : std::uint8_t { float32, float64, bfloat16, float16, int32 };

/// T: float, double, comm::bfloat16, comm::float16.
template <class T>
inline constexpr ElementType element_type = std::is_same_v<T, comm::bfloat16>  ? ElementType::bfloat16
                                            : std::is_same_v<T, comm::float16> ? ElementType::float16
                                            : std::is_same_v<T, double>        ? ElementType::float64
                                                                               : ElementType::float32;

/// Whether this build computes networks with activations of T (CMake option aloni_ACTIVATIONS).
template <class T>
inline constexpr bool has_activations = std::is_same_v<T, double>           ? ALONI_HAS_DOUBLE != 0
                                        : std::is_same_v<T, comm::bfloat16> ? ALONI_HAS_BFLOAT16 != 0
                                        : std::is_same_v<T, comm::float16>  ? ALONI_HAS_FLOAT16 != 0
                                                                            : std::is_same_v<T, float>;

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
