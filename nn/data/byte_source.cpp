#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/text_file.hpp>
#include <aloni/nn/data/detail/byte_source.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace aloni::nn::detail {

namespace {

class PlainFile : public ByteSource {
 public:
  PlainFile(const char* operation, const std::string& path) : operation_(operation), path_(path) {
    const int fd = open_regular_file(operation, path, "a readable file");
    struct stat status {};
    if (::fstat(fd, &status) == 0) bytes_ = static_cast<std::uint64_t>(status.st_size);
    file_.reset(::fdopen(fd, "rb"));
    if (!file_) ::close(fd);
    if (!file_) refuse("cannot be opened");
  }

  std::size_t read(std::uint8_t* to, std::size_t count) override {
    const std::size_t got = std::fread(to, 1, count, file_.get());
    if (got < count && std::ferror(file_.get())) refuse("cannot be read");
    return got;
  }

  std::uint64_t largest_size() const override { return bytes_; }
  bool has_exact_size() const override { return true; }

  bool is_gzip() {
    std::uint8_t start[2] = {0, 0};
    const std::size_t got = read(start, 2);
    std::rewind(file_.get());
    return got == 2 && start[0] == 0x1f && start[1] == 0x8b;
  }

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };

  [[noreturn]] void refuse(const char* what) const {
    throw FileError(operation_, path_, std::string(what) + " (" + std::strerror(errno) + ")", "a readable file");
  }

  const char* operation_;
  std::string path_;
  std::uint64_t bytes_ = 0;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const char* operation, const std::string& path) {
  auto file = std::make_unique<PlainFile>(operation, path);
  if (!file->is_gzip()) return file;
  if constexpr (config::has_zlib) {
    return gunzip(operation, std::move(file), path);
  } else {
    throw Unsupported(operation, path, "a gzip file", "plain files, as this build has no zlib (aloni_ENABLE_ZLIB)");
  }
}

}  // namespace aloni::nn::detail
