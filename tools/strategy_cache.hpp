#pragma once
// Strategies, and limits of steps, that earlier trainings have chosen: one file each, in a folder of the user.
//
//   const StrategyCache cache(StrategyCache::default_folder());
//   if (const auto known = cache.find(key)) return known->strategy;
//   cache.keep(key, {strategy, 0.0123});
//
// The key has all facts on which the choice depends: a text that describes the training, and the conditions of the run,
// for example the processor and the version of the library. A file has the whole key, so equal checksums do no harm.
// Each training has one file for each set of conditions. If there is none for the present ones, the reason names the
// condition that differs. Not collective: one rank reads and writes.
#include <aloni/model/step_limits.hpp>
#include <aloni/nn/plan/memory_wish.hpp>
#include <aloni/nn/strategy.hpp>

#include <optional>
#include <string>
#include <vector>

namespace aloni::tools {

struct ChoiceKey {
  struct Condition {
    std::string name, value;  ///< "processor", "Intel(R) Xeon(R)"

    friend bool operator==(const Condition&, const Condition&) = default;
  };
  std::string training = {};               ///< the network, the ranks, the mini-batch, the optimiser, …
  std::vector<Condition> conditions = {};  ///< of this run, and of this library
};

struct KeptStrategy {
  nn::Strategy strategy;
  double seconds = 0;             ///< of a step when it was chosen; 0: not measured
  nn::MemoryWish memory = {};     ///< AutomaticStrategy::memory
  std::vector<int> rank_of = {};  ///< AutomaticStrategy::rank_of
};

class StrategyCache {
 public:
  /// $XDG_CACHE_HOME/aloni/strategies or ~/.cache/aloni/strategies; empty if neither variable is set.
  static std::string default_folder();

  /// `folder`: need not exist; empty: nothing is kept.
  explicit StrategyCache(std::string folder) : folder_(std::move(folder)) {}

  /// The strategy with this key. Empty if there is none. A file that is damaged or of another version counts as none;
  /// `reason` then says so. It also says so if the training has a strategy under other conditions.
  std::optional<KeptStrategy> find(const ChoiceKey& key, std::string* reason = nullptr) const;

  /// The same for limits of a step, whose keys differ from those of strategies.
  std::optional<model::StepLimits> find_limits(const ChoiceKey& key, std::string* reason = nullptr) const;

  /// Replaces the strategy with this key. Makes the folder. Throws FileError.
  void keep(const ChoiceKey& key, const KeptStrategy& kept) const;
  /// The same for limits of a step.
  void keep_limits(const ChoiceKey& key, const model::StepLimits& limits) const;

  /// The file of a key, whether it exists or not.
  std::string path_of(const ChoiceKey& key) const;

 private:
  std::string folder_;
};

}  // namespace aloni::tools
