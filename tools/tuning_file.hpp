#pragma once
// The argument of --tuning.
#include <aloni/core/comm/communicator.hpp>

#include <string>

namespace aloni::tools {

/// Collective. Rank 0 reads a file that `aloni calibrate` has written, and all choose by it. Throws FileError on rank 0, PeerFailed on the
/// others; InvalidArgument on all: a damaged file, or one that was measured on other numbers of ranks or nodes.
void use_tuning_file(const comm::Communicator& comm, const std::string& path);

}  // namespace aloni::tools
