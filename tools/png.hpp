#pragma once
// Pictures as PNG (Portable Network Graphics, W3C Recommendation 2003), to be embedded in a page. Pure.
#include <cstdint>
#include <span>
#include <string>

namespace aloni::tools {

/// The bytes of a file with 8 bits for each of red, green and blue. `pixels`: 3 bytes each, row by row from the top.
/// @pre pixels.size() is 3 * width * height, both are at least 1
std::string to_png(int width, int height, std::span<const std::uint8_t> pixels);

/// A stream in the format of zlib (RFC 1950). Without aloni_ENABLE_ZLIB the bytes are stored uncompressed in it.
std::string zlib_stream(const std::string& bytes);

}  // namespace aloni::tools
