#include <aloni/tools/option.hpp>
#include <aloni/tools/precision_argument.hpp>
#include <aloni/tools/together.hpp>

namespace aloni::tools {

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

}  // namespace aloni::tools
