#include <aloni/nn/data/idx_array.hpp>

#include <aloni/nn/data/detail/dense_array.hpp>
#include <aloni/nn/data/idx.hpp>

#include <cstdint>

namespace aloni::nn {

std::shared_ptr<const SampleArray> open_idx(const std::string& path) {
  constexpr const char* operation = "aloni::nn::open_idx";
  IdxFile file(path);
  const auto [samples, extents] = detail::samples_of_shape(operation, path, file.extents());
  if (!file.compressed()) {
    return detail::dense_array(operation, detail::open_stored_bytes(operation, path), file.header_bytes(), samples,
                               StoredType::uint8, extents);
  }
  const std::uint64_t all = file.header_bytes() + file.elements();
  const auto bytes = detail::inflate_stored_bytes(operation, path, all);
  return detail::dense_array(operation, bytes, file.header_bytes(), samples, StoredType::uint8, extents);
}

}  // namespace aloni::nn
