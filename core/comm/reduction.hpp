#pragma once
// What a reduction does to elements of which type. Pure.
//
//   comm.all_reduce(std::span(values), Reduction::sum);
//   comm.all_reduce(std::span(pairs), user_operation<Pair>([](const Pair& a, const Pair& b) { return a.x < b.x ? a : b; }));
#include <aloni/core/bfloat16.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace aloni::comm {

/// Minimum and maximum of anything with NaN are NaN. The average is the sum times 1 / ranks, of floating-point numbers only. A reduction of
/// bfloat16 is computed in float and rounded once.
enum class Reduction : std::uint8_t { sum, min, max, product, average };

enum class ElementType : std::uint8_t { bytes, float32, float64, int32, int64, uint64, bfloat16, user };

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
  else if constexpr (std::is_same_v<T, bfloat16>)
    return ElementType::bfloat16;
  else if constexpr (std::is_same_v<T, std::byte>)
    return ElementType::bytes;
  else
    return ElementType::user;
}

/// The local work of a reduction: how two arrays of elements become one.
struct ElementOperation {
  /// to[i] = first[i] ∘ second[i]; `to` may be either operand. Operands need not be aligned beyond 8 bytes.
  using Combine = void (*)(const void* state, void* to, const void* first, const void* second, std::size_t count);
  /// a[i] = b[i] = a[i] ∘ b[i]
  using CombineBoth = void (*)(const void* state, void* a, void* b, std::size_t count);

  ElementType type = ElementType::bytes;
  Reduction reduction = Reduction::sum;
  std::size_t element_bytes = 1;
  Combine combine = nullptr;
  CombineBoth combine_both = nullptr;
  std::uint32_t identity = 0;  ///< of a user's: equal on all ranks that mean the same
  std::shared_ptr<const void> state = nullptr;
};

/// T: float, double, std::int32_t, std::int64_t, std::uint64_t. Throws InvalidArgument: an average of integers.
template <class T>
ElementOperation element_operation(Reduction reduction);

/// A function of the user's, T(const T&, const T&), associative; not necessarily commutative: lower ranks come first, unless
/// CollectiveOptions asks for an algorithm that keeps no order (ring, hierarchical).
template <class T, class F>
ElementOperation user_operation(F f) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>, "elements travel as bytes");
  static_assert(std::is_invocable_r_v<T, const F&, const T&, const T&>, "T(const T&, const T&)");
  struct Loops {
    static T get(const void* array, std::size_t i) {
      T value;
      std::memcpy(&value, static_cast<const std::byte*>(array) + i * sizeof(T), sizeof(T));
      return value;
    }
    static void put(void* array, std::size_t i, const T& value) {
      std::memcpy(static_cast<std::byte*>(array) + i * sizeof(T), &value, sizeof(T));
    }
    static void combine(const void* state, void* to, const void* first, const void* second, std::size_t count) {
      const F& function = *static_cast<const F*>(state);
      for (std::size_t i = 0; i < count; ++i) put(to, i, function(get(first, i), get(second, i)));
    }
    static void combine_both(const void* state, void* a, void* b, std::size_t count) {
      combine(state, a, a, b, count);
      std::memcpy(b, a, count * sizeof(T));
    }
  };
  // The names of types are the same in all processes of one program.
  std::uint32_t identity = 2166136261u;
  for (const char* name : {typeid(T).name(), typeid(F).name()}) {
    for (; *name; ++name) identity = (identity ^ static_cast<unsigned char>(*name)) * 16777619u;
  }
  return {.type = ElementType::user,
          .element_bytes = sizeof(T),
          .combine = Loops::combine,
          .combine_both = Loops::combine_both,
          .identity = identity,
          .state = std::make_shared<const F>(std::move(f))};
}

}  // namespace aloni::comm
