#include <aloni/core/comm/engine/reducer.hpp>
#include <aloni/core/comm/reduction.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace test_reducer {

using namespace aloni::comm;

/// `count` elements of each operand; operand r, element i holds i + r. All operands become the sum.
template <class T, class ValueOf>
void expect_sums(const ElementOperation& operation, std::size_t operands, std::size_t count, ValueOf value_of) {
  std::vector<std::vector<T>> values(operands, std::vector<T>(count));
  std::vector<std::byte*> pointers;
  for (std::size_t r = 0; r < operands; ++r) {
    for (std::size_t i = 0; i < count; ++i) value_of(values[r][i]) = static_cast<std::int64_t>(i + r);
    pointers.push_back(reinterpret_cast<std::byte*>(values[r].data()));
  }
  detail::combine_all(operation, pointers, count);
  for (std::size_t r = 0; r < operands; ++r) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto sum = static_cast<std::int64_t>(operands * i + operands * (operands - 1) / 2);
      ASSERT_EQ(value_of(values[r][i]), operands < 2 ? static_cast<std::int64_t>(i) : sum) << r << " " << i;
    }
  }
}

TEST(Reducer, AddsAnyNumberOfOperandsAndElements) {
  for (const std::size_t operands : {1, 2, 3, 4, 5, 8, 13, 64}) {
    for (const std::size_t count : {0, 1, 511, 512, 513, 3000})
      expect_sums<std::int64_t>(element_operation<std::int64_t>(Reduction::sum), operands, count,
                                [](std::int64_t& v) -> std::int64_t& { return v; });
  }
}

TEST(Reducer, AddsElementsLargerThanItsBlocks) {
  struct Large {
    std::array<std::int64_t, 700> values;  // 5600 bytes
  };
  const auto operation = user_operation<Large>([](const Large& a, const Large& b) {
    Large sum = a;
    for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += b.values[i];
    return sum;
  });
  for (const std::size_t operands : {2, 3, 7}) {
    expect_sums<Large>(operation, operands, 3, [](Large& v) -> std::int64_t& { return v.values.back(); });
  }
}

}  // namespace test_reducer
