#include <aloni/core/other_code.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace aloni {

namespace {

constexpr std::size_t other_functions = 2048;

/// Different constants make different code, which the compiler cannot merge.
template <std::size_t N>
[[gnu::noinline]] std::uint64_t other_function(std::uint64_t x) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15ull * (2 * N + 1) | 1;
  volatile std::uint64_t value = x;  // no conditional moves
  if ((value & (std::uint64_t{1} << N % 61)) != 0) value = value * odd;
  if ((value & (std::uint64_t{1} << (N + 13) % 59)) != 0) value = value ^ (value >> (N % 31 + 1));
  return value + N;
}

template <std::size_t... N>
constexpr std::array<std::uint64_t (*)(std::uint64_t), other_functions> all_functions(std::index_sequence<N...>) {
  return {&other_function<N>...};
}

}  // namespace

void run_other_code() {
  static constexpr auto all = all_functions(std::make_index_sequence<other_functions>());
  static volatile std::uint64_t result = 1;
  std::uint64_t x = result;
  for (const auto function : all) x = function(x);
  result = x;
}

}  // namespace aloni
