#pragma once
// Parses the command line and runs the chosen subcommand.
#include <aloni/core/comm/communicator.hpp>

#include <string>
#include <vector>

namespace aloni::tools {

/// Parses `arguments` (the program's name first), then prints help or version, or runs the subcommand.
/// `kokkos_error`: error of split_kokkos_flags(); empty if there is none.
/// Collective. Throws UsageError and the exceptions of the subcommand.
void run_command_line(const comm::Communicator& comm, const std::vector<std::string>& arguments,
                      const std::string& kokkos_error);

}  // namespace aloni::tools
