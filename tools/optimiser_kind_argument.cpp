#include <aloni/tools/optimiser_kind_argument.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <map>

namespace aloni::tools {

namespace {

const std::map<std::string, nn::OptimiserKind> optimiser_kinds{
    {"sgd", nn::OptimiserKind::sgd}, {"adam", nn::OptimiserKind::adam}, {"lars", nn::OptimiserKind::lars}};

}  // namespace

void add_optimiser_kind_option(CLI::App& command, std::string& optimiser, const std::string& others) {
  add_option(command, "--optimiser", optimiser,
             "Update of the parameters, which determines its memory: " + listed(optimiser_kinds) + others, "NAME");
}

nn::OptimiserKind optimiser_kind_of(const std::string& name) {
  const auto found = optimiser_kinds.find(name);
  if (found == optimiser_kinds.end()) refuse("--optimiser", name, one_of_listed(name, optimiser_kinds));
  return found->second;
}

}  // namespace aloni::tools
