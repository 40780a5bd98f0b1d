#pragma once
// Strategies, and limits of steps, that earlier trainings have chosen: one file each, in a folder of the user.
//
//   const StrategyCache cache(StrategyCache::default_folder());
//   if (const auto known = cache.find(key)) return known->strategy;
//   cache.keep(key, {strategy, 0.0123});
//
// The key is a text with all facts on which the choice depends: the network, the ranks, the processor, this version of
// the library. A file has the whole key, so equal checksums do no harm. Not collective: one rank reads and writes.
#include <aloni/model/step_limits.hpp>
#include <aloni/nn/plan/memory_wish.hpp>
#include <aloni/nn/strategy.hpp>

#include <optional>
#include <string>
#include <vector>

namespace aloni::tools {

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

  /// The strategy with this key. Empty if there is none. A file that is damaged, of another version or of another key
  /// counts as none; `reason` then says so.
  std::optional<KeptStrategy> find(const std::string& key, std::string* reason = nullptr) const;

  /// The same for limits of a step, whose keys differ from those of strategies.
  std::optional<model::StepLimits> find_limits(const std::string& key, std::string* reason = nullptr) const;

  /// Replaces the strategy with this key. Makes the folder. Throws FileError.
  void keep(const std::string& key, const KeptStrategy& kept) const;
  /// The same for limits of a step.
  void keep_limits(const std::string& key, const model::StepLimits& limits) const;

  /// The file of a key, whether it exists or not.
  std::string path_of(const std::string& key) const;

 private:
  std::string folder_;
};

}  // namespace aloni::tools
