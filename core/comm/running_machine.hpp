#pragma once
// The machine on which ranks run, as planners see it.
//
//   const MachineDescription machine = comm::describe_machine(comm, nn::local::machine_of_this_build(true));
//   to_string(machine);                     // "aloni info" prints it
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/machine.hpp>

#include <vector>

namespace aloni::comm {

/// `given` with all that the ranks know: nodes, shared_memory, fragment_bytes, progress_thread. If messages carry
/// checksums, also direct_bytes and consolidate_below, and the latter if no ranks share memory. The other fields are
/// the caller's: on_host, costs, implementations of convolutions.
/// Ranks may differ in onednn_bfloat16 and cudnn: they become true if they are true on all. Different compute
/// capabilities become 0. Equal on all ranks.
/// A node is a machine, or TransportOptions::ranks_per_node ranks. If only some ranks of a node reach each other's
/// memory, each set of these ranks counts as a node of its own.
/// Collective. Throws InvalidArgument on all ranks if a field differs between ranks; it names the field and the ranks.
/// Throws PeerFailed.
MachineDescription describe_machine(const Communicator& comm, MachineDescription given);

/// The machine on which each rank runs, numbered from 0 in the order of lowest ranks (Communicator::ranks_by_node()).
/// Local.
std::vector<int> nodes_of_ranks(const Communicator& comm);

}  // namespace aloni::comm
