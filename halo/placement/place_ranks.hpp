#pragma once
// Renumbers the ranks of a communicator by a placement (placement.hpp has an example).
#include <aloni/core/comm/communicator.hpp>
#include <aloni/halo/placement/placement.hpp>

namespace aloni::halo {

/// A communicator of the same ranks, renumbered by a placement: rank i of the result takes subdomain i. Use it with the
/// distribution from which the traffic matrix was made. `comm` does not change. Collective.
/// @pre placement.rank_of is equal on all ranks
/// @pre placement.rank_of contains each rank of the communicator once
/// Throws InvalidArgument on all ranks.
comm::Communicator place_ranks(const comm::Communicator& comm, const Placement& placement);

}  // namespace aloni::halo
