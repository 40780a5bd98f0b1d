#pragma once
// Writes result files for programs. A file appears complete or not at all: the text goes to a temporary file in the
// same folder, which is then renamed.
#include <string>

namespace aloni::tools {

/// Checks that write_result_file can create `path`, before a long run starts. Leaves no file behind. Throws FileError.
void check_result_file_can_be_written(const std::string& path);

/// Writes `text` to `path`. Follows symbolic links, also to a file that does not exist yet.
/// Throws FileError, also for a folder, a device and a pipe: a write to a pipe waits for its reader.
void write_result_file(const std::string& path, const std::string& text);

/// The file that `path` names, symbolic links resolved: a new file replaces it, and not a link. It need not exist.
/// Throws FileError for a folder, a device, a loop of links, and an empty path.
std::string place_of_result_file(const std::string& path);

}  // namespace aloni::tools
