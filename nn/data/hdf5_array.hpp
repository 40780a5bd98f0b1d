#pragma once
// A data set of an HDF5 file as a SampleArray. Builds with aloni_ENABLE_HDF5 only.
//
//   const auto images = open_hdf5("simulation.h5", "images");
//
// One read is one hyperslab. Nothing stays in memory but the chunk cache of HDF5, 1 MiB for each data set.
// The library of HDF5 is not thread-safe, so all calls here hold one mutex. While a training reads ahead, the program
// calls HDF5 on no other thread.
#include <aloni/nn/data/sample_array.hpp>

#include <memory>
#include <string>
#include <vector>

namespace aloni::nn {

/// Shapes: N (labels), N,H,W, N,H,W,C or N,D,H,W,C. Types: those of StoredType, in any byte order and storage layout.
/// Not collective. Throws FileError naming path, data set, value and expectation. Throws Unsupported without HDF5.
std::shared_ptr<const SampleArray> open_hdf5(const std::string& path, const std::string& data_set);

/// Names of the members of the root group, sorted. Throws as open_hdf5.
std::vector<std::string> hdf5_names(const std::string& path);

}  // namespace aloni::nn
