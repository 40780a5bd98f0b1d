#pragma once
// Opens regular files, and reads small text files: strategies, tunings.
#include <string>

namespace aloni {

/// A descriptor for reading the regular file `path`, without waiting. To open a pipe would wait for its writer, and a
/// device may have no end. Not collective. `operation` and `what` ("a strategy file") are for the error text. Throws
/// FileError if the file is missing, a folder, a pipe, a device, or unreadable.
int open_regular_file(const char* operation, const std::string& path, const char* what);

/// Returns the contents of a file of at most 1 MiB. Not collective. `operation` and `what` ("a strategy file") are for
/// the error text. Throws FileError if the file is missing, no regular file, unreadable or longer.
std::string read_text_file(const char* operation, const std::string& path, const char* what);

}  // namespace aloni
