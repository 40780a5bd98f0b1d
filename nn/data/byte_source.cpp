#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>
#include <aloni/nn/data/detail/byte_source.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace aloni::nn::detail {

namespace {

constexpr const char* source_operation = "aloni::nn::read_idx";

class PlainFile : public ByteSource {
 public:
  explicit PlainFile(const std::string& path) : path_(path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (!std::filesystem::exists(status)) throw FileError(source_operation, path, "missing", "a readable file");
    if (!std::filesystem::is_regular_file(status))
      throw FileError(source_operation, path, "not a regular file", "a readable file");
    file_.reset(std::fopen(path.c_str(), "rb"));
    if (!file_) refuse("cannot be opened");
  }

  std::size_t read(std::uint8_t* to, std::size_t count) override {
    const std::size_t got = std::fread(to, 1, count, file_.get());
    if (got < count && std::ferror(file_.get())) refuse("cannot be read");
    return got;
  }

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
    throw FileError(source_operation, path_, std::string(what) + " (" + std::strerror(errno) + ")", "a readable file");
  }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  auto file = std::make_unique<PlainFile>(path);
  if (!file->is_gzip()) return file;
  if constexpr (config::has_zlib) {
    return gunzip(std::move(file), path);
  } else {
    throw Unsupported(source_operation, path, "a gzip file",
                      "plain IDX files, as this build has no zlib (aloni_ENABLE_ZLIB)");
  }
}

}  // namespace aloni::nn::detail
