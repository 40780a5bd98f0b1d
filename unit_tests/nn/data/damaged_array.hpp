#pragma once
// Samples of which one cannot be read.
#include <aloni/core/error.hpp>
#include <aloni/nn/data/sample_array.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace aloni::test {

/// The samples of `array`. To read the sample `damaged` throws FileError.
class DamagedArray : public nn::SampleArray {
 public:
  DamagedArray(std::shared_ptr<const SampleArray> array, std::optional<Index> damaged)
      : SampleArray("broken file", array->size(), array->type(), array->extents()),
        array_(std::move(array)),
        damaged_(damaged) {}

 private:
  void read_box(Index sample, const views::Box& box, std::span<std::byte> into) const override {
    if (sample == damaged_) throw FileError("test", name(), "damaged", "whole");
    array_->read(sample, box, into);
  }
  std::uint64_t digest() const override { return 0; }

  std::shared_ptr<const SampleArray> array_;
  std::optional<Index> damaged_;
};

}  // namespace aloni::test
