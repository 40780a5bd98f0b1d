#pragma once
// The option --backend of several subcommands: the backend of convolution.
#include <aloni/nn/local/convolution_problem.hpp>

#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

/// Adds the option. @pre `backend` outlives `command`
void add_backend_option(CLI::App& command, std::string& backend);

/// Throws UsageError for another name.
nn::local::ConvolutionBackend backend_of(const std::string& name);

}  // namespace aloni::tools
