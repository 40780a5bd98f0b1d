#pragma once
// Readers of files and texts that are fuzzed (fuzz_readers.cpp). To add one, append a FuzzTarget to one of the lists.
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace aloni::test {

struct FuzzTarget {
  std::string name;                ///< also the folder of its stored inputs, corpus/<name>
  std::vector<std::string> seeds;  ///< inputs that the reader accepts
  /// Reads the input to its end. Throws what the reader throws, and std::logic_error for a result that is wrong.
  std::function<void(const std::string& input)> read;
  /// Heap that may be in use at once: this number of bytes for each byte of the input, and 1 MiB.
  std::size_t heap_per_byte = 8;
};

/// `folder`: for the files of the targets. It outlives them.
std::vector<FuzzTarget> data_targets(const std::string& folder);
std::vector<FuzzTarget> hdf5_targets(const std::string& folder);  ///< none in a build without HDF5
std::vector<FuzzTarget> state_targets();                          ///< checkpoints and files of weights
std::vector<FuzzTarget> text_targets(const std::string& folder);

}  // namespace aloni::test
