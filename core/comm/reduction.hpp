#pragma once
// Reductions: built-in ones, and functions of the user's. Pure.
//
//   comm.all_reduce(std::span(values), Reduction::sum);
//   comm.all_reduce(std::span(pairs),
//                   user_operation<Pair>([](const Pair& a, const Pair& b) { return a.x < b.x ? a : b; }));
#include <aloni/core/bfloat16.hpp>
#include <aloni/core/float16.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace aloni::comm {

/// Minimum and maximum are NaN if any value is NaN. The average is the sum times 1 / ranks, for floating-point types
/// only.
/// Reductions of bfloat16 and float16 are computed in float and rounded once.
enum class Reduction : std::uint8_t { sum, min, max, product, average };

enum class ElementType : std::uint8_t { bytes, float32, float64, int32, int64, uint64, bfloat16, float16, user };

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
  else if constexpr (std::is_same_v<T, float16>)
    return ElementType::float16;
  else if constexpr (std::is_same_v<T, std::byte>)
    return ElementType::bytes;
  else
    return ElementType::user;
}

/// The local work of a reduction: functions that combine two arrays of elements.
struct ElementOperation {
  /// to[i] = first[i] ∘ second[i]. `to` may be either operand. Operands may be aligned to 8 bytes only.
  using Combine = void (*)(const void* state, void* to, const void* first, const void* second, std::size_t count);
  /// a[i] = b[i] = a[i] ∘ b[i]
  using CombineBoth = void (*)(const void* state, void* a, void* b, std::size_t count);

  ElementType type = ElementType::bytes;
  Reduction reduction = Reduction::sum;
  std::size_t element_bytes = 1;
  Combine combine = nullptr;
  CombineBoth combine_both = nullptr;
  std::uint32_t identity = 0;  ///< tells functions of the user's apart; equal on all ranks for the same function
  std::shared_ptr<const void> state = nullptr;
};

/// The built-in reduction of T: float, double, std::int32_t, std::int64_t, std::uint64_t; of an average the sum.
/// Throws InvalidArgument for an average of integers.
template <class T>
ElementOperation element_operation(Reduction reduction);

/// A function of the user's, T(const T&, const T&). @pre it is associative
/// It need not be commutative: lower ranks come first. Only the algorithms ring and hierarchical keep no order; they
/// are taken only when CollectiveOptions::algorithm names them.
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
  // Names of types are equal in all processes of one program.
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
