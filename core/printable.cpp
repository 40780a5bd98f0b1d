#include <aloni/core/printable.hpp>

#include <cstddef>

namespace aloni {

namespace {

/// Bytes of the UTF-8 character at the start of `text`; 0 if there is none, or a control character (U+0080 to U+009F).
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xc2 ? 0
                             : first < 0xe0 ? 2
                             : first < 0xf0 ? 3
                             : first < 0xf5 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  if (length == 1) return first >= 0x20 && first != 0x7f ? 1 : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  if (first == 0xc2 && second < 0xa0) return 0;
  // Longer than necessary, a surrogate, or above U+10FFFF: no UTF-8.
  if ((first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90)) return 0;
  if ((first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90)) return 0;
  return length;
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr const char* digits = "0123456789abcdef";
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    if (length > 0) {
      shown += text.substr(0, length);
    } else if (text[0] == '\n' || text[0] == '\t' || text[0] == '\r') {
      shown += text[0] == '\n' ? "\\n" : text[0] == '\t' ? "\\t" : "\\r";
    } else {
      const auto byte = static_cast<unsigned char>(text[0]);
      (shown += "\\x") += {digits[byte >> 4], digits[byte & 15]};
    }
    text.remove_prefix(length > 0 ? length : 1);
  }
  return shown;
}

}  // namespace aloni
