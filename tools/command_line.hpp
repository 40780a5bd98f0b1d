#pragma once
// The arguments of the command and what they ask for.
#include <aloni/core/comm/communicator.hpp>

#include <string>
#include <vector>

namespace aloni::tools {

/// Collective. Parses `arguments` (the program's name first), prints help or version, or runs the subcommand.
/// `kokkos_error` is what was wrong with Kokkos' own flags. Throws UsageError and whatever the subcommand throws.
void run_command_line(const comm::Communicator& comm, const std::vector<std::string>& arguments,
                      const std::string& kokkos_error);

}  // namespace aloni::tools
