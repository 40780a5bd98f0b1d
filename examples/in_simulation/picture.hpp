#pragma once
// Writes a PNG of 256 colours without compression, which takes a page of code and no library.
#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace in_simulation {

/// Colours 0 to 127: white to dark blue. Colours 128 to 255: blue, white at 191.5, red.
inline std::string palette() {
  std::string colours;
  const auto add = [&](double r, double g, double b) {
    for (const double v : {r, g, b}) colours += static_cast<char>(static_cast<unsigned char>(255 * v + 0.5));
  };
  for (int i = 0; i < 128; ++i) {
    const double t = i / 127.0;
    add(1 - t, 1 - 0.8 * t, 1 - 0.55 * t);
  }
  for (int i = 0; i < 128; ++i) {
    const double t = (i - 63.5) / 63.5;
    t < 0 ? add(1 + 0.9 * t, 1 + 0.7 * t, 1) : add(1, 1 - 0.8 * t, 1 - 0.9 * t);
  }
  return colours;
}

/// Square panels of `cells` times `cells` squares of `zoom` pixels, with white lines between them.
class Picture {
 public:
  Picture(int cells, int zoom, int panels)
      : edge_(cells * zoom),
        zoom_(zoom),
        width_((edge_ + gap) * panels - gap),
        pixels_(static_cast<std::size_t>(width_ * edge_), 0) {}

  /// `value` of a row and a column: 0 to 1; with `has_sign` -1 to 1.
  template <class Value>
  void draw(int panel, bool has_sign, const Value& value) {
    for (int y = 0; y < edge_; ++y) {
      for (int x = 0; x < edge_; ++x) {
        const double v = std::clamp<double>(value(y / zoom_, x / zoom_), has_sign ? -1 : 0, 1);
        const double colour = has_sign ? 191.5 + 63.5 * v : 127 * v;
        pixels_[static_cast<std::size_t>(y * width_ + panel * (edge_ + gap) + x)] =
            static_cast<char>(static_cast<unsigned char>(colour));
      }
    }
  }

  /// Throws FileError with the message of the system.
  void write(const std::string& path) const {
    std::string lines;
    for (int y = 0; y < edge_; ++y) {
      lines += '\0';  // no filter
      lines.append(pixels_.data() + static_cast<std::ptrdiff_t>(y) * width_, static_cast<std::size_t>(width_));
    }
    std::string file("\x89PNG\r\n\x1a\n");
    add_chunk(file, "IHDR",
              number(static_cast<std::uint32_t>(width_)) + number(static_cast<std::uint32_t>(edge_)) +
                  std::string("\x08\x03\x00\x00\x00", 5));  // 8 bits, palette
    add_chunk(file, "PLTE", palette());
    add_chunk(file, "IDAT", stored(lines));
    add_chunk(file, "IEND", "");
    errno = 0;
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(file.data(), static_cast<std::streamsize>(file.size()));
    out.close();
    if (!out)
      throw aloni::FileError("in_simulation", path, std::generic_category().message(errno), "a file to write to");
  }

 private:
  static constexpr int gap = 4;

  static std::string number(std::uint32_t n) {  // big endian
    std::string text;
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(n >> shift & 255U);
    return text;
  }
  static void add_chunk(std::string& file, const std::string& name, const std::string& data) {
    std::uint32_t crc = ~0U;
    for (const char c : name + data) {
      crc ^= static_cast<unsigned char>(c);
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1U ^ (crc & 1U ? 0xEDB88320U : 0U);
    }
    file += number(static_cast<std::uint32_t>(data.size())) + name + data + number(~crc);
  }
  /// zlib's format with blocks that are not compressed.
  static std::string stored(const std::string& data) {
    std::string out("\x78\x01");
    constexpr std::size_t most = 65535;
    for (std::size_t at = 0; at < data.size(); at += most) {
      const std::size_t n = std::min(most, data.size() - at);
      out += at + n == data.size() ? '\1' : '\0';
      for (const std::size_t v : {n, ~n})
        for (const unsigned shift : {0U, 8U}) out += static_cast<char>(v >> shift & 255U);
      out.append(data, at, n);
    }
    std::uint32_t a = 1, b = 0;
    for (const char c : data) {
      a = (a + static_cast<unsigned char>(c)) % 65521;
      b = (b + a) % 65521;
    }
    return out + number(b << 16U | a);
  }

  int edge_, zoom_, width_;
  std::vector<char> pixels_;
};

}  // namespace in_simulation
