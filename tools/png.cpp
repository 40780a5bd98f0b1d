#include <aloni/tools/png.hpp>

#include <cstddef>
#include <string_view>

namespace aloni::tools {

namespace {

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::uint32_t crc32_of(std::string_view bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~crc;
}

/// Length, type, data and checksum.
std::string chunk(const std::string& type, const std::string& data) {
  return big_endian(static_cast<std::uint32_t>(data.size())) + type + data + big_endian(crc32_of(type + data));
}

}  // namespace

std::string to_png(int width, int height, std::span<const std::uint8_t> pixels) {
  std::string header = big_endian(static_cast<std::uint32_t>(width)) + big_endian(static_cast<std::uint32_t>(height));
  header += std::string("\x08\x02\x00\x00\x00", 5);  // 8 bits, colours, usual compression and filters, not interlaced
  const std::size_t row = 3 * static_cast<std::size_t>(width);
  std::string rows;
  for (std::size_t begin = 0; begin < pixels.size(); begin += row) {
    rows += '\0';  // no filter
    for (const std::uint8_t byte : pixels.subspan(begin, row)) rows += static_cast<char>(byte);
  }
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", zlib_stream(rows)) + chunk("IEND", "");
}

}  // namespace aloni::tools
