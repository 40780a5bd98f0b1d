#include <aloni/model/choose_strategy.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/detail/choice_reasons.hpp>
#include <aloni/model/detail/search_space.hpp>
#include <aloni/model/detail/whole_strategy.hpp>
#include <aloni/model/quantity_text.hpp>
#include <aloni/nn/plan/memory_shortage.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace aloni::model {

namespace {

using detail::MemoryUse;
using detail::Splits;
using nn::LayerSplit;
using nn::Overlap;
using views::Dim;

constexpr const char* choose_operation = "aloni::model::choose_strategy";

/// The peaks of plans were above this share of the sums of stage 2 in the networks that were tried. So a strategy whose
/// sum is larger than the limit by more need not be planned.
constexpr double least_peak_per_sum = 0.5;

/// Numbers of ranks whose prime factors are not larger have many grids.
constexpr int most_small_prime = 7;

int largest_prime_factor(int number) {
  int largest = 1;
  for (int factor = 2; factor * factor <= number; ++factor) {
    for (; number % factor == 0; number /= factor) largest = factor;
  }
  return std::max(largest, number);
}

int least_power_of_two(int from) { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(from))); }

/// A strategy with its price.
struct Priced {
  Splits splits;
  double seconds = 0;
  double bytes = 0;  ///< the sum of stage 2, later those of the plans
  bool exact = true;
  std::optional<LayerSplit> uniform = {};  ///< of all layers
  detail::Saving saving = {};
  std::string savings_reason = {};
  std::vector<int> rank_of = {};
  std::string placement_reason = {};
};

class Chooser {
 public:
  Chooser(const nn::NetworkDescription& network, const Machine& machine, int ranks, const ChooseOptions& options,
          Index samples)
      : network_(network),
        machine_(machine),
        ranks_(ranks),
        options_(options),
        samples_(samples),
        kind_(options.objective == Objective::training_step ? nn::StepKind::training : nn::StepKind::inference),
        own_kernels_(options.kernels
                         ? nullptr
                         : std::make_unique<MachineKernels>(machine, machine.ranks_per_node, machine.threads_per_rank)),
        kernels_(options.kernels ? *options.kernels : *own_kernels_),
        space_(network, machine, kernels_, ranks, samples, kind_, options),
        whole_(network, machine, kernels_, ranks, samples, kind_, options, limit_of(machine, options)) {}

  StrategyChoice choose() {
    if (std::optional<StrategyChoice> found = find()) return *std::move(found);
    refuse_memory();
  }

  /// Empty: no strategy fits into the memory.
  std::optional<StrategyChoice> find() {
    std::vector<Priced> assigned = assign_splits();
    std::vector<Priced> uniform = uniform_strategies();
    StrategyChoice choice;
    choice.samples = samples_;
    choice.exact = std::ranges::all_of(assigned, &Priced::exact);
    if (options_.simulated > 0) {
      add_recomputed_halos(assigned);
      choice.simulated = true;
    }
    keep_best(assigned, options_.simulated + 2);  // sums of a few strategies differ less than they are wrong
    keep_best(uniform, options_.simulated);
    if (!uniform.empty()) choice.uniform = {*uniform.front().uniform, uniform.front().seconds};
    for (Priced& u : uniform) assigned.push_back(std::move(u));
    add_strategies_that_save(assigned);
    std::ranges::stable_sort(assigned, {}, &Priced::seconds);
    if (assigned.empty()) return std::nullopt;
    place_ranks(assigned);
    for (const Priced& p : assigned)  // with its ranks placed another one may be the best
      if (p.uniform && (!choice.uniform || p.seconds < choice.uniform->seconds))
        choice.uniform = {*p.uniform, p.seconds};
    for (const Priced& priced : assigned) choice.finalists.push_back(finalist_of(priced));
    const Priced& best = assigned.front();
    choice.splits = best.splits;
    choice.seconds = best.seconds;
    choice.bytes = best.bytes;
    choice.wish = best.saving.wish;
    choice.savings = best.saving.savings;
    choice.savings_reason = best.savings_reason;
    choice.rank_of = best.rank_of;
    choice.placement_reason = best.placement_reason;
    choice.strategy = choice.finalists.front().strategy;
    choice.strategy.source = "chosen for " + machine_.name;
    choice.layers = explain_layers(space_, choice.splits);
    choice.candidates = space_.lists();
    choice.repeats_reason = reason_of_repeats(choice.layers);
    return choice;
  }

  /// Whether the splits with the least bytes by the sum of stage 2 fit, or one split for all layers. Among so many
  /// ranks hundreds differ, so only the first one is planned. Others needed up to 3 % more, because they have ghosts on
  /// more sides.
  bool can_fit() {
    constexpr double margin = 1.1;
    const auto fits = [&](const Splits& splits) {
      return margin * whole_.bytes_of_first_rank(splits) <= whole_.limit();
    };
    return fits(smallest_splits()) ||
           std::ranges::any_of(smallest_uniform(), [&](const Priced& uniform) { return fits(uniform.splits); });
  }

 private:
  static double limit_of(const Machine& machine, const ChooseOptions& options) {
    const double memory = options.memory.limit ? static_cast<double>(*options.memory.limit) : machine.memory_bytes;
    return memory > 0 ? memory : std::numeric_limits<double>::infinity();
  }

  bool has_limit() const { return !std::isinf(whole_.limit()); }

  // --- stage 2 ---

  /// The best choices for several weights.
  std::vector<Priced> assign_splits() {
    using Weights = detail::SearchSpace::Weights;
    const bool trains = kind_ == nn::StepKind::training;
    std::vector<Weights> variants{{0, 1}};
    if (trains) variants.push_back({1, 1});
    if (options_.simulated > 0) {  // stage 3 chooses between them
      if (trains) variants.push_back({0.3, 1});
      variants.push_back({trains ? 0.3 : 0, 2});
    }
    std::vector<Priced> found;
    double most_bytes = whole_.limit() / least_peak_per_sum;
    for (const Weights& weights : variants) {
      AssignmentProblem problem = space_.weighted_problem(weights);
      problem.most_bytes = most_bytes;
      add_within_memory(problem, found);
      most_bytes = problem.most_bytes;  // the peaks of the next variant are like those of this one
    }
    return found;
  }

  /// The bytes of stage 2 are a sum over layers; those of a plan depend on lifetimes. The limit of the sum is lowered
  /// until the plans fit.
  void add_within_memory(AssignmentProblem& problem, std::vector<Priced>& found) {
    constexpr int most_tries = 6;
    const bool is_lowered = problem.most_bytes < whole_.limit() / least_peak_per_sum;
    for (int i = 0; i < most_tries; ++i) {
      const Assignment best = assign(problem, options_.limits);
      Priced priced{space_.splits_of(best.options), space_.estimate(best.options), best.bytes,
                    best.exact && i == 0 && !is_lowered};
      if (fits_certainly(best.bytes) || whole_.fits(priced.splits)) return add(found, std::move(priced));
      const double bytes = whole_.memory(priced.splits).bytes;
      priced.bytes = bytes;
      too_large_.push_back(std::move(priced));
      if (!best.feasible) return;
      problem.most_bytes = best.bytes * std::min(0.95, whole_.limit() / bytes);
    }
    problem.most_bytes = -1;  // the choice with the least bytes
    const Assignment least = assign(problem, options_.limits);
    Priced priced{space_.splits_of(least.options), space_.estimate(least.options), least.bytes, false};
    if (whole_.fits(priced.splits)) add(found, std::move(priced));
  }

  /// Plans of thousands of ranks take longer than the rest of the search. They are not needed where memory is ample.
  /// `bytes`: the sum of stage 2. It has all that lives until the backward pass. Gradients and workspace take less
  /// than that again, if each buffer has its own memory.
  bool fits_certainly(double bytes) const {
    constexpr double margin = 4;
    return !has_limit() ||
           (kind_ == nn::StepKind::training && !options_.prices.bytes && margin * bytes <= whole_.limit());
  }

  static void add(std::vector<Priced>& found, Priced priced) {
    const auto same = std::ranges::find(found, priced.splits, &Priced::splits);
    if (same == found.end()) found.push_back(std::move(priced));
  }

  // --- strategies with one split ---

  std::vector<Priced> uniform_strategies() {
    std::vector<Priced> found;
    for (const LayerSplit& split : space_.uniform()) {
      const auto [seconds, bytes] = space_.sum_of_uniform(split);
      Splits effective;
      for (int l = 0; l < space_.layers(); ++l) {
        effective.push_back(effective_split(space_.facts(l), split));
        effective.back().overlap = space_.price(l, effective.back()).second;
      }
      uniform_names_.emplace_back(effective, to_string(split));
      add(found, {std::move(effective), seconds, bytes, true, split});
    }
    return found;
  }

  // --- stage 3 ---

  /// Adds variants whose chains of convolutions with one split exchange halos once (Overlap::recompute_halo).
  void add_recomputed_halos(std::vector<Priced>& strategies) {
    const auto best = std::ranges::min_element(strategies, {}, &Priced::seconds);
    if (best == strategies.end()) return;
    Priced variant = *best;
    const auto allows = [&](int l) {
      const LayerFacts& f = space_.facts(l);
      const bool multiplies = f.properties.convolution || f.properties.convolution_if_split;
      const LayerSplit& split = variant.splits[static_cast<std::size_t>(l)];
      return !f.properties.has_statistics && split.grid.spatial_size() > 1 &&
             !(multiplies && split.tensor_grid()[Dim::channel] > 1);
    };
    bool changes = false;
    for (int l = 0; l < space_.layers(); ++l) {
      for (const int s : space_.sources(l)) {
        if (s < 0 || !allows(l) || !allows(s)) continue;
        LayerSplit &mine = variant.splits[static_cast<std::size_t>(l)],
                   &producer = variant.splits[static_cast<std::size_t>(s)];
        if (mine.grid != producer.grid) continue;
        mine.overlap = producer.overlap = Overlap::recompute_halo;
        changes = true;
      }
    }
    if (changes) add(strategies, std::move(variant));
  }

  /// Leaves the strategies that fit into the memory, with final prices, the fastest first.
  void keep_best(std::vector<Priced>& strategies, int number) {
    std::ranges::stable_sort(strategies, {}, &Priced::seconds);
    std::vector<Priced> kept;
    const auto most = static_cast<std::size_t>(std::max(1, number));
    for (Priced& s : strategies) {
      if (kept.size() >= most) break;
      if (least_peak_per_sum * s.bytes > whole_.limit()) continue;
      if (options_.simulated > 0 || !fits_certainly(s.bytes)) {
        s.bytes = whole_.memory(s.splits).bytes;
        if (s.bytes > whole_.limit()) {
          too_large_.push_back(std::move(s));
          continue;
        }
      }
      s.saving = whole_.selected();
      if (options_.simulated > 0) s.seconds = whole_.seconds(s.splits, s.saving.savings);
      kept.push_back(std::move(s));
    }
    std::ranges::stable_sort(kept, {}, &Priced::seconds);
    strategies = std::move(kept);
  }

  bool may_save() const { return options_.simulated > 0 && !options_.prices.bytes && whole_.may_save(); }

  /// Adds the fastest strategies that fit only if they save memory.
  void add_strategies_that_save(std::vector<Priced>& strategies) {
    if (!may_save()) return;
    // Recomputation seldom saves more, because some tensors of a block stay. More leave the device by offloading.
    const double most_saved = whole_.may_offload() ? 4 : 2.5;
    constexpr int most_tried = 2;
    std::ranges::stable_sort(too_large_, {}, &Priced::seconds);
    int tried = 0;
    std::vector<Splits> seen;
    for (const Priced& large : too_large_) {
      if (tried == most_tried) break;
      if (large.bytes > most_saved * whole_.limit() || std::ranges::find(seen, large.splits) != seen.end()) continue;
      seen.push_back(large.splits);
      ++tried;
      const std::optional<detail::Saving> saving = whole_.saving(large.splits);
      if (!saving) continue;
      Priced priced = large;
      priced.exact = false;
      priced.bytes = saving->bytes;
      priced.seconds = saving->seconds;
      priced.saving = *saving;
      priced.savings_reason = reason_of(large, *saving, strategies);
      strategies.push_back(std::move(priced));
    }
  }

  std::string reason_of(const Priced& large, const detail::Saving& saving, const std::vector<Priced>& others) const {
    const nn::PricedRecomputation& again = saving.savings.recomputation;
    int layers = 0;
    for (const nn::RecomputedBlock& block : again.blocks) layers += block.last - block.first + 1;
    const auto megabytes = [](double bytes) { return std::to_string(std::llround(bytes / 1e6)) + " MB"; };
    const auto of_layers = [&](std::size_t number) {
      return std::to_string(number) + " of " + std::to_string(space_.layers()) + " layers ";
    };
    std::string text;
    if (layers > 0) {
      text = of_layers(static_cast<std::size_t>(layers)) + "are computed again (" +
             std::to_string(std::llround(100 * again.extra_flops / again.flops)) + " % of the flops)";
    }
    if (!saving.savings.offload.empty()) {
      text += (text.empty() ? "" : " and ") + of_layers(saving.savings.offload.size()) + "leave for host memory (" +
              megabytes(static_cast<double>(saving.savings.moved_bytes)) + ")";
    }
    text += ", because the step needs " + megabytes(large.bytes) + " or more without, and " + megabytes(saving.bytes) +
            " with it; ";
    std::optional<double> least;
    for (const Priced& p : others)
      if (p.savings_reason.empty()) least = std::min(least.value_or(p.seconds), p.seconds);
    if (!least) return text + "no strategy fits without it";
    return text + "without it the best strategy takes " + duration_text(*least);
  }

  /// Places the ranks of the best strategies, and sorts them by their times then.
  void place_ranks(std::vector<Priced>& strategies) const {
    if (options_.simulated == 0 || !options_.place_ranks || options_.prices.seconds || options_.prices.bytes) return;
    constexpr std::size_t most_placed = 3;
    for (std::size_t i = 0; i < std::min(most_placed, strategies.size()); ++i) place_ranks(strategies[i]);
    std::ranges::stable_sort(strategies, {}, &Priced::seconds);
  }

  void place_ranks(Priced& strategy) const {
    constexpr double least_gain = 0.01;  // less is within the error of the model, and other orders surprise a user
    RankPlacement placed = whole_.place(strategy.splits, strategy.saving.savings);
    strategy.placement_reason = "in order: " + placed.reason;
    if (placed.rank_of.empty()) return;
    const double seconds = whole_.seconds(strategy.splits, strategy.saving.savings, placed.rank_of);
    const std::string traffic = three_digits_text(placed.bytes_between_nodes / 1e6) + " instead of " +
                                three_digits_text(placed.bytes_in_order / 1e6) + " MB between nodes";
    const std::string before = duration_text(strategy.seconds), after = duration_text(seconds);
    strategy.placement_reason = "in order: with " + traffic + " a step takes " + after + ", not " + before;
    if (seconds > (1 - least_gain) * strategy.seconds) return;
    if (has_limit()) {
      const double bytes = whole_.placed_bytes(strategy.splits, strategy.saving.savings, placed.rank_of);
      if (bytes > whole_.limit()) {
        strategy.placement_reason += ", but more memory than a rank has";
        return;
      }
      strategy.bytes = bytes;
    }
    strategy.placement_reason = "placed: " + traffic + "; a step takes " + after + " instead of " + before;
    strategy.rank_of = std::move(placed.rank_of);
    strategy.seconds = seconds;
  }

  Finalist finalist_of(const Priced& priced) const {
    Finalist finalist{.seconds = priced.seconds,
                      .bytes = priced.bytes,
                      .wish = priced.saving.wish,
                      .savings = priced.saving.savings,
                      .rank_of = priced.rank_of,
                      .placement_reason = priced.placement_reason};
    const auto named = std::ranges::find(uniform_names_, priced.splits, &std::pair<Splits, std::string>::first);
    finalist.strategy.source = named == uniform_names_.end() ? "by layer" : named->second;
    for (std::size_t l = 0; l < network_.layers.size(); ++l)
      finalist.strategy.rules.push_back({network_.layers[l].name, priced.splits[l], 0});
    return finalist;
  }

  /// A layer whose candidates all have fewer blocks than ranks is computed several times, for want of a grid.
  std::string reason_of_repeats(const std::vector<LayerChoice>& layers) const {
    constexpr double least_share = 0.1;
    int number = 0, least_blocks = ranks_;
    double repeated = 0, all = 0;
    for (int l = 0; l < space_.layers(); ++l) {
      const LayerChoice& layer = layers[static_cast<std::size_t>(l)];
      all += layer.seconds;
      const auto has_all_blocks = [&](const LayerSplit& split) { return split.size() == ranks_; };
      const int blocks = effective_split(space_.facts(l), layer.split).size();
      if (blocks == ranks_ || std::ranges::any_of(space_.candidates(l), has_all_blocks)) continue;
      ++number;
      repeated += layer.seconds;
      least_blocks = std::min(least_blocks, blocks);
    }
    if (number == 0 || repeated < least_share * all) return {};
    std::string text = std::to_string(number) + " of " + std::to_string(space_.layers()) + " layers, " +
                       std::to_string(std::llround(100 * repeated / all)) + " % of the time of layers: ";
    const int copies = ranks_ / least_blocks;
    text += copies == ranks_ ? "all " + std::to_string(ranks_) + " ranks compute the same blocks"
                             : "up to " + std::to_string(copies) + " ranks compute the same block";
    text += ", because no grid has a block for each of " + std::to_string(ranks_) + " ranks";
    const int prime = largest_prime_factor(ranks_);
    if (prime <= most_small_prime) return text;
    int fewer = ranks_ - 1;
    while (largest_prime_factor(fewer) > most_small_prime) --fewer;
    return text + "; one dimension would need a multiple of " + std::to_string(prime) + " blocks; " +
           std::to_string(fewer) + " is the next smaller number without a prime factor above " +
           std::to_string(most_small_prime);
  }

  Splits smallest_splits() const {
    AssignmentProblem problem = space_.problem();
    problem.most_bytes = -1;  // nothing fits: the result is the choice with the least bytes
    return space_.splits_of(assign(problem, options_.limits).options);
  }

  /// The strategies with one split for all layers that are most likely to need the least memory.
  std::vector<Priced> smallest_uniform() {
    constexpr std::size_t most_uniform = 6;
    std::vector<Priced> found = uniform_strategies();
    std::ranges::stable_sort(found, {}, &Priced::bytes);
    found.resize(std::min(found.size(), most_uniform));
    return found;
  }

  /// The least memory of the strategies that are most likely to need it.
  MemoryUse least_memory() {
    const Splits smallest = smallest_splits();
    MemoryUse least = whole_.largest_memory(smallest);
    std::vector<Priced> others = smallest_uniform();
    for (Priced& other : others) other.bytes = first_rank_bytes(other.splits);
    for (const Priced& tried : too_large_) others.push_back(tried);
    const auto best = std::ranges::min_element(others, {}, &Priced::bytes);
    if (best == others.end() || best->bytes >= least.bytes) return least;
    MemoryUse other = whole_.largest_memory(best->splits);
    return other.bytes < least.bytes ? other : least;
  }

  double first_rank_bytes(const Splits& splits) const {
    return options_.prices.bytes ? options_.prices.bytes(splits) : whole_.bytes_of_first_rank(splits);
  }

  bool can_offload() const {
    return kind_ == nn::StepKind::training && !machine_.planning.on_host && machine_.processor.host_bandwidth > 0;
  }

  /// Numbers of ranks that have many grids. Numbers with large prime factors have few, on which ranks repeat blocks.
  nn::RankNumbers numbers_to_try() const {
    const int per_node = machine_.ranks_per_node;
    const bool fills_nodes = ranks_ % per_node == 0;
    const int quarter = std::max(1, (has_many_grids() ? ranks_ : least_power_of_two(ranks_)) / 4);
    return {.step = fills_nodes ? std::max(1, quarter / per_node) * per_node : quarter,
            .most = machine_.most_nodes * per_node,
            .tries = 4};
  }

  bool has_many_grids() const {
    return ranks_ <= 2 || (ranks_ % 4 == 0 && largest_prime_factor(ranks_) <= most_small_prime);
  }

  /// Without recomputation and offloading, whose prices take longer than the rest.
  nn::MoreRanks more_ranks(double bytes) const {
    if (options_.prices.bytes) return {};
    Machine any_nodes = machine_;
    any_nodes.planning.nodes.clear();  // those of a job are for its ranks
    const auto fits = [&](int ranks) { return Chooser(network_, any_nodes, ranks, options_, samples_).can_fit(); };
    // Twice the ranks need half the memory at best, unless now ranks repeat blocks.
    nn::MoreRanks more =
        nn::find_more_ranks(ranks_, numbers_to_try(), has_many_grids() ? bytes / whole_.limit() : 1, fits);
    if (may_save()) more.note = whole_.may_offload() ? "without recomputation and offloading" : "without recomputation";
    return more;
  }

  [[noreturn]] void refuse_memory() {
    const MemoryUse least = least_memory();
    const auto limit = static_cast<Index>(whole_.limit());
    std::string expectation = to_string(nn::MemoryShortage{static_cast<Index>(least.bytes), limit, least.layer});
    if (may_save()) {
      expectation += whole_.may_offload() ? ", without recomputation and offloading. No choice of these meets the limit"
                                          : ", without recomputation. No recomputation meets the limit";
    }
    if (const std::string more = to_string(more_ranks(least.bytes)); !more.empty()) expectation += ". " + more;
    const bool trains = kind_ == nn::StepKind::training;
    expectation += ". " + to_string(nn::WaysToNeedLess{.recompute = trains && options_.memory.recompute != "auto",
                                                       .offload = can_offload() && options_.memory.offload != "auto",
                                                       .micro_batches = trains,
                                                       .ranks_and_strategy = false});
    throw InvalidArgument(choose_operation, memory_argument, std::to_string(limit) + " bytes", expectation);
  }
  const nn::NetworkDescription& network_;
  const Machine& machine_;
  int ranks_;
  const ChooseOptions& options_;
  Index samples_;
  nn::StepKind kind_;
  std::unique_ptr<MachineKernels> own_kernels_;
  const KernelTimes& kernels_;
  detail::SearchSpace space_;
  detail::WholeStrategies whole_;
  std::vector<std::pair<Splits, std::string>> uniform_names_;  ///< of splits that follow from one for all layers
  std::vector<Priced> too_large_;                              ///< strategies that exceed the memory
};

}  // namespace

StrategyChoice choose_strategy(const nn::NetworkDescription& network, const Machine& machine, int ranks,
                               const ChooseOptions& options) {
  if (options.samples < 1)
    throw InvalidArgument(choose_operation, "samples", std::to_string(options.samples), "at least 1");
  if (options.micro_batches < 1 || (options.micro_batches > 1 && options.objective != Objective::training_step)) {
    throw InvalidArgument(choose_operation, "micro_batches", std::to_string(options.micro_batches),
                          "1, or more in a training step");
  }
  StrategyChoice best = Chooser(network, machine, ranks, options, options.samples).choose();
  if (options.objective != Objective::throughput) return best;
  constexpr Index largest_factor = 32;
  for (Index factor = 2; factor <= largest_factor; factor *= 2) {
    try {
      std::optional<StrategyChoice> larger = Chooser(network, machine, ranks, options, options.samples * factor).find();
      const auto rate = [](const StrategyChoice& c) { return static_cast<double>(c.samples) / c.seconds; };
      if (!larger || rate(*larger) <= rate(best)) break;
      best = *std::move(larger);
    } catch (const InvalidArgument&) {
      break;  // the extents are too large
    }
  }
  return best;
}

}  // namespace aloni::model
