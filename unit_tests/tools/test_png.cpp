// Pictures as PNG. test_run.py decodes those of a page.
#include <aloni/tools/png.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace aloni::tools {
namespace test_png {

// The checksums of the first and the last chunk are known: they depend on the extents, or on nothing.
TEST(Png, HasTheChunksOfTheFormat) {
  const std::vector<std::uint8_t> pixels{255, 0, 0};
  const std::string png = to_png(1, 1, pixels);
  const std::string start("\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90\x77\x53\xde", 33);
  EXPECT_EQ(png.substr(0, 33), start);
  EXPECT_EQ(png.substr(37, 4), "IDAT");
  EXPECT_EQ(png.substr(png.size() - 12), std::string("\0\0\0\0IEND\xae\x42\x60\x82", 12));
}

TEST(Png, StreamsEndWithTheChecksumOfTheirBytes) {
  const std::string stream = zlib_stream("Wikipedia");
  EXPECT_EQ(stream.substr(stream.size() - 4), "\x11\xe6\x03\x98");
  EXPECT_EQ((static_cast<unsigned char>(stream[0]) * 256 + static_cast<unsigned char>(stream[1])) % 31, 0);
}

}  // namespace test_png
}  // namespace aloni::tools
