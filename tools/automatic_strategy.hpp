#pragma once
// The strategy of a training without --strategy. The cost model ranks all strategies (model/choose_strategy.hpp). Then
// real steps of the best few are timed, and the fastest one is the result. A file in the cache keeps it.
//
//   const AutomaticStrategy chosen = choose_automatically<float>(comm, request);
//   chosen.strategy;
//   for (const std::string& line : chosen.explanation) print(line);
//
// Strategies for several nodes may place ranks in another order (model/rank_placement.hpp). They are timed so, and the
// training runs so:
//
//   const comm::Communicator placed = placed_ranks(comm, chosen.rank_of);
//
// Without a machine file kernels are priced by the roofline of a machine that ships. The order of strategies then
// counts, not the seconds: the timed steps decide.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/nn/trainer.hpp>
#include <aloni/tools/strategy_cache.hpp>

#include <optional>
#include <string>
#include <vector>

namespace aloni::tools {

struct AutomaticStrategyRequest {
  nn::NetworkDescription network;
  nn::TrainOptions options = {};               ///< of the training; its checkpoints, weights and files do not count
  std::optional<model::Machine> machine = {};  ///< empty: a machine that ships
  /// Folder of the cache. Empty: $XDG_CACHE_HOME/aloni/strategies or ~/.cache/aloni/strategies. A folder that cannot be
  /// written is no error: the choice is made again next time, and the explanation says so.
  std::string cache_folder = {};
  int timed = 3;  ///< strategies
  /// Of the whole choice. A strategy whose steps would end later is not timed. If none is, the cost model decides.
  double most_seconds = 15.0;
};

struct AutomaticStrategy {
  nn::Strategy strategy;
  /// For TrainOptions::memory: that of the request, or another one if the strategy fits only with it.
  nn::MemoryWish memory = {};
  /// For halo::place_ranks(): rank i of the training is rank rank_of[i] of the communicator. Empty: the same rank.
  std::vector<int> rank_of = {};
  std::vector<std::string> explanation = {};  ///< lines of at most 100 columns; on rank 0 only
  bool from_cache = false;
};

/// All facts on which a choice for a training depends. `job`: job_machine() of the request. Not collective.
ChoiceKey facts_of_choice(const comm::Communicator& comm, const AutomaticStrategyRequest& request,
                          const model::Machine& job, nn::ElementType activations);

/// `comm` with its ranks in this order, and with its tuning; `comm` itself if the order is empty. Rank i of the result
/// has the samples and blocks of rank i. Collective. Throws InvalidArgument on all ranks as halo::place_ranks().
comm::Communicator placed_ranks(const comm::Communicator& comm, const std::vector<int>& rank_of);

/// T: as for nn::train(). Equal on all ranks. On one rank nothing is timed: there the choice is how to save memory, if
/// the step takes more than the limit of the request, or than the rank has.
/// Collective. Throws on all ranks as nn::train_on_synthetic_data(), and InvalidArgument as model::choose_strategy().
template <class T>
AutomaticStrategy choose_automatically(const comm::Communicator& comm, const AutomaticStrategyRequest& request);

}  // namespace aloni::tools
