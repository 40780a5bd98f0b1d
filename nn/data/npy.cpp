#include <aloni/nn/data/npy.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/data/detail/dense_array.hpp>
#include <aloni/nn/data/detail/npy_header.hpp>

#include <array>
#include <bit>

namespace aloni::nn {

namespace {

constexpr const char* npy_operation = "aloni::nn::open_npy";
static_assert(std::endian::native == std::endian::little, "the elements of a .npy file are little-endian");

std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i > 0; --i) value = value << 8 | static_cast<std::uint64_t>(bytes[i - 1]);
  return value;
}

StoredType type_of(const std::string& path, const std::string& descr) {
  constexpr std::array<std::pair<const char*, StoredType>, 7> types{{{"u1", StoredType::uint8},
                                                                     {"i1", StoredType::int8},
                                                                     {"i2", StoredType::int16},
                                                                     {"i4", StoredType::int32},
                                                                     {"i8", StoredType::int64},
                                                                     {"f4", StoredType::float32},
                                                                     {"f8", StoredType::float64}}};
  for (const auto& [text, type] : types) {
    const bool one_byte = bytes_of(type) == 1;
    if (descr == std::string("<") + text || (one_byte && descr == std::string("|") + text)) return type;
  }
  throw FileError(npy_operation, path, "descr '" + descr + "'", "'|u1', '|i1', '<i2', '<i4', '<i8', '<f4' or '<f8'");
}

}  // namespace

std::shared_ptr<const SampleArray> open_npy(const std::string& path) {
  const auto file = detail::open_stored_bytes(npy_operation, path);
  const auto refuse = [&](const std::string& found, const std::string& expectation) {
    throw FileError(npy_operation, path, found, expectation);
  };
  constexpr std::array<std::byte, 6> magic{std::byte{0x93}, std::byte{'N'}, std::byte{'U'},
                                           std::byte{'M'},  std::byte{'P'}, std::byte{'Y'}};
  std::array<std::byte, 12> start{};
  if (file->size() < 10) refuse("truncated in its header", "a .npy file");
  file->read(0, std::span(start).first(10));
  if (!std::equal(magic.begin(), magic.end(), start.begin())) refuse("wrong magic string", "a .npy file");
  const int version = static_cast<int>(start[6]);
  if (version < 1 || version > 3 || start[7] != std::byte{0})
    refuse("version " + std::to_string(version) + "." + std::to_string(static_cast<int>(start[7])), "1.0, 2.0 or 3.0");
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  if (file->size() < 8 + length_bytes) refuse("truncated in its header", "a .npy file");
  file->read(8, std::span(start).subspan(8).first(length_bytes));
  const std::uint64_t length = little_endian(std::span(start).subspan(8).first(length_bytes));
  const std::uint64_t offset = 8 + length_bytes + length;
  constexpr std::uint64_t most = 1 << 16;  // headers of arrays have about 120 bytes
  if (length > most) refuse("header of " + std::to_string(length) + " bytes", "at most " + std::to_string(most));
  if (offset > file->size()) refuse("truncated in its header", std::to_string(offset) + " bytes of header");
  std::string text(length, '\0');
  file->read(8 + length_bytes, std::as_writable_bytes(std::span(text)));

  const detail::NpyHeader header = detail::parse_npy_header(npy_operation, path, text);
  if (header.fortran_order) refuse("fortran_order True", "False; numpy.ascontiguousarray gives this order");
  const StoredType type = type_of(path, header.descr);
  const auto [samples, extents] = detail::samples_of_shape(npy_operation, path, header.shape);
  return detail::dense_array(npy_operation, file, offset, samples, type, extents);
}

}  // namespace aloni::nn
