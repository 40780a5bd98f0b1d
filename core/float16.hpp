#pragma once
// float16: the 16-bit floating-point number of IEEE 754 (binary16), with 11 significant bits and largest value 65504.
// It is a type for memory and messages. To compute, convert to float (exact) and back (rounds to nearest even; values
// that round to 65536 or more become infinity, and the smallest nonzero value is 2^-24).
//
//   float16 y(static_cast<float>(a) * static_cast<float>(b));
#include <bit>
#include <compare>
#include <cstdint>

namespace aloni::comm {

struct float16 {
  std::uint16_t bits = 0;

  constexpr float16() = default;
  constexpr explicit float16(float value) : bits(rounded(value)) {}
  constexpr explicit operator float() const {
    // Selections instead of branches, so that loops of conversions become vector instructions.
    constexpr std::uint32_t exponents = 0x7c00U << 13;
    const std::uint32_t shifted = (bits & 0x7fffU) << 13, exponent = shifted & exponents;
    const std::uint32_t normal = shifted + ((127U - 15U) << 23);
    const float subnormal = std::bit_cast<float>(normal + (1U << 23)) - std::bit_cast<float>((127U - 14U) << 23);
    const std::uint32_t special = normal + ((128U - 16U) << 23);  // infinity and NaN
    const std::uint32_t magnitude = exponent == 0           ? std::bit_cast<std::uint32_t>(subnormal)
                                    : exponent == exponents ? special
                                                            : normal;
    return std::bit_cast<float>(magnitude | (bits & 0x8000U) << 16);
  }
  constexpr explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }

  /// Adds in float and rounds once.
  friend constexpr float16 operator+(float16 a, float16 b) {
    return float16(static_cast<float>(a) + static_cast<float>(b));
  }
  constexpr float16& operator+=(float16 other) { return *this = *this + other; }

  // Compares as float: NaN is unequal to everything, 0 equals -0.
  friend constexpr bool operator==(float16 a, float16 b) { return static_cast<float>(a) == static_cast<float>(b); }
  friend constexpr std::partial_ordering operator<=>(float16 a, float16 b) {
    return static_cast<float>(a) <=> static_cast<float>(b);
  }

 private:
  static constexpr std::uint16_t rounded(float value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = all & 0x80000000U, magnitude = all ^ sign;
    constexpr std::uint32_t infinity = 0x7f800000U, too_large = (127U + 16U) << 23, least_normal = (127U - 14U) << 23;
    // 0.5 has the unit 2^-24 in its last place, the smallest float16: the sum rounds to it.
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    const std::uint32_t normal = (magnitude + (magnitude >> 13 & 1U) + 0xfffU - ((127U - 15U) << 23)) >> 13;
    const std::uint32_t special = magnitude > infinity ? 0x7e00U : 0x7c00U;
    const std::uint32_t result = magnitude >= too_large ? special : magnitude < least_normal ? subnormal : normal;
    return static_cast<std::uint16_t>(result | sign >> 16);
  }
};

}  // namespace aloni::comm
