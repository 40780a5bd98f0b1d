#include <aloni/core/text_file.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/nearest_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace aloni {

namespace {

constexpr std::size_t first_bytes = 1 << 12;

std::string reason() { return std::string(" (") + std::strerror(errno) + ")"; }

/// Why this is no regular file; null if it is one.
const char* fault_of(const struct stat& status) {
  if (S_ISREG(status.st_mode)) return nullptr;
  if (S_ISDIR(status.st_mode)) return "a folder, not a regular file";
  if (S_ISFIFO(status.st_mode)) return "a pipe, not a regular file";
  if (S_ISSOCK(status.st_mode)) return "a socket, not a regular file";
  return "a device, not a regular file";
}

}  // namespace

int open_regular_file(const char* operation, const std::string& path, const char* what) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    const bool missing = errno == ENOENT || errno == ENOTDIR;
    throw FileError(operation, path, missing ? "missing" : "cannot be opened" + reason(),
                    missing ? what + did_you_mean_file(path) : what);
  }
  if (const char* fault = fault_of(status)) throw FileError(operation, path, fault, what);
  // O_NONBLOCK: a pipe may have taken the place of the file since.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) throw FileError(operation, path, "cannot be opened" + reason(), what);
  const char* fault = ::fstat(fd, &status) == 0 ? fault_of(status) : "cannot be examined";
  if (fault != nullptr) {
    ::close(fd);
    throw FileError(operation, path, fault, what);
  }
  return fd;
}

std::string read_text_file(const char* operation, const std::string& path, const char* what, std::size_t most_bytes) {
  const int fd = open_regular_file(operation, path, what);
  std::string text;  // grows with the bytes that were read
  std::size_t have = 0;
  ssize_t got = 1;
  while (got != 0 && have <= most_bytes) {
    if (have == text.size()) text.resize(std::min(most_bytes + 1, std::max(first_bytes, 2 * have)));
    got = ::read(fd, text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    have += static_cast<std::size_t>(got);
  }
  const std::string why = got < 0 ? reason() : "";
  ::close(fd);
  if (got < 0) throw FileError(operation, path, "cannot be read" + why, "a readable file");
  text.resize(have);
  if (text.size() > most_bytes)
    throw FileError(operation, path, "longer than " + std::to_string(most_bytes >> 20) + " MiB", what);
  return text;
}

}  // namespace aloni
