#include <aloni/nn/data/idx.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/data/detail/byte_source.hpp>

#include <algorithm>
#include <array>

namespace aloni::nn {

namespace {

constexpr const char* idx_operation = "aloni::nn::read_idx";
constexpr std::uint8_t unsigned_bytes = 0x08;
constexpr std::int64_t max_elements = std::int64_t{1} << 62;
// Memory grows with the bytes that were read, because a damaged header may announce more elements than the file has.
constexpr std::size_t first_allocation = std::size_t{64} << 20;

std::string hexadecimal(const std::uint8_t* bytes, std::size_t count) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text = "0x";
  for (std::size_t i = 0; i < count; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

std::string joined(const std::vector<std::int64_t>& extents) {
  std::string text;
  for (auto e : extents) text += (text.empty() ? "" : "x") + std::to_string(e);
  return text;
}

}  // namespace

class IdxFile::Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), source_(detail::open_bytes(idx_operation, path)) {
    std::array<std::uint8_t, 4> magic{};
    read_header(magic.data(), magic.size());
    if (magic[0] != 0 || magic[1] != 0 || magic[3] == 0) {
      refuse("wrong magic number " + hexadecimal(magic.data(), magic.size()),
             "0x000008 and the number of dimensions, as in all IDX files of unsigned bytes");
    }
    if (magic[2] != unsigned_bytes) {
      refuse("element type " + hexadecimal(&magic[2], 1), "0x08, unsigned bytes");
    }
    std::int64_t count = 1;
    for (int i = 0; i < magic[3]; ++i) {
      std::array<std::uint8_t, 4> b{};
      read_header(b.data(), b.size());
      const std::int64_t extent = (std::int64_t{b[0]} << 24) | (b[1] << 16) | (b[2] << 8) | b[3];
      extents_.push_back(extent);
      if (extent > 0 && count > max_elements / extent) {
        refuse("absurd extents " + joined(extents_), "at most 2^62 elements");
      }
      count *= std::max<std::int64_t>(extent, 1);
    }
    if (std::find(extents_.begin(), extents_.end(), 0) != extents_.end()) count = 0;
    count_ = static_cast<std::size_t>(count);
    const std::uint64_t header = 4 + 4 * extents_.size(), bytes = source_->largest_size();
    if (count_ + header <= bytes) return;
    const std::string most = std::to_string(bytes - header) + " elements";
    if (source_->has_exact_size()) {
      refuse("truncated after " + most, std::to_string(count_) + " (" + joined(extents_) + ")");
    }
    refuse("absurd extents " + joined(extents_), "at most " + most + " in a compressed file of this size");
  }

  const std::vector<std::int64_t>& extents() const { return extents_; }
  std::uint64_t elements() const { return count_; }
  bool compressed() const { return !source_->has_exact_size(); }

  std::vector<std::uint8_t> read() {
    std::vector<std::uint8_t> values;
    read_values(values);
    std::uint8_t extra = 0;
    if (source_->read(&extra, 1) != 0) {
      refuse("trailing bytes after " + std::to_string(count_) + " elements",
             "the end of the file after " + joined(extents_));
    }
    return values;
  }

 private:
  [[noreturn]] void refuse(const std::string& what, const std::string& expectation) const {
    throw FileError(idx_operation, path_, what, expectation);
  }

  void read_header(std::uint8_t* to, std::size_t count) {
    if (source_->read(to, count) != count) refuse("truncated in its header", "magic number and extents of an IDX file");
  }

  void read_values(std::vector<std::uint8_t>& values) {
    std::size_t have = 0;
    while (have < count_) {
      values.resize(std::min(count_, std::max(first_allocation, 2 * have)));
      const std::size_t got = source_->read(values.data() + have, values.size() - have);
      have += got;
      if (have < values.size()) {
        refuse("truncated after " + std::to_string(have) + " elements",
               std::to_string(count_) + " (" + joined(extents_) + ")");
      }
    }
  }

  std::string path_;
  std::unique_ptr<detail::ByteSource> source_;
  std::vector<std::int64_t> extents_;
  std::size_t count_ = 0;
};

IdxFile::IdxFile(const std::string& path) : reader_(std::make_unique<Reader>(path)) {}
IdxFile::IdxFile(IdxFile&&) noexcept = default;
IdxFile::~IdxFile() = default;

const std::vector<std::int64_t>& IdxFile::extents() const { return reader_->extents(); }
std::uint64_t IdxFile::elements() const { return reader_->elements(); }
bool IdxFile::compressed() const { return reader_->compressed(); }
std::uint64_t IdxFile::header_bytes() const { return 4 + 4 * extents().size(); }

std::vector<std::uint8_t> IdxFile::read_values() { return reader_->read(); }

IdxArray read_idx(const std::string& path) {
  IdxFile file(path);
  return {file.extents(), file.read_values()};
}

}  // namespace aloni::nn
