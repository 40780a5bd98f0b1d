#pragma once
// Text of unknown origin (an argument, a line of a file) for a terminal.
#include <string>
#include <string_view>

namespace aloni {

/// The text with escapes instead of control characters and of bytes that are not UTF-8: "\n", "\x1b".
/// Without escapes these bytes could hide a message, or change the state of a terminal.
std::string printable(std::string_view text);

}  // namespace aloni
