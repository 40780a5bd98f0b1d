#pragma once
// Reads small text files: strategies, tunings.
#include <string>

namespace aloni {

/// Returns the contents of a file of at most 1 MiB. Not collective. `operation` and `what` ("a strategy file") are for
/// the error text. Throws FileError if the file is missing, a folder, unreadable or longer.
std::string read_text_file(const char* operation, const std::string& path, const char* what);

}  // namespace aloni
