#include <aloni/nn/data/detail/dense_array.hpp>

#include <aloni/core/error.hpp>

#include <cstring>
#include <utility>

namespace aloni::nn::detail {

namespace {

using views::Box;
using views::Dim;

class DenseArray : public SampleArray {
 public:
  DenseArray(std::shared_ptr<const StoredBytes> bytes, std::uint64_t offset, Index samples, StoredType type,
             const views::Extents& extents)
      : SampleArray(bytes->name(), samples, type, extents), bytes_(std::move(bytes)), offset_(offset) {}

 private:
  /// One read for each run of elements that are neighbours in the file and in the box: the whole box if it consists of
  /// whole rows, otherwise a part of a row.
  void read_box(Index sample, const Box& box, std::span<std::byte> into) const override {
    const auto& whole = extents().values;
    const auto part = views::extents_of(box).values;
    if (part[4] < whole[4] && part[3] > 1) return read_channels(sample, box, into);
    int inner = 4;
    Index run = part[4];
    while (inner > 1 && part[inner] == whole[inner]) run *= part[--inner];
    const auto run_bytes = static_cast<std::size_t>(run * bytes_of(type()));
    Box at = box;  // the lower corner of a run
    for (std::size_t done = 0; done < into.size(); done += run_bytes) {
      bytes_->read(position(sample, at), into.subspan(done, run_bytes));
      for (int d = inner - 1; d >= 1; --d) {
        if (++at.lo[d] < box.hi[d]) break;
        at.lo[d] = box.lo[d];
      }
    }
  }

  /// With a part of the channels, runs are shorter than a pixel. So whole pixels of one row are read, then copied.
  void read_channels(Index sample, const Box& box, std::span<std::byte> into) const {
    const auto element = static_cast<std::size_t>(bytes_of(type()));
    const std::size_t pixel = element * static_cast<std::size_t>(extents()[Dim::channel]);
    const std::size_t wanted = element * static_cast<std::size_t>(box.extent(Dim::channel));
    const std::size_t first = element * static_cast<std::size_t>(box.lower(Dim::channel));
    std::vector<std::byte> row(pixel * static_cast<std::size_t>(box.extent(Dim::width)));
    Box at = box;
    at.set(Dim::channel, 0, extents()[Dim::channel]);
    std::byte* to = into.data();
    for (at.lo[1] = box.lo[1]; at.lo[1] < box.hi[1]; ++at.lo[1]) {
      for (at.lo[2] = box.lo[2]; at.lo[2] < box.hi[2]; ++at.lo[2]) {
        bytes_->read(position(sample, at), row);
        for (std::size_t p = first; p < row.size(); p += pixel, to += wanted) std::memcpy(to, row.data() + p, wanted);
      }
    }
  }

  std::uint64_t position(Index sample, const Box& at) const {
    Index p = sample;
    for (int d = 1; d < views::num_dims; ++d) p = p * extents().values[d] + at.lo[d];
    return offset_ + static_cast<std::uint64_t>(p * bytes_of(type()));
  }

  std::uint64_t digest() const override { return bytes_->digest(); }

  std::shared_ptr<const StoredBytes> bytes_;
  std::uint64_t offset_;
};

}  // namespace

std::shared_ptr<const SampleArray> dense_array(const char* operation, std::shared_ptr<const StoredBytes> bytes,
                                               std::uint64_t offset, Index samples, StoredType type,
                                               const views::Extents& extents) {
  const std::string& path = bytes->name();
  const std::string content = std::to_string(samples) + " samples of " + to_string(extents) + " " + name(type) +
                              " from byte " + std::to_string(offset) + " on";
  Index need = saturating_product(bytes_of(type), samples);
  for (const Index e : extents.values) {
    if (e < 1) throw FileError(operation, path, "extents " + to_string(extents), "at least 1 in each dimension");
    need = saturating_product(need, e);
  }
  if (samples < 1) throw FileError(operation, path, "number of samples " + std::to_string(samples), "at least 1");
  if (need > max_bytes) throw FileError(operation, path, "absurd extents: " + content, "at most 2^61 bytes");
  const std::uint64_t end = offset + static_cast<std::uint64_t>(need);
  if (offset > static_cast<std::uint64_t>(max_bytes) || end != bytes->size()) {
    throw FileError(operation, path, std::to_string(bytes->size()) + " bytes",
                    std::to_string(end) + ", for " + content);
  }
  return std::make_shared<DenseArray>(std::move(bytes), offset, samples, type, extents);
}

SamplesAndExtents samples_of_shape(const char* operation, const std::string& path, const std::vector<Index>& shape) {
  switch (shape.size()) {
    case 1:
      return {shape[0], {{1, 1, 1, 1, 1}}};
    case 3:
      return {shape[0], {{1, 1, shape[1], shape[2], 1}}};
    case 4:
      return {shape[0], {{1, 1, shape[1], shape[2], shape[3]}}};
    case 5:
      return {shape[0], {{1, shape[1], shape[2], shape[3], shape[4]}}};
    default:
      break;
  }
  throw FileError(operation, path, std::to_string(shape.size()) + " dimensions",
                  "1 (N: labels), 3 (N,H,W), 4 (N,H,W,C) or 5 (N,D,H,W,C)");
}

}  // namespace aloni::nn::detail
