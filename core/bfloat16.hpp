#pragma once
// bfloat16: a 16-bit floating-point number with the range of float. Its bits are the upper half of a float.
// It is a type for memory and messages. To compute, convert to float (exact) and back (rounds to nearest even).
//
//   bfloat16 y(static_cast<float>(a) * static_cast<float>(b));
#include <bit>
#include <compare>
#include <cstdint>

namespace aloni::comm {

struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() = default;
  constexpr explicit bfloat16(float value) {
    const auto b = std::bit_cast<std::uint32_t>(value);
    const bool nan = (b & 0x7fffffffU) > 0x7f800000U;
    bits = static_cast<std::uint16_t>(nan ? b >> 16 | 0x40U : (b + 0x7fffU + (b >> 16 & 1U)) >> 16);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
  constexpr explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }

  /// Adds in float and rounds once.
  friend constexpr bfloat16 operator+(bfloat16 a, bfloat16 b) {
    return bfloat16(static_cast<float>(a) + static_cast<float>(b));
  }
  constexpr bfloat16& operator+=(bfloat16 other) { return *this = *this + other; }

  // Compares as float: NaN is unequal to everything, 0 equals -0.
  friend constexpr bool operator==(bfloat16 a, bfloat16 b) { return static_cast<float>(a) == static_cast<float>(b); }
  friend constexpr std::partial_ordering operator<=>(bfloat16 a, bfloat16 b) {
    return static_cast<float>(a) <=> static_cast<float>(b);
  }
};

}  // namespace aloni::comm
