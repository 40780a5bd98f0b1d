#pragma once
// Opens regular files, and reads text files: strategies, models, machines.
#include <cstddef>
#include <string>

namespace aloni {

/// A descriptor for reading the regular file `path`, without waiting. To open a pipe would wait for its writer, and a
/// device may have no end. Not collective. `operation` and `what` ("a strategy file") are for the error text. Throws
/// FileError if the file is missing, a folder, a pipe, a device, or unreadable.
int open_regular_file(const char* operation, const std::string& path, const char* what);

/// Returns the contents of a file of at most `most_bytes`. Not collective. `operation` and `what` ("a strategy file")
/// are for the error text. Throws FileError if the file is missing, no regular file, unreadable or longer.
/// @pre most_bytes is a multiple of 1 MiB
std::string read_text_file(const char* operation, const std::string& path, const char* what,
                           std::size_t most_bytes = std::size_t{1} << 20);

}  // namespace aloni
