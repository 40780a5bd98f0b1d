#pragma once
// The value of --strategy.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/strategy.hpp>

#include <string>

namespace aloni::tools {

/// Collective. The strategy in the file of that name if there is one, else the grid of that text for all layers;
/// samples over all ranks for an empty text. Rank 0 alone looks at the file system, so that all ranks get the same.
/// Throws UsageError, FileError, InvalidArgument on rank 0, PeerFailed on the others.
nn::Strategy strategy_from_argument(const comm::Communicator& comm, const std::string& argument);

}  // namespace aloni::tools
