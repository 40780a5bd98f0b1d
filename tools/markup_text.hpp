#pragma once
// Text of any origin in SVG, HTML and the JSON inside them.
#include <string>
#include <string_view>

namespace aloni::tools {

/// The text as the content of an element or of a quoted attribute. Characters that XML forbids become escapes
/// (core/printable.hpp) or U+FFFD.
std::string escaped(std::string_view text);

/// Base64 of the bytes, for "data:" addresses.
std::string base64(std::string_view bytes);

}  // namespace aloni::tools
