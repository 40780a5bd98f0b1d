#pragma once
// Results for programs. The file appears whole or not at all: it is written under a temporary name beside its own and
// then renamed.
#include <string>

namespace aloni::tools {

/// Finds out before long work starts whether write_result_file can create a file there; leaves nothing behind. Throws
/// FileError.
void check_result_file_can_be_written(const std::string& path);

/// Writes `text` to `path`, through a symbolic link to where it points; to a device or pipe directly. Throws FileError.
void write_result_file(const std::string& path, const std::string& text);

}  // namespace aloni::tools
