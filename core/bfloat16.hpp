#pragma once
// A floating-point number of 16 bits with the range of a float: the upper half of one. Memory and messages hold it; who computes converts to
// float, which is exact, and back, which rounds once, to nearest even.
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

  /// The sum in float, rounded.
  friend constexpr bfloat16 operator+(bfloat16 a, bfloat16 b) {
    return bfloat16(static_cast<float>(a) + static_cast<float>(b));
  }
  constexpr bfloat16& operator+=(bfloat16 other) { return *this = *this + other; }

  // By value: a NaN equals nothing, 0 equals -0.
  friend constexpr bool operator==(bfloat16 a, bfloat16 b) { return static_cast<float>(a) == static_cast<float>(b); }
  friend constexpr std::partial_ordering operator<=>(bfloat16 a, bfloat16 b) {
    return static_cast<float>(a) <=> static_cast<float>(b);
  }
};

}  // namespace aloni::comm
