#pragma once
// Bytes that can be read at any position by several threads: a file, or memory. Private to nn/data.
#include <aloni/core/index.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace aloni::nn::detail {

class StoredBytes {
 public:
  explicit StoredBytes(std::string name) : name_(std::move(name)) {}
  virtual ~StoredBytes() = default;
  StoredBytes(const StoredBytes&) = delete;
  StoredBytes& operator=(const StoredBytes&) = delete;

  const std::string& name() const { return name_; }  ///< the path of the file
  virtual std::uint64_t size() const = 0;
  /// Fills `into` with the bytes from `offset` on. Thread-safe. Throws FileError if the file has become shorter.
  virtual void read(std::uint64_t offset, std::span<std::byte> into) const = 0;
  /// FNV-1a of the size and of 16 blocks of 4 KiB spread over the bytes; of all bytes if there are fewer.
  std::uint64_t digest() const;

 private:
  std::string name_;
};

/// The file, of which nothing is kept in memory. Throws FileError with `operation` if it is no readable regular file.
std::shared_ptr<const StoredBytes> open_stored_bytes(const char* operation, const std::string& path);

/// The contents of a gzip file, which cannot be read from the middle. Up to `in_memory` bytes stay in memory. More go
/// to a temporary file of this process in TMPDIR, by default /tmp; it has no name and goes with this object.
/// Throws as open_bytes (detail/byte_source.hpp). Throws FileError above `most` bytes, and if the temporary file cannot
/// be written.
inline constexpr std::uint64_t most_inflated_in_memory = std::uint64_t{64} << 20;
std::shared_ptr<const StoredBytes> inflate_stored_bytes(const char* operation, const std::string& path,
                                                        std::uint64_t most,
                                                        std::uint64_t in_memory = most_inflated_in_memory);

/// Bytes in memory, not copied. `owner` keeps them alive; without an owner the caller does.
std::shared_ptr<const StoredBytes> bytes_in_memory(std::string name, std::span<const std::byte> bytes,
                                                   std::shared_ptr<const void> owner);

/// Whether the file starts with the magic number of gzip. Throws FileError with `operation`.
bool is_gzip(const char* operation, const std::string& path);

}  // namespace aloni::nn::detail
