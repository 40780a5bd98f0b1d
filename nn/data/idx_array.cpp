#include <aloni/nn/data/idx_array.hpp>

#include <aloni/nn/data/detail/dense_array.hpp>
#include <aloni/nn/data/idx.hpp>

#include <vector>

namespace aloni::nn {

std::shared_ptr<const SampleArray> open_idx(const std::string& path) {
  constexpr const char* operation = "aloni::nn::open_idx";
  IdxFile file(path);
  const auto [samples, extents] = detail::samples_of_shape(operation, path, file.extents());
  if (!file.compressed()) {
    return detail::dense_array(operation, detail::open_stored_bytes(operation, path), file.header_bytes(), samples,
                               StoredType::uint8, extents);
  }
  const auto values = std::make_shared<std::vector<std::uint8_t>>(file.read_values());
  return detail::dense_array(operation, detail::bytes_in_memory(path, std::as_bytes(std::span(*values)), values), 0,
                             samples, StoredType::uint8, extents);
}

}  // namespace aloni::nn
