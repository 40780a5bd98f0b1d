#pragma once
// The option --optimiser of subcommands that plan a step: the kind alone, which determines work and memory.
#include <aloni/nn/optimiser.hpp>

#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

/// `others`: of the help text, behind the names. @pre `optimiser` outlives `command`
void add_optimiser_kind_option(CLI::App& command, std::string& optimiser, const std::string& others = {});

/// Throws UsageError for another name than sgd, adam and lars.
nn::OptimiserKind optimiser_kind_of(const std::string& name);

}  // namespace aloni::tools
