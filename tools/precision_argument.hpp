#pragma once
// The option --precision of several subcommands: the type of activations.
#include <aloni/core/bfloat16.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <array>
#include <string>
#include <utility>

namespace CLI {
class App;
}

namespace aloni::tools {

inline const std::array<std::pair<std::string, nn::ElementType>, 4> precisions{{{"float", nn::ElementType::float32},
                                                                                {"double", nn::ElementType::float64},
                                                                                {"bfloat16", nn::ElementType::bfloat16},
                                                                                {"float16", nn::ElementType::float16}}};

/// Adds the option to a subcommand that computes. @pre `precision` outlives `command`
void add_precision_option(CLI::App& command, std::string& precision);

/// Throws UsageError for another name.
nn::ElementType precision_of(const std::string& name);
/// Throws UsageError for another name, and for a type that this build does not compute (aloni_ACTIVATIONS).
void check_computed_precision(const std::string& name);

/// f.operator()<T>() for the type of activations with this name.
/// @pre check_computed_precision(precision) throws nothing
template <class F>
auto with_activations(const std::string& precision, const F& f) {
  if constexpr (nn::has_activations<double>)
    if (precision == "double") return f.template operator()<double>();
  if constexpr (nn::has_activations<comm::bfloat16>)
    if (precision == "bfloat16") return f.template operator()<comm::bfloat16>();
  if constexpr (nn::has_activations<comm::float16>)
    if (precision == "float16") return f.template operator()<comm::float16>();
  return f.template operator()<float>();
}

}  // namespace aloni::tools
