#include <aloni/core/io/file_system.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/text_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace aloni::io {

namespace fs = std::filesystem;

namespace {

constexpr const char* operation = "aloni::io";
constexpr const char* writable = "a file system with free space, and the permission to write to it";

[[noreturn]] void refuse(const std::string& path, const std::string& what, int error) {
  throw FileError(operation, path, what + " (" + std::strerror(error) + ")", writable);
}

void write_bytes(const std::string& path, int fd, Index offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) refuse(path, "cannot be written", n == 0 ? ENOSPC : errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

void read_bytes(const std::string& path, int fd, Index offset, std::span<std::byte> bytes) {
  for (std::size_t have = 0; have < bytes.size();) {
    const ssize_t n =
        ::pread(fd, bytes.data() + have, bytes.size() - have, static_cast<off_t>(offset) + static_cast<off_t>(have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw FileError(operation, path, std::string("cannot be read (") + std::strerror(errno) + ")", "a readable file");
    if (n == 0)
      throw FileError(operation, path,
                      "ends after " + std::to_string(static_cast<std::size_t>(offset) + have) + " bytes",
                      "at least " + std::to_string(static_cast<std::size_t>(offset) + bytes.size()) + " bytes");
    have += static_cast<std::size_t>(n);
  }
}

class RealFile : public OutputFile {
 public:
  RealFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  RealFile(const RealFile&) = delete;
  RealFile& operator=(const RealFile&) = delete;
  ~RealFile() override {
    if (fd_ >= 0) ::close(fd_);
  }

  const std::string& path() const override { return path_; }
  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) refuse(path_, "cannot be written", n == 0 ? ENOSPC : errno);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  void write_at(Index offset, std::span<const std::byte> bytes) override { write_bytes(path_, fd_, offset, bytes); }
  void sync() override {
    // Devices and pipes have nothing to flush.
    if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) refuse(path_, "cannot be written", errno);
  }
  int descriptor() const { return fd_; }
  void close() override {
    if (::close(std::exchange(fd_, -1)) != 0) refuse(path_, "cannot be written", errno);
  }

 private:
  std::string path_;
  int fd_;
};

class RealScratchFile : public ScratchFile {
 public:
  RealScratchFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  RealScratchFile(const RealScratchFile&) = delete;
  RealScratchFile& operator=(const RealScratchFile&) = delete;
  ~RealScratchFile() override { ::close(fd_); }

  const std::string& path() const override { return path_; }
  void write_at(Index offset, std::span<const std::byte> bytes) override { write_bytes(path_, fd_, offset, bytes); }
  void read_at(Index offset, std::span<std::byte> bytes) override { read_bytes(path_, fd_, offset, bytes); }

 private:
  std::string path_;
  int fd_;
};

/// A new file whose name begins with `path`: the name and the descriptor. `access`: O_WRONLY or O_RDWR.
std::pair<std::string, int> create_new(const std::string& path, int access) {
  // Not mkstemp: its files are private, and the mask of the process cannot be read without a change of it. Other
  // threads would see the change.
  static std::atomic<unsigned> number{0};
  constexpr int most_attempts = 100;
  for (int attempt = 1;; ++attempt) {
    std::string name = path + "." + std::to_string(::getpid()) + "-" + std::to_string(number++);
    const int fd = ::open(name.c_str(), access | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return {std::move(name), fd};
    if (errno != EEXIST || attempt == most_attempts) refuse(path, "cannot be created", errno);
  }
}

class RealFileSystem : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) refuse(path, "cannot be created", errno);
    return std::make_unique<RealFile>(path, fd);
  }

  std::unique_ptr<OutputFile> create_temporary(const std::string& path) override {
    auto [name, fd] = create_new(path, O_WRONLY);
    return std::make_unique<RealFile>(std::move(name), fd);
  }

  std::unique_ptr<ScratchFile> create_scratch(const std::string& path) override {
    auto [name, fd] = create_new(path, O_RDWR);
    auto file = std::make_unique<RealScratchFile>(name, fd);
    remove(name);
    return file;
  }

  std::unique_ptr<OutputFile> open(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) refuse(path, "cannot be opened", errno);
    return std::make_unique<RealFile>(path, fd);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) refuse(to, "cannot be written", errno);
  }
  void remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) refuse(path, "cannot be removed", errno);
  }
  void make_folder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) == 0) return;
    const int error = errno;
    struct stat status {};
    if (error == EEXIST && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return;
    refuse(path, "cannot be made a folder", error);
  }
  void remove_folder(const std::string& path) override {
    if (::rmdir(path.c_str()) != 0 && errno != ENOENT) refuse(path, "cannot be removed", errno);
  }
  void sync_folder(const std::string& path) override {
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) return;  // writable, but not readable: nothing can flush it
    if (fd < 0) refuse(path, "cannot be flushed", errno);
    const int error = ::fsync(fd) == 0 ? 0 : errno;
    ::close(fd);
    // Not all file systems can flush a folder.
    if (error != 0 && error != EINVAL && error != EROFS && error != ENOTSUP) refuse(path, "cannot be flushed", error);
  }

  std::vector<std::string> list(const std::string& folder) override {
    std::vector<std::string> names;
    std::error_code error;
    auto entry = fs::directory_iterator(folder, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error))
      names.push_back(entry->path().filename().string());
    if (error && error != std::errc::no_such_file_or_directory)
      throw FileError(operation, folder, "cannot be listed (" + error.message() + ")", "a readable folder");
    std::ranges::sort(names);
    return names;
  }
  Index size(const std::string& path) override {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) return S_ISREG(status.st_mode) ? static_cast<Index>(status.st_size) : -1;
    if (errno == ENOENT || errno == ENOTDIR) return -1;
    throw FileError(operation, path, std::string("cannot be examined (") + std::strerror(errno) + ")",
                    "a readable file");
  }
  void read(const std::string& path, Index offset, std::span<std::byte> bytes) override {
    const RealFile file(path, open_regular_file(operation, path, "a readable file"));
    read_bytes(path, file.descriptor(), offset, bytes);
  }
};

}  // namespace

FileSystem& real_file_system() {
  static RealFileSystem files;
  return files;
}

std::string folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

void write_file(FileSystem& files, const std::string& path, std::string_view text) {
  write_file(files, path, std::span(&text, 1));
}

void write_file(FileSystem& files, const std::string& path, std::span<const std::string_view> parts) {
  const auto file = files.create_temporary(path);
  try {
    for (const std::string_view part : parts) file->write(std::as_bytes(std::span(part.data(), part.size())));
    // Before the file replaces an older one: otherwise a crash of the machine could leave an empty file.
    file->sync();
    file->close();
    files.rename(file->path(), path);
  } catch (...) {
    try {
      files.remove(file->path());
    } catch (const FileError&) {
      // The first error is the reason.
    }
    throw;
  }
  files.sync_folder(folder_of(path));
}

}  // namespace aloni::io
