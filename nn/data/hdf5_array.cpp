// Compiled only when aloni_ENABLE_HDF5 is ON.
#include <aloni/nn/data/hdf5_array.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/data/detail/dense_array.hpp>

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

namespace aloni::nn {

namespace {

using views::Box;

constexpr const char* open_operation = "aloni::nn::open_hdf5";

/// Holds the mutex of all calls, and switches off the messages that HDF5 prints on errors.
class Calls {
 public:
  Calls() : lock_(mutex()) {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }

 private:
  static std::mutex& mutex() {
    static std::mutex of_all_calls;
    return of_all_calls;
  }

  std::scoped_lock<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

/// Closes an object of HDF5. To be destroyed while Calls lives.
class Object {
 public:
  Object(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() {
    if (id_ >= 0) close_(id_);
  }
  hid_t id() const { return id_; }
  hid_t release() { return std::exchange(id_, -1); }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

[[noreturn]] void refuse(const std::string& path, const std::string& found, const std::string& expectation) {
  throw FileError(open_operation, path, found, expectation);
}

/// A regular file, so that HDF5 waits for no pipe.
hid_t open_file(const std::string& path) {
  detail::open_stored_bytes(open_operation, path);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file < 0) refuse(path, "no whole file of HDF5", "a file of HDF5");
  return file;
}

StoredType type_of(hid_t data_set, const std::string& path, const std::string& what) {
  const Object type(H5Dget_type(data_set), H5Tclose);
  const H5T_class_t kind = H5Tget_class(type.id());
  const std::size_t bytes = H5Tget_size(type.id());
  const bool is_signed = kind == H5T_INTEGER && H5Tget_sign(type.id()) == H5T_SGN_2;
  if (kind == H5T_INTEGER && !is_signed && bytes == 1) return StoredType::uint8;
  if (is_signed && bytes == 1) return StoredType::int8;
  if (is_signed && bytes == 2) return StoredType::int16;
  if (is_signed && bytes == 4) return StoredType::int32;
  if (is_signed && bytes == 8) return StoredType::int64;
  if (kind == H5T_FLOAT && bytes == 4) return StoredType::float32;
  if (kind == H5T_FLOAT && bytes == 8) return StoredType::float64;
  refuse(path, what + " has another type of " + std::to_string(bytes) + " bytes", "one of: " + stored_type_names());
}

hid_t native(StoredType type) {
  switch (type) {
    case StoredType::uint8:
      return H5T_NATIVE_UINT8;
    case StoredType::int8:
      return H5T_NATIVE_INT8;
    case StoredType::int16:
      return H5T_NATIVE_INT16;
    case StoredType::int32:
      return H5T_NATIVE_INT32;
    case StoredType::int64:
      return H5T_NATIVE_INT64;
    case StoredType::float32:
      return H5T_NATIVE_FLOAT;
    case StoredType::float64:
      break;
  }
  return H5T_NATIVE_DOUBLE;
}

struct Header {
  std::vector<Index> shape;
  StoredType type = StoredType::uint8;
  Index samples = 0;
  views::Extents extents;
};

/// HDF5 holds each chunk that it reads in memory, with the size that the file claims. Deflate expands to at most 1,032
/// times; other filters to more, so smaller chunks are read in any case.
void check_chunks(hid_t data_set, StoredType type, Index file_bytes, const std::string& path, const std::string& what) {
  constexpr Index always = Index{64} << 20, most_expansion = 1032;
  const Object properties(H5Dget_create_plist(data_set), H5Pclose);
  if (properties.id() < 0 || H5Pget_layout(properties.id()) != H5D_CHUNKED) return;
  std::array<hsize_t, H5S_MAX_RANK> extents{};
  const int dimensions = H5Pget_chunk(properties.id(), H5S_MAX_RANK, extents.data());
  Index bytes = bytes_of(type);
  for (int d = 0; d < dimensions; ++d)
    bytes = saturating_product(bytes, static_cast<Index>(extents[static_cast<std::size_t>(d)]));
  if (bytes > std::max(always, saturating_product(most_expansion, file_bytes)))
    refuse(path, what + " has chunks of " + std::to_string(bytes) + " bytes",
           "chunks of at most 64 MiB, or 1032 times the " + std::to_string(file_bytes) + " bytes of the file");
}

Header header_of(hid_t data_set, const std::string& path, const std::string& what) {
  const Object space(H5Dget_space(data_set), H5Sclose);
  const int dimensions = H5Sget_simple_extent_ndims(space.id());
  if (dimensions < 1 || dimensions > 5)
    refuse(path, what + " has " + std::to_string(dimensions) + " dimensions", "1 to 5");
  std::array<hsize_t, 5> sizes{};
  H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr);
  Header h;
  Index elements = 1;
  for (int d = 0; d < dimensions; ++d) {
    if (sizes[d] < 1 || sizes[d] > static_cast<hsize_t>(max_elements))
      refuse(path, what + " has extent " + std::to_string(sizes[d]), "from 1 to 2^58");
    h.shape.push_back(static_cast<Index>(sizes[d]));
    elements = saturating_product(elements, h.shape.back());
  }
  if (elements > max_elements) refuse(path, what + " has absurd extents", "at most 2^58 elements");
  h.type = type_of(data_set, path, what);
  if (H5Dget_storage_size(data_set) == 0) refuse(path, what + " has no stored elements", "a written data set");
  const auto [samples, extents] = detail::samples_of_shape(open_operation, path, h.shape);
  h.samples = samples;
  h.extents = extents;
  return h;
}

class Hdf5Array : public SampleArray {
 public:
  /// Takes the data set, which it closes.
  Hdf5Array(const std::string& path, const Header& header, hid_t data_set, std::uint64_t digest)
      : SampleArray(path, header.samples, header.type, header.extents),
        shape_(header.shape),
        data_set_(data_set),
        digest_(digest) {}
  ~Hdf5Array() override {
    const Calls calls;
    H5Dclose(data_set_);
  }

 private:
  void read_box(Index sample, const Box& box, std::span<std::byte> into) const override {
    // The dimensions of the file: sample, then D,H,W,C without those that the file does not have.
    std::array<hsize_t, 5> start{static_cast<hsize_t>(sample)}, count{1};
    const int first = shape_.size() == 5 ? 1 : 2;
    for (std::size_t d = 1; d < shape_.size(); ++d) {
      const auto dim = static_cast<std::size_t>(first) + d - 1;
      start[d] = static_cast<hsize_t>(box.lo[dim]);
      count[d] = static_cast<hsize_t>(box.hi[dim] - box.lo[dim]);
    }
    const Calls calls;
    const Object from(H5Dget_space(data_set_), H5Sclose);
    const Object to(H5Screate_simple(static_cast<int>(shape_.size()), count.data(), nullptr), H5Sclose);
    if (H5Sselect_hyperslab(from.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) < 0 ||
        H5Dread(data_set_, native(type()), to.id(), from.id(), H5P_DEFAULT, into.data()) < 0) {
      refuse(name(), "sample " + std::to_string(sample) + " cannot be read", "a whole file of HDF5");
    }
  }
  std::uint64_t digest() const override { return digest_; }

  std::vector<Index> shape_;
  hid_t data_set_;
  std::uint64_t digest_;
};

}  // namespace

std::shared_ptr<const SampleArray> open_hdf5(const std::string& path, const std::string& data_set) {
  const Calls calls;
  const std::string what = "data set " + data_set;
  const Object file(open_file(path), H5Fclose);
  Object set(H5Dopen2(file.id(), data_set.c_str(), H5P_DEFAULT), H5Dclose);
  if (set.id() < 0) refuse(path, "no " + what, "a data set with this name");
  const Header header = header_of(set.id(), path, what);
  const auto stored = detail::open_stored_bytes(open_operation, path);
  check_chunks(set.id(), header.type, static_cast<Index>(stored->size()), path, what);
  const std::uint64_t digest = stored->digest();
  return std::make_shared<Hdf5Array>(path, header, set.release(), digest);
}

std::vector<std::string> hdf5_names(const std::string& path) {
  const Calls calls;
  const Object file(open_file(path), H5Fclose);
  std::vector<std::string> names;
  const auto add = [](hid_t, const char* name, const H5L_info_t*, void* all) -> herr_t {
    static_cast<std::vector<std::string>*>(all)->emplace_back(name);
    return 0;
  };
  if (H5Literate(file.id(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, add, &names) < 0)
    refuse(path, "the root group cannot be read", "a whole file of HDF5");
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace aloni::nn
