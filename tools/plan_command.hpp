#pragma once
// aloni plan: plans one training step of a named network on any number of ranks, and prints costs and memory. With
// a machine it also prints predicted seconds. Only arithmetic: neither the ranks nor the machine need exist.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/index.hpp>
#include <aloni/tools/memory_arguments.hpp>
#include <aloni/tools/network_arguments.hpp>
#include <aloni/tools/objective_argument.hpp>
#include <aloni/tools/strategy_argument.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace aloni::tools {

class PlanCommand {
 public:
  /// Adds the subcommand and its options to `app`. @pre this object outlives `app`
  explicit PlanCommand(CLI::App& app);

  bool chosen() const;
  /// Checks the ranges of values, which the parser does not know. Throws UsageError.
  void check() const;
  /// The options that all ranks must pass alike. Of paths, only whether they are given.
  void add_to(comm::ReplicatedValues& values) const;
  /// Plans and prints. Needs neither MPI nor Kokkos; of several ranks only one calls it.
  /// Throws UsageError, InvalidArgument, FileError.
  void run() const;

 private:
  bool has_kfac() const { return optimiser_ == "kfac"; }
  /// The files that run() writes: option and path.
  std::vector<std::pair<const char*, std::string>> outputs() const;

  CLI::App* command_;
  std::string precision_ = "float", optimiser_ = "sgd", machine_, json_, export_, strategy_file_, drawing_;
  NetworkArguments network_;
  StrategyArgument strategy_{FewerBlocks::repeated};
  MemoryArguments memory_;
  ObjectiveArgument objective_;
  Index batch_ = 64;
  std::int64_t ranks_ = 1, ranks_per_node_ = 0;
};

}  // namespace aloni::tools
