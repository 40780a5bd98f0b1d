#include <aloni/model/quantity_text.hpp>

#include <gtest/gtest.h>

#include <limits>

namespace aloni::model {
namespace test_quantity_text {

TEST(QuantityText, BytesHaveTheLargestUnitBelowTenThousand) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(812), "812 B");
  EXPECT_EQ(bytes_text(10'239), "10239 B");
  EXPECT_EQ(bytes_text(10'240), "10.0 KiB");
  EXPECT_EQ(bytes_text(17'715), "17.3 KiB");
  EXPECT_EQ(bytes_text(Index{1} << 31), "2048.0 MiB");
  EXPECT_EQ(bytes_text(std::numeric_limits<Index>::max()), "8388608.0 TiB");
  EXPECT_EQ(bytes_text(-20'480), "-20480 B");
}

TEST(QuantityText, LimitsOfBytesAreWholeUnits) {
  EXPECT_EQ(whole_bytes_text(1 << 20), "1 MiB");
  EXPECT_EQ(whole_bytes_text(3 << 19), "1536 KiB");
  EXPECT_EQ(whole_bytes_text(1 << 18), "256 KiB");
  EXPECT_EQ(whole_bytes_text(1000), "0 KiB");
}

TEST(QuantityText, SecondsOfColumnsHaveThreeDigits) {
  EXPECT_EQ(seconds_text(0), "0 s");
  EXPECT_EQ(seconds_text(1.2345), "1.23 s");
  EXPECT_EQ(seconds_text(12345), "12345 s");
  EXPECT_EQ(seconds_text(0.012345), "12.3 ms");
  EXPECT_EQ(seconds_text(0.99999), "1.00 s");
  EXPECT_EQ(seconds_text(456e-6), "456 us");
  EXPECT_EQ(seconds_text(1e-9), "1.00 ns");
}

TEST(QuantityText, DurationsOfSentencesHaveNoZerosAtTheEnd) {
  EXPECT_EQ(duration_text(0.5), "500 ms");
  EXPECT_EQ(duration_text(1.2), "1.2 s");
  EXPECT_EQ(duration_text(12.345e-3), "12.3 ms");
  EXPECT_EQ(duration_text(5e-7), "0.5 us");
  EXPECT_EQ(duration_text(-2e-3), "-2 ms");
  EXPECT_EQ(duration_text(1234.5), "1.23e+03 s");
}

TEST(QuantityText, MicrosecondsHaveNoUnit) {
  EXPECT_EQ(microseconds_text(-1), "-");
  EXPECT_EQ(microseconds_text(1.234e-6), "1.23");
  EXPECT_EQ(microseconds_text(1.234e-4), "123");
}

TEST(QuantityText, Numbers) {
  EXPECT_EQ(number_text(61706), "61.7 k");
  EXPECT_EQ(number_text(9999), "9999");
  EXPECT_EQ(number_text(1.5e21), "1500000.0 P");
  EXPECT_EQ(three_digits_text(12.345), "12.3");
  EXPECT_EQ(three_digits_text(999.4), "999");
  EXPECT_EQ(three_digits_text(1234.5), "1234");
  EXPECT_EQ(six_digits_text(0.001), "0.001");
  EXPECT_EQ(six_digits_text(1e16), "1e+16");
  EXPECT_EQ(six_digits_text(1048576), "1.04858e+06");
  EXPECT_EQ(number_text(1e300).size(), 290u);  // digits, ".0" and the unit
}

TEST(QuantityText, SharesAndRates) {
  EXPECT_EQ(percent_text(0.1234), "12.3 %");
  EXPECT_EQ(percent_text(-1), "-");
  EXPECT_EQ(rate_text(12.34e9, "flop"), "12.3 Gflop/s");
  EXPECT_EQ(rate_text(0, "B"), "not measured");
}

TEST(QuantityText, Counts) {
  EXPECT_EQ(count_text(1, "message"), "1 message");
  EXPECT_EQ(count_text(0, "message"), "0 messages");
  EXPECT_EQ(ranks_text(6, 3), "6 ranks on 2 nodes");
  EXPECT_EQ(ranks_text(1, 0), "1 rank on 1 node");
}

}  // namespace test_quantity_text
}  // namespace aloni::model
