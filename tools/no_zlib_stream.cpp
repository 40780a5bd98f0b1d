// Compiled only when aloni_ENABLE_ZLIB is OFF.
#include <aloni/tools/png.hpp>

#include <algorithm>
#include <cstddef>

namespace aloni::tools {

std::string zlib_stream(const std::string& bytes) {
  std::string stream("\x78\x01", 2);
  constexpr std::size_t most = 65535;  // of a stored block
  std::uint32_t a = 1, b = 0;          // Adler-32
  for (const char byte : bytes) {
    a = (a + static_cast<std::uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  std::size_t begin = 0;
  do {
    const std::size_t length = std::min(most, bytes.size() - begin);
    stream += begin + length == bytes.size() ? '\x01' : '\x00';
    for (const std::size_t number : {length, ~length})
      for (const int shift : {0, 8}) stream += static_cast<char>(number >> shift & 0xff);
    stream.append(bytes, begin, length);
    begin += length;
  } while (begin < bytes.size());
  for (const std::uint32_t half : {b, a})
    for (const int shift : {8, 0}) stream += static_cast<char>(half >> shift & 0xff);
  return stream;
}

}  // namespace aloni::tools
