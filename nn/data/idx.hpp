#pragma once
// The IDX format of MNIST: magic number (two zero bytes, element type, number of dimensions), 32-bit big-endian
// extents, elements. Only unsigned bytes (type 0x08) are supported. Files may be gzip-compressed.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace aloni::nn {

struct IdxArray {
  std::vector<std::int64_t> extents;
  std::vector<std::uint8_t> values;
};

/// A file whose extents are known before its values are read, so that a wrong file costs no memory.
class IdxFile {
 public:
  /// Reads the header. Throws FileError naming the path and the defect. Defects are: missing, no regular file,
  /// truncated header, magic number, more elements than a file of this size can hold. Throws Unsupported for a gzip
  /// file if the build has no zlib.
  explicit IdxFile(const std::string& path);
  IdxFile(IdxFile&&) noexcept;
  ~IdxFile();

  const std::vector<std::int64_t>& extents() const;
  std::uint64_t elements() const;      ///< the product of the extents
  bool compressed() const;             ///< whether the file is a gzip file
  std::uint64_t header_bytes() const;  ///< position of the first value in a plain file
  /// The values. Throws FileError for a truncated file and for trailing bytes. @pre called once
  std::vector<std::uint8_t> read_values();

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

/// Reads header and values of `path`. Throws as IdxFile.
IdxArray read_idx(const std::string& path);

}  // namespace aloni::nn
