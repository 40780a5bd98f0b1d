#pragma once
// Samples in host memory of this rank, as a SampleArray.
//
//   std::vector<float> values = …;                              // 10 samples of 64 x 64 pixels with 3 channels
//   const auto images = memory_array("images", values, {{1, 1, 64, 64, 3}});
#include <aloni/nn/data/sample_array.hpp>

#include <concepts>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace aloni::nn {

/// `bytes` as samples of `extents`, not copied: one after another, dense, channels last.
/// `owner` keeps the memory alive; without an owner the caller keeps it as long as the array.
/// Not collective. Throws FileError naming `name` if `bytes` is not a whole number of samples, at least 1.
std::shared_ptr<const SampleArray> memory_array(std::string name, std::span<const std::byte> bytes, StoredType type,
                                                const views::Extents& extents,
                                                std::shared_ptr<const void> owner = nullptr);

/// Takes the values.
template <class T>
std::shared_ptr<const SampleArray> memory_array(std::string name, std::vector<T> values,
                                                const views::Extents& extents) {
  constexpr StoredType type = std::same_as<T, std::uint8_t>   ? StoredType::uint8
                              : std::same_as<T, std::int8_t>  ? StoredType::int8
                              : std::same_as<T, std::int16_t> ? StoredType::int16
                              : std::same_as<T, std::int32_t> ? StoredType::int32
                              : std::same_as<T, std::int64_t> ? StoredType::int64
                              : std::same_as<T, float>        ? StoredType::float32
                                                              : StoredType::float64;
  static_assert(type != StoredType::float64 || std::same_as<T, double>, "no element type of a data set");
  const auto kept = std::make_shared<std::vector<T>>(std::move(values));
  return memory_array(std::move(name), std::as_bytes(std::span(*kept)), type, extents, kept);
}

}  // namespace aloni::nn
