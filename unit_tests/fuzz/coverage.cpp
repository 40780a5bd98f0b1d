#include "coverage.hpp"

#include <array>
#include <bit>
#include <cstdint>

namespace aloni::test {

namespace {

constexpr std::size_t edge_slots = std::size_t{1} << 16;
std::array<std::uint8_t, edge_slots> edge_counts{};
std::array<std::uint8_t, edge_slots> seen_counts{};  // one bit for each power of two
std::uintptr_t last_block = 0;

}  // namespace

void begin_coverage() {
  if (last_block != 0) edge_counts.fill(0);
  last_block = 0;
}

bool end_coverage() {
  bool is_new = false;
  if (last_block == 0) return is_new;  // no file was compiled for it
  for (std::size_t i = 0; i < edge_slots; ++i) {
    if (edge_counts[i] == 0) continue;
    const auto count = static_cast<std::uint8_t>(1U << (std::bit_width(edge_counts[i]) - 1));
    is_new = is_new || (seen_counts[i] & count) == 0;
    seen_counts[i] |= count;
  }
  return is_new;
}

std::size_t edges_reached() {
  std::size_t reached = 0;
  for (const auto seen : seen_counts) reached += seen != 0 ? 1 : 0;
  return reached;
}

}  // namespace aloni::test

/// Called by the compiler at the begin of each basic block.
extern "C" void __sanitizer_cov_trace_pc() {
  using namespace aloni::test;
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  const std::uintptr_t block = place ^ place >> 16;
  std::uint8_t& count = edge_counts[(block ^ last_block) % edge_slots];
  if (count != 255) ++count;
  last_block = block >> 1;
}
