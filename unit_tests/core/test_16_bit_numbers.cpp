// bfloat16 and float16: conversions from float and back.
#include <aloni/core/bfloat16.hpp>
#include <aloni/core/float16.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace aloni::comm {
namespace test_16_bit_numbers {

TEST(Bfloat16, RoundsToNearestEvenAndBack) {
  EXPECT_EQ(static_cast<float>(bfloat16(256.0F)), 256.0F);
  EXPECT_EQ(static_cast<float>(bfloat16(257.0F)), 256.0F);
  EXPECT_EQ(static_cast<float>(bfloat16(259.0F)), 260.0F);
  EXPECT_EQ(static_cast<float>(bfloat16(1.0F) + bfloat16(256.0F)), 256.0F);
  EXPECT_EQ(static_cast<double>(bfloat16(-0.5F)), -0.5);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(static_cast<float>(bfloat16(std::numeric_limits<float>::max()))));
  EXPECT_FALSE(bfloat16(std::numeric_limits<float>::quiet_NaN()) == bfloat16(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_TRUE(bfloat16(0.0F) == bfloat16(-0.0F));
  EXPECT_TRUE(bfloat16(-1.0F) < bfloat16(0.5F));
}

/// The value of a float16 by the definition of IEEE 754: sign, exponent and significand.
double value_of(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, significand = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return significand == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  return sign * (exponent == 0 ? std::ldexp(significand, -24) : std::ldexp(1024 + significand, exponent - 25));
}

TEST(Float16, AllValuesConvertExactlyAndBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    float16 x;
    x.bits = static_cast<std::uint16_t>(bits);
    const double value = value_of(x.bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(x))) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(float16(static_cast<float>(x))))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(x), value) << bits;
    ASSERT_EQ(std::signbit(static_cast<float>(x)), std::signbit(value)) << bits;
    ASSERT_EQ(float16(static_cast<float>(x)).bits, x.bits);
  }
}

/// Between two neighbours: below, at and above the middle.
TEST(Float16, RoundsToNearestEven) {
  for (std::uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = value_of(bits), high = value_of(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const std::uint16_t even = bits % 2 == 0 ? bits : static_cast<std::uint16_t>(bits + 1);
    ASSERT_EQ(float16(middle).bits, even) << low;
    ASSERT_EQ(float16(std::nextafter(middle, 0.0F)).bits, bits) << low;
    ASSERT_EQ(float16(std::nextafter(middle, 1e9F)).bits, bits + 1) << low;
    ASSERT_EQ(float16(-middle).bits, even | 0x8000) << low;
  }
}

TEST(Float16, BeyondItsRangeIsInfinityOrZero) {
  EXPECT_EQ(static_cast<float>(float16(65504.0F)), 65504.0F);
  EXPECT_EQ(static_cast<float>(float16(std::nextafter(65520.0F, 0.0F))), 65504.0F);
  for (const float large : {65520.0F, 65536.0F, 1e30F, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(static_cast<float>(float16(large)), std::numeric_limits<float>::infinity()) << large;
    EXPECT_EQ(static_cast<float>(float16(-large)), -std::numeric_limits<float>::infinity()) << large;
  }
  for (const float small : {0.0F, 1e-30F, std::ldexp(1.0F, -25), std::numeric_limits<float>::denorm_min()})
    EXPECT_EQ(float16(small).bits, 0) << small;
  EXPECT_EQ(float16(std::nextafter(std::ldexp(1.0F, -25), 1.0F)).bits, 1);
  EXPECT_EQ(float16(-0.0F).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(float16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Float16, AddsInFloatAndComparesAsFloat) {
  EXPECT_EQ(static_cast<float>(float16(1.0F) + float16(2048.0F)), 2048.0F);
  EXPECT_EQ(static_cast<float>(float16(3.0F) + float16(2048.0F)), 2052.0F);
  EXPECT_EQ(static_cast<double>(float16(-0.5F)), -0.5);
  float16 sum(1.5F);
  sum += float16(2.0F);
  EXPECT_EQ(static_cast<float>(sum), 3.5F);
  const float16 nan(std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(nan == nan);
  EXPECT_TRUE(float16(0.0F) == float16(-0.0F));
  EXPECT_TRUE(float16(-1.0F) < float16(0.5F));
}

static_assert(float16(1.0F).bits == 0x3c00 && static_cast<float>(float16(0.1F)) == 0.0999755859375F);

}  // namespace test_16_bit_numbers
}  // namespace aloni::comm
