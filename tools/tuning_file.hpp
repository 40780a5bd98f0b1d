#pragma once
// Reads the file of --tuning.
#include <aloni/core/comm/communicator.hpp>

#include <string>

namespace aloni::tools {

/// Rank 0 reads a file written by `aloni calibrate`; all ranks then choose algorithms by its measurements.
/// Collective. Throws FileError on rank 0 and PeerFailed on the others. Throws InvalidArgument on all ranks for a
/// damaged file, or a file measured on other numbers of ranks or nodes.
void use_tuning_file(const comm::Communicator& comm, const std::string& path);

}  // namespace aloni::tools
