#include <aloni/core/text_file.hpp>

#include <aloni/core/error.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>

namespace aloni {

namespace {

constexpr std::uintmax_t max_file_bytes = 1 << 20;

}  // namespace

std::string read_text_file(const char* operation, const std::string& path, const char* what) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw FileError(operation, path, "missing", what);
  if (std::filesystem::is_directory(status)) throw FileError(operation, path, "a folder", what);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw FileError(operation, path, "cannot be opened", "a readable file");
  std::string text(max_file_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw FileError(operation, path, "cannot be read", "a readable file");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > max_file_bytes) throw FileError(operation, path, "longer than 1 MiB", what);
  return text;
}

}  // namespace aloni
