#include <aloni/nn/data/sample_array.hpp>

#include <aloni/core/error.hpp>

#include <utility>

namespace aloni::nn {

namespace {

constexpr const char* read_sample_operation = "aloni::nn::SampleArray::read";

void check(bool good, const char* argument, const std::string& value, const std::string& expectation) {
  if (!good) throw InvalidArgument(read_sample_operation, argument, value, expectation);
}

}  // namespace

SampleArray::SampleArray(std::string name, Index size, StoredType type, const views::Extents& extents)
    : name_(std::move(name)), size_(size), type_(type), extents_(extents) {
  views::Extents all = extents;
  all[views::Dim::sample] = size;
  views::check_extents("aloni::nn::SampleArray", all);
  if (extents[views::Dim::sample] != 1 || extents.size() < 1) {
    throw InvalidArgument("aloni::nn::SampleArray", "extents", to_string(extents),
                          "one sample with at least one element");
  }
}

void SampleArray::read(Index sample, const views::Box& box, std::span<std::byte> into) const {
  check(sample >= 0 && sample < size_, "sample", std::to_string(sample),
        "at least 0 and below " + std::to_string(size_) + ", the number of samples of " + name_);
  check(contains(whole(extents_), box), "box", to_string(box), "a part of " + to_string(whole(extents_)));
  if (box.empty()) return;
  const Index bytes = box.size() * bytes_of(type_);
  check(std::ssize(into) == bytes, "into", std::to_string(into.size()) + " bytes", std::to_string(bytes));
  read_box(sample, box, into);
}

std::string SampleArray::fingerprint() const {
  return std::to_string(size_) + " samples of " + to_string(extents_) + " " + nn::name(type_) + ", digest " +
         std::to_string(digest());
}

}  // namespace aloni::nn
