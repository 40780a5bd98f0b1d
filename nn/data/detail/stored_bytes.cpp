#include <aloni/nn/data/detail/stored_bytes.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/nn/data/detail/byte_source.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

namespace aloni::nn::detail {

namespace {

class FileBytes : public StoredBytes {
 public:
  FileBytes(const char* operation, const std::string& path)
      : StoredBytes(path), operation_(operation), fd_(open_regular_file(operation, path, "a readable file")) {
    struct stat status {};
    if (::fstat(fd_, &status) == 0) size_ = static_cast<std::uint64_t>(status.st_size);
  }
  /// Takes the descriptor of an open file.
  FileBytes(const char* operation, std::string name, int fd, std::uint64_t size)
      : StoredBytes(std::move(name)), operation_(operation), fd_(fd), size_(size) {}
  ~FileBytes() override { ::close(fd_); }

  std::uint64_t size() const override { return size_; }

  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    while (!into.empty()) {
      const ssize_t got = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        throw FileError(operation_, name(), std::string("cannot be read (") + std::strerror(errno) + ")",
                        "a readable file");
      if (got == 0)
        throw FileError(
            operation_, name(), "ends at byte " + std::to_string(offset),
            std::to_string(into.size()) + " more bytes; the file had " + std::to_string(size_) + " when it was opened");
      offset += static_cast<std::uint64_t>(got);
      into = into.subspan(static_cast<std::size_t>(got));
    }
  }

 private:
  const char* operation_;
  int fd_;
  std::uint64_t size_ = 0;
};

/// A file without a name, for the bytes of another one.
class TemporaryFile {
 public:
  TemporaryFile(const char* operation, std::string source) : operation_(operation), source_(std::move(source)) {
    const char* const wanted = std::getenv("TMPDIR");
    folder_ = wanted && *wanted ? wanted : "/tmp";
    std::string path = folder_ + "/aloni-XXXXXX";
    fd_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (fd_ < 0) refuse();
    ::unlink(path.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  void append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) refuse();
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  int release() { return std::exchange(fd_, -1); }

 private:
  [[noreturn]] void refuse() const {
    throw FileError(operation_, folder_, "cannot hold the content of " + source_ + " (" + std::strerror(errno) + ")",
                    "a folder with room for it in TMPDIR, or the file without compression");
  }

  const char* operation_;
  std::string source_, folder_;
  int fd_ = -1;
};

class MemoryBytes : public StoredBytes {
 public:
  MemoryBytes(std::string name, std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : StoredBytes(std::move(name)), bytes_(bytes), owner_(std::move(owner)) {}

  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    if (!into.empty()) std::memcpy(into.data(), bytes_.data() + offset, into.size());
  }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

/// Fowler, Noll and Vo, FNV-1a with 64 bits.
std::uint64_t add_to_digest(std::uint64_t digest, std::span<const std::byte> bytes) {
  for (const std::byte b : bytes) digest = (digest ^ static_cast<std::uint64_t>(b)) * 0x100000001b3u;
  return digest;
}

}  // namespace

std::uint64_t StoredBytes::digest() const {
  constexpr std::uint64_t blocks = 16;
  std::array<std::byte, 4096> block{};
  const std::uint64_t all = size();
  std::uint64_t digest = add_to_digest(0xcbf29ce484222325u, std::as_bytes(std::span(&all, 1)));
  const auto add = [&](std::uint64_t from, std::uint64_t until) {
    for (; from < until; from += block.size()) {
      const auto part = std::span(block).first(std::min<std::uint64_t>(block.size(), until - from));
      read(from, part);
      digest = add_to_digest(digest, part);
    }
  };
  if (all <= blocks * block.size()) {
    add(0, all);
  } else {
    for (std::uint64_t b = 0; b < blocks; ++b) {
      const std::uint64_t from = b + 1 < blocks ? (all - block.size()) / (blocks - 1) * b : all - block.size();
      add(from, from + block.size());
    }
  }
  return digest;
}

std::shared_ptr<const StoredBytes> open_stored_bytes(const char* operation, const std::string& path) {
  return std::make_shared<FileBytes>(operation, path);
}

std::shared_ptr<const StoredBytes> inflate_stored_bytes(const char* operation, const std::string& path,
                                                        std::uint64_t most, std::uint64_t in_memory) {
  constexpr std::size_t chunk = std::size_t{4} << 20;
  const auto source = open_bytes(operation, path);
  const auto bytes = std::make_shared<std::vector<std::uint8_t>>();
  std::optional<TemporaryFile> file;
  std::uint64_t size = 0;
  std::size_t kept = 0;  // in memory
  while (true) {
    bytes->resize(kept + chunk);
    const std::size_t got = source->read(bytes->data() + kept, chunk);
    size += got;
    kept += got;
    if (size > most) {
      throw FileError(operation, path, "more than " + std::to_string(most) + " bytes after decompression",
                      "at most " + std::to_string(most));
    }
    if (size > in_memory) {
      if (!file) file.emplace(operation, path);
      file->append(std::as_bytes(std::span(bytes->data(), kept)));
      kept = 0;
    }
    if (got < chunk) break;
  }
  if (file) return std::make_shared<FileBytes>(operation, path, file->release(), size);
  bytes->resize(kept);
  bytes->shrink_to_fit();
  return bytes_in_memory(path, std::as_bytes(std::span(*bytes)), bytes);
}

std::shared_ptr<const StoredBytes> bytes_in_memory(std::string name, std::span<const std::byte> bytes,
                                                   std::shared_ptr<const void> owner) {
  return std::make_shared<MemoryBytes>(std::move(name), bytes, std::move(owner));
}

bool is_gzip(const char* operation, const std::string& path) {
  const FileBytes file(operation, path);
  if (file.size() < 2) return false;
  std::array<std::byte, 2> start{};
  file.read(0, start);
  return start[0] == std::byte{0x1f} && start[1] == std::byte{0x8b};
}

}  // namespace aloni::nn::detail
