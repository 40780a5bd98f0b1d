#pragma once
// aloni simulate: predicts the time of a training step of a named network on a machine, for any numbers of ranks. Only
// arithmetic: neither the machine nor its ranks need exist.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/tools/memory_arguments.hpp>
#include <aloni/tools/network_arguments.hpp>
#include <aloni/tools/objective_argument.hpp>
#include <aloni/tools/simulation.hpp>
#include <aloni/tools/strategy_argument.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace aloni::tools {

/// "1,2,4" as numbers from `least` to `most`; none for other texts, and for an empty list.
std::optional<std::vector<std::int64_t>> parse_integers(const std::string& text, std::int64_t least, std::int64_t most);
std::optional<std::vector<double>> parse_numbers(const std::string& text, double least, double most);

/// "0.01:4" of --slow-links: the share of slow links from 0 to 1, and their factor from 1 to 1,000. None for other
/// texts.
struct SlowLinks {
  double share = 0, factor = 1;
};
std::optional<SlowLinks> parse_slow_links(const std::string& text);

class SimulateCommand {
 public:
  /// Adds the subcommand and its options to `app`. @pre this object outlives `app`
  explicit SimulateCommand(CLI::App& app);

  bool chosen() const;
  /// Checks the ranges of values, which the parser does not know. Throws UsageError.
  void check() const;
  /// The options that all ranks must pass alike. Of paths, only whether they are given.
  void add_to(comm::ReplicatedValues& values) const;
  /// Simulates and prints. Needs neither MPI nor Kokkos; of several ranks only one calls it.
  /// Throws UsageError, InvalidArgument, FileError.
  void run() const;

 private:
  std::vector<SimulationCase> cases() const;
  std::optional<model::Variation> variation() const;

  CLI::App* command_;
  std::string machine_, batch_ = "64", ranks_ = "1", precision_ = "float", optimiser_ = "sgd", json_, trace_, drawing_;
  std::string flops_factor_ = "1", memory_bandwidth_factor_ = "1", link_bandwidth_factor_ = "1";
  std::int64_t accumulate_ = 1, ranks_per_node_ = 0, draws_ = 200, seed_ = 0;
  double stragglers_ = 0;
  std::string slow_links_;
  NetworkArguments network_;
  StrategyArgument strategy_{FewerBlocks::refused};
  MemoryArguments memory_;
  ObjectiveArgument objective_;
};

}  // namespace aloni::tools
