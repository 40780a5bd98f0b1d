#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/tools/result_file.hpp>

#include <filesystem>
#include <string>
#include <system_error>

namespace aloni::tools {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_file(const std::string& path, const std::string& what) {
  throw FileError("result file", path, what, "the path of a file that can be written");
}

/// The file that `path` names, symbolic links resolved. It need not exist; renaming onto a link would replace the link.
fs::path place_of(const std::string& path) {
  std::error_code error;
  if (path.empty()) refuse_file(path, "empty path");
  const auto status = fs::status(path, error);
  if (fs::is_directory(status)) refuse_file(path, "a folder");
  if (fs::exists(status) && !fs::is_regular_file(status)) refuse_file(path, "a device or pipe, not a regular file");
  fs::path file = path;
  constexpr int most_links = 40;  // as Linux
  for (int links = 0; fs::is_symlink(fs::symlink_status(file, error)); ++links) {
    if (links == most_links) refuse_file(path, "a loop of symbolic links");
    const fs::path target = fs::read_symlink(file, error);
    if (error) refuse_file(path, "cannot be read (" + error.message() + ")");
    file = file.parent_path() / target;  // an absolute target replaces the folder
  }
  return file;
}

/// Calls `f`. A FileError names the path of the user, not a temporary file.
template <class F>
void for_path(const std::string& path, F&& f) {
  try {
    f();
  } catch (const FileError& e) {
    refuse_file(path, e.value());
  }
}

}  // namespace

std::string place_of_result_file(const std::string& path) { return place_of(path).string(); }

void check_result_file_can_be_written(const std::string& path) {
  const std::string place = place_of(path).string();
  io::FileSystem& files = io::real_file_system();
  for_path(path, [&] { files.remove(files.create_temporary(place)->path()); });
}

void write_result_file(const std::string& path, const std::string& text) {
  const std::string place = place_of(path).string();
  for_path(path, [&] { io::write_file(io::real_file_system(), place, text); });
}

}  // namespace aloni::tools
