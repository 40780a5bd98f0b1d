#pragma once
// The option --machine of several subcommands.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/machine.hpp>

#include <string>

namespace aloni::tools {

/// Help text of --machine, with the names of all machines that ship.
std::string machine_help();

/// Throws UsageError for a text that is neither the path of a machine file (*.json) nor the name of a machine.
void check_machine(const std::string& machine);

/// The machine in the file, or the machine of that name. Not collective. @pre check_machine(machine) throws nothing
/// Throws FileError, InvalidArgument.
model::Machine read_machine_argument(const std::string& machine);

/// The same on all ranks; rank 0 alone reads the file. Collective. Throws InvalidArgument on all ranks. If rank 0
/// throws FileError, the others throw PeerFailed.
model::Machine read_machine_argument(const comm::Communicator& comm, const std::string& machine);

}  // namespace aloni::tools
