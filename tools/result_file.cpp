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

[[noreturn]] void refuse_file(const std::string& path, const std::string& what) {
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
    if (n <= 0) refuse_file(path, "cannot be written" + reason());
    done += static_cast<std::size_t>(n);
  }
  // Before the file replaces an older one: otherwise a crash of the machine could leave an empty file. Devices and
  // pipes have nothing to flush (EINVAL).
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != EROFS) refuse_file(path, "cannot be written" + reason());
  if (!file.close()) refuse_file(path, "cannot be written" + reason());
}

/// So that the new name survives a crash of the machine. Not all file systems can do it; the file is complete anyway.
void flush_folder(const fs::path& file) {
  const fs::path parent = file.has_parent_path() ? file.parent_path() : ".";
  const Descriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) ::fsync(folder.get());
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

/// An empty file in the folder of the result file, with the permissions of an ordinary new file.
struct TemporaryFile {
  std::string name;
  int fd;
};

TemporaryFile make_temporary(const fs::path& file, const std::string& path) {
  TemporaryFile made{file.string() + ".XXXXXX", -1};
  made.fd = ::mkstemp(made.name.data());
  if (made.fd < 0) refuse_file(path, "cannot be created" + reason());
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(made.fd, 0666 & ~mask);
  return made;
}

}  // namespace

void check_result_file_can_be_written(const std::string& path) {
  const TemporaryFile temporary = make_temporary(place_of(path), path);
  ::close(temporary.fd);
  ::unlink(temporary.name.c_str());
}

void write_result_file(const std::string& path, const std::string& text) {
  const fs::path place = place_of(path);
  const TemporaryFile temporary = make_temporary(place, path);
  try {
    Descriptor file(temporary.fd);
    write_all(file, path, text);
    if (::rename(temporary.name.c_str(), place.c_str()) != 0) refuse_file(path, "cannot be written" + reason());
    flush_folder(place);
  } catch (...) {
    ::unlink(temporary.name.c_str());
    throw;
  }
}

}  // namespace aloni::tools
