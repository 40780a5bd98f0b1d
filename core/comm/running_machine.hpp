#pragma once
// The machine on which ranks run, as planners see it.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/machine.hpp>

namespace aloni::comm {

/// Equal on all ranks: a node is a set of ranks that share memory. `on_host`: MachineDescription::on_host.
/// Collective. Throws PeerFailed.
MachineDescription describe_machine(const Communicator& comm, bool on_host);

}  // namespace aloni::comm
