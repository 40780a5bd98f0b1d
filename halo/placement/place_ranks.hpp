#pragma once
#include <aloni/core/comm/communicator.hpp>
#include <aloni/halo/placement/placement.hpp>

namespace aloni::halo {

/// Collective. The same ranks in the order of a placement: rank i of the result is the rank that takes subdomain i, to be used with the
/// distribution that the traffic was made of. The communicator given, and whose ranks the user counts otherwise, stay as they are.
/// @pre placement.rank_of equal on all ranks
/// @pre it has each rank of the communicator once
/// Throws InvalidArgument on all ranks.
comm::Communicator place_ranks(const comm::Communicator& comm, const Placement& placement);

}  // namespace aloni::halo
