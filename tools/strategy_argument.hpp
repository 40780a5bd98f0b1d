#pragma once
// The option --strategy of several subcommands.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/strategy.hpp>

#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

/// Adds the option. @pre `strategy` outlives `command`
void add_strategy_option(CLI::App& command, std::string& strategy);
/// Throws UsageError if the option is given and empty.
void check_strategy_option(const CLI::App& command, const std::string& strategy);

/// The strategy in the file `argument` if the file exists, otherwise the grid `argument` for all layers. An empty
/// argument splits samples over `ranks` ranks.
/// Throws UsageError, FileError, InvalidArgument.
nn::Strategy read_strategy_argument(const std::string& argument, int ranks);

/// The same for the ranks of `comm`. Only rank 0 reads the file, so all ranks get the same strategy.
/// Collective. Throws UsageError, FileError, InvalidArgument on rank 0, PeerFailed on the others.
nn::Strategy strategy_from_argument(const comm::Communicator& comm, const std::string& argument);

}  // namespace aloni::tools
