#include <aloni/core/comm/transport/crc32c.hpp>

#include <array>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
#endif

namespace aloni::comm::detail {

namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr auto table = make_table();

std::uint32_t by_table(std::uint32_t c, const unsigned char* data, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) c = c >> 8 ^ table[(c ^ data[i]) & 0xff];
  return c;
}

#if defined(__x86_64__) && defined(__GNUC__)
[[gnu::target("sse4.2")]] std::uint32_t by_instruction(std::uint32_t c, const unsigned char* data, std::size_t bytes) {
  std::uint64_t wide = c;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    std::uint64_t word;
    std::memcpy(&word, data, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  return by_table(static_cast<std::uint32_t>(wide), data, bytes);
}
const bool has_instruction = __builtin_cpu_supports("sse4.2");
#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes) {
  const auto* const p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__) && defined(__GNUC__)
  if (has_instruction) return ~by_instruction(~0u, p, bytes);
#endif
  return ~by_table(~0u, p, bytes);
}

}  // namespace aloni::comm::detail
