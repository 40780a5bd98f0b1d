#pragma once
// Memory and time of whole strategies by their plans. Private to choose_strategy.cpp.
//
//   WholeStrategies whole(net, machine, kernels, 1024, 4096, nn::StepKind::training, options, limit);
//   if (whole.fits(splits)) whole.seconds(splits);
//   whole.memory(splits).bytes;
//   whole.saving(splits);                               // the fastest way to save so much memory that it fits
//
// The plans of a rank of a network with 500 layers take 50 ms, and a strategy may have 16 ranks that differ. So the
// memory of a strategy is found once, and only up to the first rank that exceeds the limit.
#include <aloni/model/choose_strategy.hpp>
#include <aloni/model/detail/search_space.hpp>
#include <aloni/model/rank_placement.hpp>
#include <aloni/nn/plan/memory_savings.hpp>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace aloni::model::detail {

struct MemoryUse {
  double bytes = 0;        ///< above the limit: of the first rank found above it, else of the rank that takes most
  std::string layer = {};  ///< at the peak
};

/// Ways in which a step saves memory.
struct Saving {
  nn::MemoryWish wish = {};
  nn::MemorySavings savings = {};  ///< those of the wish
  double seconds = 0;              ///< of a step; 0: not known
  double bytes = 0;                ///< of the rank that takes most; 0: not known
};

class WholeStrategies {
 public:
  /// The arguments outlive this object. `limit`: bytes of a rank; may be infinite.
  /// Throws InvalidArgument for patterns of ChooseOptions that select no layer.
  WholeStrategies(const nn::NetworkDescription& network, const Machine& machine, const KernelTimes& kernels, int ranks,
                  Index samples, nn::StepKind kind, const ChooseOptions& options, double limit);

  double limit() const { return limit_; }
  /// That of every strategy: layers that ChooseOptions selects by patterns.
  const Saving& selected() const { return selected_; }
  bool fits(const Splits& splits) { return memory(splits).bytes <= limit_; }
  const MemoryUse& memory(const Splits& splits);
  /// The same on the rank that takes most, above the limit too.
  MemoryUse largest_memory(const Splits& splits) const { return find_memory(splits, std::nullopt); }
  double bytes_of_first_rank(const Splits& splits) const;

  /// Of a step, by simulate(). `rank_of`: SimulationOptions::rank_of.
  double seconds(const Splits& splits, const nn::MemorySavings& savings, const std::vector<int>& rank_of = {}) const;
  /// The order of ranks that sends few bytes between nodes.
  RankPlacement place(const Splits& splits, const nn::MemorySavings& savings) const;
  /// Bytes of the rank that takes most, as memory(), with ranks in another order.
  double placed_bytes(const Splits& splits, const nn::MemorySavings& savings, const std::vector<int>& rank_of) const;

  /// Whether ChooseOptions lets steps save memory by themselves: in any way, or by offloading.
  bool may_save() const {
    return kind_ == nn::StepKind::training && (options_.memory.recompute == "auto" || may_offload());
  }
  bool may_offload() const;
  /// The fastest of the ways that ChooseOptions allows with which the strategy fits. Empty if none does.
  std::optional<Saving> saving(const Splits& splits) const;

 private:
  nn::NetworkPlan plan(const Splits& splits) const { return plan_network(network_, splits, ranks_, samples_); }
  nn::StepOptions step(const nn::MemorySavings& savings) const;
  std::vector<nn::MemoryWish> ways_to_save(Index limit) const;
  MemoryUse find_memory(const Splits& splits, std::optional<Index> limit) const;

  struct LessSplits {
    bool operator()(const Splits& a, const Splits& b) const;
  };

  const nn::NetworkDescription& network_;
  const Machine& machine_;
  const KernelTimes& kernels_;
  int ranks_;
  Index samples_;
  nn::StepKind kind_;
  const ChooseOptions& options_;
  double limit_;
  MachineDescription description_;
  Saving selected_;
  std::map<Splits, MemoryUse, LessSplits> memory_;
};

}  // namespace aloni::model::detail
