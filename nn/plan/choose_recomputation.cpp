#include <aloni/nn/plan/choose_recomputation.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/plan/cost.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/memory_shortage.hpp>
#include <aloni/nn/plan/representatives.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace aloni::nn {

namespace {

/// Bytes and flops of the layers on one rank, by which the layers are split into blocks.
class LayerSizes {
 public:
  LayerSizes(const NetworkDescription& network, const NetworkPlan& layers, const StepPlan& plan)
      : layers_(layers), costs_(cost_without_reductions(plan)) {
    for (int i = 0; i < size(); ++i) {
      const std::string name = network.layers[static_cast<std::size_t>(i)].name + "_y";
      const auto own = std::ranges::find(plan.buffers, name, &PlanBuffer::name);
      bytes_.push_back(own == plan.buffers.end() ? 0 : own->bytes());
      const int source = layers.layers[static_cast<std::size_t>(i)].inputs[0].source;
      owner_.push_back(own == plan.buffers.end() && source >= 0 ? owner_[static_cast<std::size_t>(source)] : i);
    }
    for (int i = 0; i < size(); ++i) {
      crossing_.push_back(bytes_behind(i));
      bytes_before_.push_back(bytes_before_.back() + bytes_[static_cast<std::size_t>(i)]);
    }
  }

  int size() const { return static_cast<int>(layers_.layers.size()); }
  /// Bytes of the outputs of layers up to i that later layers read.
  Index crossing(int i) const { return crossing_[static_cast<std::size_t>(i)]; }
  /// Whether the next layer has the buffer of this one: a split between them would keep it, and compute nothing again.
  bool shares_buffer_with_next(int i) const {
    return i + 1 < size() && owner_[static_cast<std::size_t>(i) + 1] == owner_[static_cast<std::size_t>(i)];
  }
  Index bytes(const RecomputedBlock& block) const {
    return bytes_before_[static_cast<std::size_t>(block.last) + 1] -
           bytes_before_[static_cast<std::size_t>(block.first)];
  }
  double flops(const RecomputedBlock& block) const {
    double sum = 0;
    for (int i = block.first; i <= block.last; ++i) sum += costs_.of(i, StepPhase::forward).kernels.flops;
    return sum;
  }

 private:
  Index bytes_behind(int i) const {
    std::set<int> kept;
    for (int j = 0; j <= i; ++j)
      if (std::ranges::any_of(layers_.readers_of(j), [&](int reader) { return reader > i; }))
        kept.insert(owner_[static_cast<std::size_t>(j)]);
    Index sum = 0;
    for (const int j : kept) sum += bytes_[static_cast<std::size_t>(j)];
    return sum;
  }

  const NetworkPlan& layers_;
  StepCost costs_;
  std::vector<Index> bytes_ = {};
  std::vector<int> owner_ = {};  ///< the layer whose output has the buffer
  std::vector<Index> crossing_ = {};
  std::vector<Index> bytes_before_ = {0};
};

/// All layers in blocks of at most `most` bytes, where that is possible, with the fewest bytes across the splits.
Recomputation split_layers(const LayerSizes& sizes, Index most) {
  const int n = sizes.size();
  std::vector<Index> best(static_cast<std::size_t>(n) + 1, std::numeric_limits<Index>::max());
  std::vector<int> first_of(static_cast<std::size_t>(n) + 1, 0);  // of the block that ends before a layer
  best[0] = 0;
  for (int end = 1; end <= n; ++end) {
    if (sizes.shares_buffer_with_next(end - 1)) continue;
    const Index behind = end < n ? sizes.crossing(end - 1) : 0;
    bool any = false;
    for (int first = end - 1; first >= 0; --first) {
      if (best[static_cast<std::size_t>(first)] == std::numeric_limits<Index>::max()) continue;
      if (any && sizes.bytes({first, end - 1}) > most) break;
      any = true;
      const Index sum = best[static_cast<std::size_t>(first)] + behind;
      if (sum > best[static_cast<std::size_t>(end)]) continue;
      best[static_cast<std::size_t>(end)] = sum;
      first_of[static_cast<std::size_t>(end)] = first;
    }
  }
  Recomputation blocks;
  for (int end = n; end > 0; end = first_of[static_cast<std::size_t>(end)])
    blocks.push_back({first_of[static_cast<std::size_t>(end)], end - 1});
  std::ranges::reverse(blocks);
  return blocks;
}

class RecomputationSearch {
 public:
  RecomputationSearch(const NetworkDescription& network, const NetworkPlan& layers, const MachineDescription& machine,
                      const StepOptions& options)
      : network_(network),
        layers_(layers),
        machine_(machine),
        options_(options),
        ranks_(find_representatives(network, layers, machine).ranks) {}

  PricedRecomputation price(const Recomputation& blocks) { return price(blocks, std::span(ranks_)); }

  PricedRecomputation price(const Recomputation& blocks, std::span<const int> ranks) {
    PricedRecomputation all;
    for (const int rank : ranks) {
      PricedRecomputation mine = price(blocks, rank);
      all.flops = std::max(all.flops, mine.flops);
      all.extra_flops = std::max(all.extra_flops, mine.extra_flops);
      if (mine.peak_bytes <= all.peak_bytes) continue;
      worst_rank_ = rank;
      all.peak_bytes = mine.peak_bytes;
      all.peak_layer = std::move(mine.peak_layer);
    }
    all.blocks = blocks;
    return all;
  }

  PricedRecomputation choose(std::optional<Index> limit) {
    // Among thousands of ranks hundreds differ, and their peaks differ by a few per cent. A few of them tell whether a
    // step exceeds the limit, and which rank has a large peak. What fits is priced on all of them.
    constexpr std::size_t few = 32;
    const auto some = std::span<const int>(ranks_).first(std::min(limit ? few : ranks_.size(), ranks_.size()));
    PricedRecomputation least = price({}, some);
    if (limit && least.peak_bytes <= *limit) {
      if (some.size() < ranks_.size()) least = price({});
      if (least.peak_bytes <= *limit) return least;
    }
    const auto keep_less = [&](PricedRecomputation found) {
      if (std::pair(found.peak_bytes, found.flops) < std::pair(least.peak_bytes, least.flops)) least = std::move(found);
    };
    if (!limit) {
      for (const Recomputation& blocks : partitions()) keep_less(price(blocks));
      return least;
    }
    constexpr int rounds = 2;  // the second one with a rank on which the choices of the first exceed the limit
    for (int round = 0; round < rounds; ++round) {
      std::vector<PricedRecomputation> fitting;  // on the rank with the largest peak
      std::optional<PricedRecomputation> smallest;
      for (const Recomputation& blocks : partitions()) {
        PricedRecomputation on_worst = price(blocks, worst_rank_);
        if (on_worst.peak_bytes <= *limit) {
          for (const Recomputation& tried : few_within(blocks, *limit)) fitting.push_back(price(tried, worst_rank_));
        } else if (!smallest || on_worst.peak_bytes < smallest->peak_bytes) {
          smallest = std::move(on_worst);  // fewer of these blocks need more memory
        }
      }
      if (fitting.empty()) {
        if (smallest) keep_less(price(smallest->blocks, some));
        break;
      }
      std::ranges::stable_sort(fitting, {}, &PricedRecomputation::flops);
      for (const PricedRecomputation& tried : fitting) {
        PricedRecomputation found = price(tried.blocks);
        if (found.peak_bytes <= *limit) return found;
        keep_less(std::move(found));
      }
    }
    const MemoryWish wish{.recompute = "auto", .offload = options_.offload.empty() ? "" : "auto"};
    throw InvalidArgument("aloni::nn::choose_recomputation", memory_limit_argument, std::to_string(*limit) + " bytes",
                          to_string(MemoryShortage{least.peak_bytes, *limit, least.peak_layer}) +
                              ". Recomputation reaches no less. " + to_string(ways_beside(wish, machine_)));
  }

 private:
  PricedRecomputation price(const Recomputation& blocks, int rank) const {
    StepOptions options = options_;
    options.recompute = blocks;
    const StepPlan plan = plan_step(network_, layers_, rank, StepKind::training, machine_, options);
    const PlanMemoryUse use = memory_of(plan, machine_);
    PricedRecomputation priced{.blocks = blocks, .peak_bytes = use.peak};
    for (const PlanNode& node : plan.nodes) {
      if (node.kind() != NodeKind::kernel) continue;
      const double flops = cost(plan, node, machine_).flops;
      priced.flops += flops;
      if (node.repeats >= 0) priced.extra_flops += flops;
    }
    const int layer = use.peak_node < 0 ? -1 : plan.nodes[static_cast<std::size_t>(use.peak_node)].layer;
    if (layer >= 0) priced.peak_layer = network_.layers[static_cast<std::size_t>(layer)].name;
    return priced;
  }

  /// All layers in blocks of several sizes.
  std::vector<Recomputation> partitions() {
    StepOptions options = options_;
    options.recompute = {};
    sizes_.emplace(network_, layers_, plan_step(network_, layers_, worst_rank_, StepKind::training, machine_, options));
    const Index all = sizes_->bytes({0, sizes_->size() - 1});
    std::vector<Recomputation> found;
    for (double share = 1; share > 1e-3; share /= 1.6) {
      Recomputation blocks = split_layers(*sizes_, static_cast<Index>(static_cast<double>(all) * share));
      if (std::ranges::find(found, blocks) == found.end()) found.push_back(std::move(blocks));
    }
    return found;
  }

  /// The first blocks, by bytes per flop, with which the rank with the largest peak is within the limit, and all
  /// blocks.
  std::vector<Recomputation> few_within(const Recomputation& blocks, Index limit) const {
    Recomputation order = blocks;
    const auto gain = [&](const RecomputedBlock& b) {
      return static_cast<double>(sizes_->bytes(b)) / (1 + sizes_->flops(b));
    };
    std::ranges::stable_sort(order, std::greater{}, gain);
    const auto take = [&](std::size_t count) {
      Recomputation some(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
      std::ranges::sort(some, std::less{}, &RecomputedBlock::first);
      return some;
    };
    std::size_t low = 0, high = order.size();  // `low` blocks are too few
    while (high - low > 1) {
      const std::size_t middle = (low + high) / 2;
      (price(take(middle), worst_rank_).peak_bytes <= limit ? high : low) = middle;
    }
    if (high == order.size()) return std::vector<Recomputation>{blocks};
    return {take(high), blocks};
  }

  const NetworkDescription& network_;
  const NetworkPlan& layers_;
  const MachineDescription& machine_;
  const StepOptions& options_;
  std::vector<int> ranks_;
  int worst_rank_ = 0;
  std::optional<LayerSizes> sizes_;
};

}  // namespace

PricedRecomputation price_recomputation(const NetworkDescription& network, const NetworkPlan& layers,
                                        const MachineDescription& machine, const StepOptions& options) {
  return RecomputationSearch(network, layers, machine, options).price(options.recompute);
}

PricedRecomputation choose_recomputation(const NetworkDescription& network, const NetworkPlan& layers,
                                         const MachineDescription& machine, const StepOptions& options,
                                         std::optional<Index> limit) {
  return RecomputationSearch(network, layers, machine, options).choose(limit);
}

}  // namespace aloni::nn
