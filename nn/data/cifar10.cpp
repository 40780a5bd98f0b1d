#include <aloni/nn/data/cifar10.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/data/detail/stored_bytes.hpp>

#include <array>
#include <utility>

namespace aloni::nn {

namespace {

using views::Box;
using views::Dim;

constexpr const char* cifar10_operation = "aloni::nn::open_cifar10";
constexpr Index rows = 32, pixels = 32 * 32, channels = 3, record_bytes = 1 + channels * pixels;

/// All records; a record is found by its number over all files.
class Records {
 public:
  explicit Records(const std::vector<std::string>& paths) {
    if (paths.empty()) throw InvalidArgument(cifar10_operation, "paths", "none", "at least one file");
    for (const auto& path : paths) {
      const auto file = detail::is_gzip(cifar10_operation, path)
                            ? detail::inflate_stored_bytes(cifar10_operation, path, std::uint64_t{1} << 40)
                            : detail::open_stored_bytes(cifar10_operation, path);
      const std::uint64_t bytes = file->size();
      if (bytes == 0 || bytes % record_bytes != 0) {
        throw FileError(cifar10_operation, path, std::to_string(bytes) + " bytes",
                        "a whole number of records of " + std::to_string(record_bytes) + " bytes, at least one");
      }
      files_.push_back({size_, file});
      size_ += static_cast<Index>(bytes / record_bytes);
    }
  }

  Index size() const { return size_; }
  const std::string& name() const { return files_.front().bytes->name(); }

  void read(Index record, Index offset, std::span<std::byte> into) const {
    std::size_t f = files_.size() - 1;
    while (record < files_[f].first) --f;
    files_[f].bytes->read(static_cast<std::uint64_t>((record - files_[f].first) * record_bytes + offset), into);
  }

  std::uint64_t digest() const {
    std::uint64_t sum = 0;
    for (const File& file : files_) sum = 31 * sum + file.bytes->digest();
    return sum;
  }

 private:
  struct File {
    Index first;  ///< its first record
    std::shared_ptr<const detail::StoredBytes> bytes;
  };

  std::vector<File> files_;
  Index size_ = 0;
};

class Images : public SampleArray {
 public:
  explicit Images(std::shared_ptr<const Records> records)
      : SampleArray(records->name(), records->size(), StoredType::uint8, {{1, 1, rows, rows, channels}}),
        records_(std::move(records)) {}

 private:
  /// Reads the whole record: it is shorter than a page of a file.
  void read_box(Index sample, const Box& box, std::span<std::byte> into) const override {
    std::array<std::byte, channels * pixels> planes;
    records_->read(sample, 1, planes);
    std::byte* to = into.data();
    for (Index h = box.lower(Dim::height); h < box.upper(Dim::height); ++h) {
      for (Index w = box.lower(Dim::width); w < box.upper(Dim::width); ++w) {
        for (Index c = box.lower(Dim::channel); c < box.upper(Dim::channel); ++c)
          *to++ = planes[static_cast<std::size_t>(c * pixels + h * rows + w)];
      }
    }
  }
  std::uint64_t digest() const override { return records_->digest(); }

  std::shared_ptr<const Records> records_;
};

class Labels : public SampleArray {
 public:
  explicit Labels(std::shared_ptr<const Records> records)
      : SampleArray(records->name(), records->size(), StoredType::uint8, {{1, 1, 1, 1, 1}}),
        records_(std::move(records)) {}

 private:
  void read_box(Index sample, const Box&, std::span<std::byte> into) const override { records_->read(sample, 0, into); }
  std::uint64_t digest() const override { return records_->digest(); }

  std::shared_ptr<const Records> records_;
};

}  // namespace

Dataset open_cifar10(const std::vector<std::string>& paths) {
  const auto records = std::make_shared<const Records>(paths);
  return {.inputs = std::make_shared<Images>(records),
          .targets = std::make_shared<Labels>(records),
          .target_kind = TargetKind::sample_labels,
          .classes = 10,
          .normalisation = {1.0 / 255.0, {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}}};
}

}  // namespace aloni::nn
