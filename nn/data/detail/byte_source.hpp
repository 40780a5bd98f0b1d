#pragma once
// The bytes of a file in order, decompressed if necessary. Private to nn/data.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace aloni::nn::detail {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Up to `count` bytes; fewer only at the end. Throws FileError naming the path.
  virtual std::size_t read(std::uint8_t* to, std::size_t count) = 0;
  /// Upper bound of the number of all bytes, known before the first is read.
  virtual std::uint64_t largest_size() const = 0;
  virtual bool has_exact_size() const { return false; }  ///< whether largest_size() is their number
};

/// The bytes of the file. Decompressed if the file starts with the gzip magic number; its name does not matter. Throws
/// FileError; Unsupported for a gzip file if the build has no zlib. `operation` is for the error text and outlives the
/// source.
std::unique_ptr<ByteSource> open_bytes(const char* operation, const std::string& path);

/// Decompresses the bytes of `compressed`. Defined only in builds with zlib.
std::unique_ptr<ByteSource> gunzip(const char* operation, std::unique_ptr<ByteSource> compressed,
                                   const std::string& path);

}  // namespace aloni::nn::detail
