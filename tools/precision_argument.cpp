#include <aloni/tools/option.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/together.hpp>

namespace aloni::tools {

void add_precision_option(CLI::App& command, std::string& precision) {
  add_option(
      command, "--precision", precision,
      "Type of activations: " + listed(precisions) + " (bfloat16: parameters are float; on a host it needs oneDNN)",
      "TYPE");
}

nn::ElementType precision_of(const std::string& name) {
  for (const auto& [known, type] : precisions)
    if (known == name) return type;
  refuse("--precision", name, one_of_listed(name, precisions));
}

}  // namespace aloni::tools
