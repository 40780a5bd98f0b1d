#pragma once
// Parses the command line and runs the chosen subcommand.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/transport_options.hpp>

#include <string>
#include <vector>

namespace aloni::tools {

/// Parses `arguments` (the program's name first), then prints help or version, or runs the subcommand.
/// `kokkos_error`: error of split_kokkos_flags(); empty if there is none.
/// Collective. Throws UsageError and the exceptions of the subcommand.
void run_command_line(const comm::Communicator& comm, const std::vector<std::string>& arguments,
                      const std::string& kokkos_error);

/// The same in this process alone, without MPI and Kokkos: prints help or version, refuses wrong usage, or runs a
/// subcommand that only computes (`plan`, `simulate`). Returns false, and has done nothing, if the subcommand needs ranks.
/// Throws UsageError and the exceptions of the subcommand.
bool run_without_ranks(const std::vector<std::string>& arguments, const std::string& kokkos_error);

/// The options of the communicator, before the command line is parsed: MPI starts first. Options that are absent or
/// have a wrong value keep their defaults: stuck_after is --stuck-after, at most 30 s; ranks_per_node is
/// --ranks-per-node.
comm::TransportOptions early_options(const std::vector<std::string>& arguments);

}  // namespace aloni::tools
