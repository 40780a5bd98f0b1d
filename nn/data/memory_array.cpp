#include <aloni/nn/data/memory_array.hpp>

#include <aloni/nn/data/detail/dense_array.hpp>

#include <algorithm>
#include <utility>

namespace aloni::nn {

std::shared_ptr<const SampleArray> memory_array(std::string name, std::span<const std::byte> bytes, StoredType type,
                                                const views::Extents& extents, std::shared_ptr<const void> owner) {
  const Index sample = saturating_product(extents.size(), bytes_of(type));
  const Index samples = std::ssize(bytes) / std::max<Index>(sample, 1);
  return detail::dense_array("aloni::nn::memory_array",
                             detail::bytes_in_memory(std::move(name), bytes, std::move(owner)), 0, samples, type,
                             extents);
}

}  // namespace aloni::nn
