#include <aloni/core/error.hpp>
#include <aloni/tools/result_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace aloni::tools {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw FileError("result file", path, what, "the path of a file that can be written");
}

std::string reason() { return std::string(" (") + std::strerror(errno) + ")"; }

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  /// Some errors of delayed writes (quotas, network file systems) appear only here.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

void write_all(Descriptor& file, const std::string& path, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refuse(path, "cannot be written" + reason());
    done += static_cast<std::size_t>(n);
  }
  if (!file.close()) refuse(path, "cannot be written" + reason());
}

struct Place {
  fs::path file;  // symbolic links resolved
  bool direct;    // a device or pipe: renaming a file onto it would replace it
};

Place place_of(const std::string& path) {
  std::error_code error;
  if (path.empty()) refuse(path, "empty path");
  const auto status = fs::status(path, error);
  if (fs::is_directory(status)) refuse(path, "a folder");
  if (fs::exists(status) && !fs::is_regular_file(status)) return {path, true};
  const fs::path file = fs::weakly_canonical(path, error);
  return {error ? fs::path(path) : file, false};
}

/// An empty file in the folder of the result file, with the permissions of an ordinary new file.
struct TemporaryFile {
  std::string name;
  int fd;
};

TemporaryFile make_temporary(const fs::path& file, const std::string& path) {
  TemporaryFile made{file.string() + ".XXXXXX", -1};
  made.fd = ::mkstemp(made.name.data());
  if (made.fd < 0) refuse(path, "cannot be created" + reason());
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(made.fd, 0666 & ~mask);
  return made;
}

}  // namespace

void check_result_file_can_be_written(const std::string& path) {
  const Place place = place_of(path);
  if (place.direct) {
    if (::access(path.c_str(), W_OK) != 0) refuse(path, "cannot be written" + reason());
    return;
  }
  const TemporaryFile temporary = make_temporary(place.file, path);
  ::close(temporary.fd);
  ::unlink(temporary.name.c_str());
}

void write_result_file(const std::string& path, const std::string& text) {
  const Place place = place_of(path);
  if (place.direct) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) refuse(path, "cannot be opened" + reason());
    write_all(file, path, text);
    return;
  }
  const TemporaryFile temporary = make_temporary(place.file, path);
  try {
    Descriptor file(temporary.fd);
    write_all(file, path, text);
    if (::rename(temporary.name.c_str(), place.file.c_str()) != 0) refuse(path, "cannot be written" + reason());
  } catch (...) {
    ::unlink(temporary.name.c_str());
    throw;
  }
}

}  // namespace aloni::tools
