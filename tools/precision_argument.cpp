#include <aloni/tools/option.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/together.hpp>

namespace aloni::tools {

namespace {

bool is_computed(nn::ElementType type) {
  switch (type) {
    case nn::ElementType::float64:
      return nn::has_activations<double>;
    case nn::ElementType::bfloat16:
      return nn::has_activations<comm::bfloat16>;
    case nn::ElementType::float16:
      return nn::has_activations<comm::float16>;
    case nn::ElementType::float32:
    case nn::ElementType::int32:
      break;
  }
  return nn::has_activations<float>;
}

}  // namespace

void add_precision_option(CLI::App& command, std::string& precision) {
  add_option(command, "--precision", precision,
             "Type of activations: " + listed(precisions) +
                 " (16 bits: parameters are float; bfloat16 needs oneDNN on a host)",
             "TYPE");
}

nn::ElementType precision_of(const std::string& name) {
  for (const auto& [known, type] : precisions)
    if (known == name) return type;
  refuse("--precision", name, one_of_listed(name, precisions));
}

void check_computed_precision(const std::string& name) {
  if (is_computed(precision_of(name))) return;
  std::string types;
  for (const auto& [known, type] : precisions)
    if (is_computed(type)) types += (types.empty() ? "" : ", ") + known;
  refuse("--precision", name, types + ": this build has no other types (CMake option aloni_ACTIVATIONS)");
}

}  // namespace aloni::tools
