// Compiled when aloni_ENABLE_HDF5 is OFF.
#include <aloni/core/error.hpp>
#include <aloni/nn/data/hdf5_array.hpp>

namespace aloni::nn {

namespace {

[[noreturn]] void refuse(const char* operation, const std::string& path) {
  throw Unsupported(operation, path, "a file of HDF5",
                    ".npy or raw files, as this build has no HDF5 (aloni_ENABLE_HDF5)");
}

}  // namespace

std::shared_ptr<const SampleArray> open_hdf5(const std::string& path, const std::string&) {
  refuse("aloni::nn::open_hdf5", path);
}

std::vector<std::string> hdf5_names(const std::string& path) { refuse("aloni::nn::hdf5_names", path); }

}  // namespace aloni::nn
