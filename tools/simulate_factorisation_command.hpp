#pragma once
// aloni simulate-factorisation: predicts the time of a tile Cholesky or LU factorisation on a machine, for any numbers
// of ranks. Only arithmetic: neither the machine nor its ranks need exist.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/model/task_simulation.hpp>
#include <aloni/views/tile_distribution.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace aloni::tools {

class SimulateFactorisationCommand {
 public:
  /// Adds the subcommand and its options to `app`. @pre this object outlives `app`
  explicit SimulateFactorisationCommand(CLI::App& app);

  bool chosen() const;
  /// Checks the ranges of values, which the parser does not know. Throws UsageError.
  void check() const;
  /// The options that all ranks must pass alike. Of paths, only whether they are given.
  void add_to(comm::ReplicatedValues& values) const;
  /// Simulates and prints. Needs neither MPI nor Kokkos; of several ranks only one calls it.
  /// Throws UsageError, InvalidArgument, FileError.
  void run() const;

 private:
  /// A matrix on some ranks, and its prediction.
  struct Case {
    int ranks = 1;
    views::TileShape tile = 1;
    double flops = 0;
    bool measured = false;  ///< the times of kernels follow from measured ones
    model::SimulatedTasks result = {};
  };

  bool is_lu() const { return algorithm_ == "lu"; }
  /// `workers`: of all ranks.
  views::TileShape choose_tile(int workers) const;
  Case simulate(const model::Machine& machine, int ranks) const;
  std::string to_text(const model::Machine& machine, const std::vector<Case>& cases) const;
  std::string to_json(const model::Machine& machine, const std::vector<Case>& cases) const;
  std::string trace_text(const Case& which) const;

  CLI::App* command_;
  std::string machine_, algorithm_ = "cholesky", ranks_ = "1", precision_ = "double", json_, trace_;
  std::int64_t n_ = 0, tile_ = 0, tall_ = 0, workers_ = 1, ranks_per_node_ = 0;
};

}  // namespace aloni::tools
