#pragma once
// Small files that people write: strategies, tunings.
#include <string>

namespace aloni {

/// All of a file of up to 1 MiB. Not collective. Throws FileError: missing, a folder, unreadable, longer. `operation` and `what` ("a
/// strategy file") are for its text.
std::string read_text_file(const char* operation, const std::string& path, const char* what);

}  // namespace aloni
