// Compiled only when aloni_ENABLE_ZLIB is ON. gzread of zlib accepts a truncated stream, and garbage after the last
// member, as an ordinary end of file. This reader rejects both.
#include <aloni/core/error.hpp>
#include <aloni/nn/data/detail/byte_source.hpp>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

namespace aloni::nn::detail {

namespace {

class GzipSource : public ByteSource {
 public:
  GzipSource(const char* operation, std::unique_ptr<ByteSource> compressed, std::string path)
      : operation_(operation), compressed_(std::move(compressed)), path_(std::move(path)) {
    constexpr int gzip_only = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, gzip_only) != Z_OK) refuse("cannot be decompressed (no memory)");
  }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;
  ~GzipSource() override { inflateEnd(&stream_); }

  /// A symbol of deflate has at least one bit for a length and one for a distance, and stands for at most 258 bytes:
  /// a byte expands to at most 4 * 258.
  std::uint64_t largest_size() const override { return 1032 * compressed_->largest_size(); }

  std::size_t read(std::uint8_t* to, std::size_t count) override {
    std::size_t done = 0;
    while (done < count && !ended_) {
      if (stream_.avail_in == 0) refill();
      const std::size_t room = std::min<std::size_t>(count - done, std::numeric_limits<uInt>::max());
      stream_.next_out = to + done;
      stream_.avail_out = static_cast<uInt>(room);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (code == Z_STREAM_END) {
        next_member();
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        refuse(std::string("damaged gzip data") +
               (stream_.msg != nullptr ? std::string(" (") + stream_.msg + ")" : ""));
      }
    }
    return done;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw FileError(operation_, path_, what, "a whole gzip file");
  }

  void refill() {
    const std::size_t got = compressed_->read(buffer_.data(), buffer_.size());
    if (got == 0) refuse("truncated gzip stream");
    stream_.next_in = buffer_.data();
    stream_.avail_in = static_cast<uInt>(got);
  }

  // A gzip file may consist of several members.
  void next_member() {
    if (stream_.avail_in == 0) {
      const std::size_t got = compressed_->read(buffer_.data(), buffer_.size());
      stream_.next_in = buffer_.data();
      stream_.avail_in = static_cast<uInt>(got);
    }
    ended_ = stream_.avail_in == 0;
    if (!ended_) inflateReset(&stream_);
  }

  const char* operation_;
  std::unique_ptr<ByteSource> compressed_;
  std::string path_;
  std::array<std::uint8_t, 1 << 16> buffer_{};
  z_stream stream_{};
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> gunzip(const char* operation, std::unique_ptr<ByteSource> compressed,
                                   const std::string& path) {
  return std::make_unique<GzipSource>(operation, std::move(compressed), path);
}

}  // namespace aloni::nn::detail
