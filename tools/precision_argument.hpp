#pragma once
// The option --precision of several subcommands: the type of activations.
#include <aloni/nn/plan/step_plan.hpp>

#include <array>
#include <string>
#include <utility>

namespace CLI {
class App;
}

namespace aloni::tools {

inline const std::array<std::pair<std::string, nn::ElementType>, 3> precisions{
    {{"float", nn::ElementType::float32},
     {"double", nn::ElementType::float64},
     {"bfloat16", nn::ElementType::bfloat16}}};

/// Adds the option to a subcommand that computes. @pre `precision` outlives `command`
void add_precision_option(CLI::App& command, std::string& precision);

/// Throws UsageError for another name.
nn::ElementType precision_of(const std::string& name);

}  // namespace aloni::tools
