#include <aloni/model/choose_strategy.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/plan/memory.hpp>
#include <aloni/nn/plan/representatives.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

namespace aloni::model {

namespace {

using nn::LayerSplit;
using nn::Overlap;
using Splits = std::vector<LayerSplit>;
using views::Dim;

constexpr const char* choose_operation = "aloni::model::choose_strategy";

std::string duration_text(double seconds) {
  std::array<char, 32> text{};
  const double size = std::abs(seconds);
  if (size < 1e-3) {
    std::snprintf(text.data(), text.size(), "%.3g us", seconds * 1e6);
  } else if (size < 1) {
    std::snprintf(text.data(), text.size(), "%.3g ms", seconds * 1e3);
  } else {
    std::snprintf(text.data(), text.size(), "%.3g s", seconds);
  }
  return text.data();
}

/// Whether a layer takes the candidates of its inputs: a kernel that visits elements has no better split of its own.
bool inherits(const LayerFacts& facts) {
  const nn::OperationProperties& p = facts.properties;
  return !p.convolution && !p.convolution_if_split && !p.stencil && !p.range_rule && !p.splits_samples_only &&
         !facts.last_before_softmax;
}

struct MemoryUse {
  double bytes = 0;
  std::string layer = {};  ///< at the peak
};

/// A strategy with its price.
struct Priced {
  Splits splits;
  double seconds = 0;
  double bytes = 0;  ///< the sum of stage 2, later those of the plans
  bool exact = true;
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
        description_(description_of(machine, ranks)),
        own_kernels_(options.kernels
                         ? nullptr
                         : std::make_unique<MachineKernels>(machine, machine.ranks_per_node, machine.threads_per_rank)),
        kernels_(options.kernels ? *options.kernels : *own_kernels_),
        costs_(network, machine, kernels_, ranks, {.samples = samples, .kind = kind_, .step = options.step}) {
    const double memory = options.memory_bytes > 0 ? options.memory_bytes : machine.memory_bytes;
    if (memory > 0) limit_ = memory;
    for (const nn::LayerDescription& layer : network.layers) {
      sources_.emplace_back();
      for (const std::string& input : layer.inputs) sources_.back().push_back(find_layer(network, input));
    }
    find_candidates();
    make_problem();
  }

  StrategyChoice choose() {
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
    if (!uniform.empty()) choice.uniform = {uniform.front().splits.front(), uniform.front().seconds};
    if (!uniform.empty()) choice.uniform->split = uniform_names_.at(uniform.front().splits);
    for (Priced& u : uniform) assigned.push_back(std::move(u));
    std::ranges::stable_sort(assigned, {}, &Priced::seconds);
    if (assigned.empty()) refuse_memory();
    for (const Priced& priced : assigned)
      choice.finalists.push_back({strategy_of(priced.splits), priced.seconds, priced.bytes});
    const Priced& best = assigned.front();
    choice.splits = best.splits;
    choice.seconds = best.seconds;
    choice.bytes = best.bytes;
    choice.strategy.source = "chosen for " + machine_.name;
    for (std::size_t l = 0; l < network_.layers.size(); ++l)
      choice.strategy.rules.push_back({network_.layers[l].name, best.splits[l], 0});
    explain(choice);
    choice.candidates = lists_;
    return choice;
  }

  /// The least memory of all strategies that were considered, with that of the splits that need least by the sum of
  /// stage 2.
  MemoryUse least_memory() {
    AssignmentProblem problem = problem_;
    problem.most_bytes = -1;  // nothing fits: the result is the choice with the least bytes
    memory_use(splits_of(assign(problem, options_.limits).options));
    return least_;
  }

  bool fits(double bytes) const { return bytes <= limit_; }

 private:
  const LayerFacts& facts(int layer) const { return costs_.facts()[static_cast<std::size_t>(layer)]; }
  int layers() const { return static_cast<int>(network_.layers.size()); }
  const Splits& candidates(int layer) const {
    return lists_[static_cast<std::size_t>(list_of_[static_cast<std::size_t>(layer)])].splits;
  }

  // --- stage 1 ---

  bool inherits_candidates(int layer) const {
    return inherits(facts(layer)) && sources_[static_cast<std::size_t>(layer)].front() >= 0;
  }

  void find_candidates() {
    CandidateOptions options = options_.candidates;
    options.training = kind_ == nn::StepKind::training;
    list_of_.assign(static_cast<std::size_t>(layers()), -1);
    std::map<std::string, int> own;  // by kind of layer
    std::vector<int> layer_of_list;
    for (int l = 0; l < layers(); ++l) {
      if (inherits_candidates(l)) continue;
      const auto [found, is_new] = own.try_emplace(costs_.kind_of(l), static_cast<int>(lists_.size()));
      if (is_new) {
        lists_.push_back(candidates_of(facts(l), ranks_, options));
        layer_of_list.push_back(l);
      }
      list_of_[static_cast<std::size_t>(l)] = found->second;
    }
    find_uniform_splits();
    for (std::size_t i = 0; i < lists_.size(); ++i) add_uniform_splits(layer_of_list[i], lists_[i]);

    std::map<std::vector<int>, int> inherited;
    for (int l = 0; l < layers(); ++l) {
      if (!inherits_candidates(l)) continue;
      std::vector<int> from;
      for (const int s : sources_[static_cast<std::size_t>(l)])
        if (s >= 0) from.push_back(list_of_[static_cast<std::size_t>(s)]);
      std::ranges::sort(from);
      from.erase(std::unique(from.begin(), from.end()), from.end());
      std::vector<int> key = from;
      for (const Index e : facts(l).output.values) key.push_back(static_cast<int>(e));
      key.push_back(facts(l).properties.reduces_space);
      const auto [found, is_new] = inherited.try_emplace(key, -1);
      if (is_new) {
        Candidates list = inherited_candidates(l, from, options);
        add_uniform_splits(l, list);
        found->second = add_list(std::move(list));
      }
      list_of_[static_cast<std::size_t>(l)] = found->second;
    }
  }

  /// The splits that may be the same for all layers: first those that are candidates of most layers, and of these the
  /// ones with least communication.
  void find_uniform_splits() {
    struct Vote {
      LayerSplit split;
      int layers = 0;
      std::size_t places = 0;  ///< sum over the lists of candidates
    };
    std::map<std::tuple<std::array<int, views::num_dims>, int>, Vote> votes;
    for (int l = 0; l < layers(); ++l) {
      if (inherits_candidates(l)) continue;
      for (std::size_t o = 0; o < candidates(l).size(); ++o) {
        const LayerSplit& split = candidates(l)[o];
        Vote& vote = votes[{split.grid.blocks, split.filters}];
        vote.split = split;
        ++vote.layers;
        vote.places += o;
      }
    }
    std::vector<Vote> sorted;
    for (const auto& [key, vote] : votes) sorted.push_back(vote);
    std::ranges::stable_sort(sorted, {}, [](const Vote& v) { return std::pair(-v.layers, v.places); });
    constexpr std::size_t most_uniform = 24;
    if (sorted.size() > most_uniform) sorted.resize(most_uniform);
    for (const Vote& vote : sorted) uniform_.push_back(vote.split);
  }

  /// The most promising of them are candidates of every layer, so that one layer without them does not cost a
  /// redistribution.
  void add_uniform_splits(int layer, Candidates& list) const {
    constexpr std::size_t most_added = 8;
    for (std::size_t i = 0; i < std::min(most_added, uniform_.size()); ++i) {
      const LayerSplit split = effective_split(facts(layer), uniform_[i]);
      const bool is_known = std::ranges::find(list.splits, split) != list.splits.end();
      if (is_known || has_empty_blocks(facts(layer), split)) continue;
      list.splits.push_back(split);
      std::erase_if(list.rejected, [&](const Rejection& r) { return r.split == split; });
    }
  }

  /// Equal lists have one position, so that costs between them are computed once.
  int add_list(Candidates list) {
    for (std::size_t i = 0; i < lists_.size(); ++i)
      if (lists_[i].splits == list.splits) return static_cast<int>(i);
    lists_.push_back(std::move(list));
    return static_cast<int>(lists_.size()) - 1;
  }

  Candidates inherited_candidates(int layer, const std::vector<int>& from, const CandidateOptions& options) const {
    Candidates found;
    std::size_t longest = 0;
    for (const int list : from) longest = std::max(longest, lists_[static_cast<std::size_t>(list)].splits.size());
    for (std::size_t i = 0; i < longest; ++i) {  // the best ones of all inputs first
      for (const int list : from) {
        const Splits& splits = lists_[static_cast<std::size_t>(list)].splits;
        if (i >= splits.size() || static_cast<int>(found.splits.size()) >= options.most) continue;
        const LayerSplit same = effective_split(facts(layer), LayerSplit(splits[i].tensor_grid()));
        const bool is_known = std::ranges::find(found.splits, same) != found.splits.end();
        if (!is_known && !has_empty_blocks(facts(layer), same)) found.splits.push_back(same);
      }
    }
    if (found.splits.empty()) return candidates_of(facts(layer), ranks_, options);
    return found;
  }

  /// The seconds and bytes of a split, with the cheaper overlap.
  std::pair<LayerPrice, Overlap> price(int layer, LayerSplit split) {
    const auto of = [&](Overlap overlap) {
      split.overlap = overlap;
      return options_.prices.layer ? options_.prices.layer(facts(layer), split) : costs_.of(facts(layer), split);
    };
    const LayerPrice first = of(Overlap::interior_first);
    const auto& stencil = facts(layer).properties.stencil;
    const bool has_halo = facts(layer).properties.convolution && std::ranges::any_of(views::spatial_dims, [&](Dim d) {
                            return split.grid[d] > 1 && !(*stencil)[d].identity();
                          });
    if (!has_halo) return {first, Overlap::interior_first};
    const LayerPrice second = of(Overlap::blocking);
    if (second.seconds < first.seconds) return {second, Overlap::blocking};
    return {first, Overlap::interior_first};
  }

  /// Seconds of all pairs; the splits of the reader vary fastest.
  std::vector<double> edge_prices(int from, const Splits& a, int to, int input, const Splits& b) {
    if (!options_.prices.edge) return costs_.between(from, a, to, input, b);
    std::vector<double> prices;
    for (const LayerSplit& x : a)
      for (const LayerSplit& y : b) prices.push_back(options_.prices.edge(from, x, to, y));
    return prices;
  }

  // --- stage 2 ---

  void make_problem() {
    problem_.layers.resize(static_cast<std::size_t>(layers()));
    prices_.resize(problem_.layers.size());
    overlaps_.resize(problem_.layers.size());
    std::map<std::pair<std::string, int>, int> same;  // layers with equal prices
    for (int l = 0; l < layers(); ++l) {
      const auto i = static_cast<std::size_t>(l);
      const auto [first, is_new] = same.try_emplace({costs_.kind_of(l), list_of_[i]}, l);
      if (!is_new && !options_.prices.layer) {
        prices_[i] = prices_[static_cast<std::size_t>(first->second)];
        overlaps_[i] = overlaps_[static_cast<std::size_t>(first->second)];
      } else {
        for (const LayerSplit& split : candidates(l)) {
          const auto [price, overlap] = this->price(l, split);
          prices_[i].push_back(price);
          overlaps_[i].push_back(overlap);
        }
      }
      for (const LayerPrice& p : prices_[i]) problem_.layers[i].push_back({p.seconds, p.bytes});
    }
    int first_reader = -1;  // whose grid the network's input has
    std::map<std::vector<Index>, int> known;
    for (int l = 0; l < layers(); ++l) {
      for (std::size_t k = 0; k < sources_[static_cast<std::size_t>(l)].size(); ++k) {
        int from = sources_[static_cast<std::size_t>(l)][k];
        const bool reads_input = from < 0;
        if (reads_input && first_reader < 0) first_reader = l;
        if (reads_input) from = first_reader;
        if (from == l) continue;
        add_edge(from, l, static_cast<int>(k), reads_input, known);
      }
    }
  }

  void add_edge(int from, int to, int input, bool reads_input, std::map<std::vector<Index>, int>& known) {
    const LayerFacts& reader = facts(to);
    std::vector<Index> key{list_of_[static_cast<std::size_t>(from)], list_of_[static_cast<std::size_t>(to)],
                           reads_input, facts(from).properties.reduces_space};
    const auto& extents = reader.inputs[static_cast<std::size_t>(input)].values;
    key.insert(key.end(), extents.begin(), extents.end());
    const bool is_own = reader.properties.concatenates || options_.prices.edge;
    key.push_back(is_own ? to : -1);
    key.push_back(is_own ? input : -1);
    const auto [found, is_new] = known.try_emplace(key, static_cast<int>(problem_.costs.size()));
    if (is_new) {
      AssignmentCosts& costs = problem_.costs.emplace_back();
      costs.seconds = edge_prices(reads_input ? -1 : from, candidates(from), to, input, candidates(to));
      if (kind_ == nn::StepKind::training && !options_.prices.bytes) costs.bytes = copies(from, to, input);
    }
    problem_.edges.push_back({from, to, found->second});
  }

  /// Bytes of the copy of its input that a reader with another grid keeps until the backward pass.
  std::vector<double> copies(int from, int to, int input) const {
    const views::Extents& extents = facts(to).inputs[static_cast<std::size_t>(input)];
    std::vector<double> bytes;
    for (const LayerSplit& a : candidates(from)) {
      for (const LayerSplit& b : candidates(to)) {
        double copy = a.tensor_grid() == b.tensor_grid() || facts(to).properties.concatenates
                          ? 0
                          : static_cast<double>(nn::bytes_of(options_.step.activations));
        for (const Dim d : views::all_dims) copy *= static_cast<double>(ceil_div(extents[d], b.tensor_grid()[d]));
        bytes.push_back(copy);
      }
    }
    return bytes;
  }

  Splits splits_of(const std::vector<int>& choice) const {
    Splits splits;
    for (int l = 0; l < layers(); ++l) {
      const auto i = static_cast<std::size_t>(l), o = static_cast<std::size_t>(choice[i]);
      splits.push_back(candidates(l)[o]);
      splits.back().overlap = overlaps_[i][o];
    }
    return splits;
  }

  /// Stage 2 as a whole: the sum of all layers and edges, and the sums of gradients that are not hidden.
  double estimate(const std::vector<int>& choice) const {
    double flight = 0, backward = 0;
    for (std::size_t l = 0; l < choice.size(); ++l) {
      const LayerPrice& p = prices_[l][static_cast<std::size_t>(choice[l])];
      flight += p.gradient_flight;
      backward += p.backward;
    }
    return model::price(problem_, choice).seconds + exposed(flight, backward);
  }

  /// The sums of gradients that the backward pass does not hide. The last bucket starts when that pass has ended.
  double exposed(double flight, double backward) const {
    return std::max(flight - backward, std::min(flight, costs_.bucket_flight()));
  }

  /// The best choices for several weights of what stage 2 knows least: the share of the sums of gradients that no
  /// kernel hides, and the redistributions, whose copies also delay the layers around them.
  std::vector<Priced> assign_splits() {
    struct Variant {
      double exposed, edges;
    };
    std::vector<Variant> variants{{0, 1}};
    if (kind_ == nn::StepKind::training) variants.push_back({1, 1});
    if (options_.simulated > 0) {  // stage 3 chooses between them
      if (kind_ == nn::StepKind::training) variants.push_back({0.3, 1});
      variants.push_back({kind_ == nn::StepKind::training ? 0.3 : 0, 2});
    }
    std::vector<Priced> found;
    for (const Variant& v : variants) {
      AssignmentProblem problem = problem_;
      for (std::size_t l = 0; l < problem.layers.size(); ++l)
        for (std::size_t o = 0; o < problem.layers[l].size(); ++o)
          problem.layers[l][o].seconds += v.exposed * prices_[l][o].gradient_flight;
      if (v.edges != 1)
        for (AssignmentCosts& costs : problem.costs)
          for (double& seconds : costs.seconds) seconds *= v.edges;
      add_within_memory(problem, found);
    }
    return found;
  }

  /// The bytes of stage 2 are a sum over layers; those of a plan depend on lifetimes. The limit of the sum is lowered
  /// until the plans fit.
  void add_within_memory(AssignmentProblem& problem, std::vector<Priced>& found) {
    constexpr int most_tries = 6;
    for (int i = 0; i < most_tries; ++i) {
      const Assignment best = assign(problem, options_.limits);
      Priced priced{splits_of(best.options), estimate(best.options), best.bytes, best.exact && i == 0};
      if (fits_certainly(best.bytes)) return add(found, std::move(priced));
      const double bytes = memory_use(priced.splits).bytes;
      if (fits(bytes)) return add(found, std::move(priced));
      if (!best.feasible) return;
      problem.most_bytes = best.bytes * std::min(0.95, limit_ / bytes);
    }
    problem.most_bytes = -1;  // the choice with the least bytes
    const Assignment least = assign(problem, options_.limits);
    Priced priced{splits_of(least.options), estimate(least.options), least.bytes, false};
    if (fits(memory_use(priced.splits).bytes)) add(found, std::move(priced));
  }

  /// Plans of thousands of ranks take longer than the rest of the search. They are not needed where memory is ample.
  /// `bytes`: the sum of stage 2. It has all that lives until the backward pass. Gradients and workspace take less
  /// than that again, if each buffer has its own memory.
  bool fits_certainly(double bytes) const {
    constexpr double margin = 4;
    return std::isinf(limit_) ||
           (kind_ == nn::StepKind::training && !options_.prices.bytes && margin * bytes <= limit_);
  }

  static void add(std::vector<Priced>& found, Priced priced) {
    const auto same = std::ranges::find(found, priced.splits, &Priced::splits);
    if (same == found.end()) found.push_back(std::move(priced));
  }

  // --- uniform strategies ---

  std::vector<Priced> uniform_strategies() {
    std::vector<Priced> found;
    for (const LayerSplit& split : uniform_) {
      const auto [seconds, bytes] = sum_of_uniform(split);
      Splits effective;
      for (int l = 0; l < layers(); ++l) {
        effective.push_back(effective_split(facts(l), split));
        effective.back().overlap = price(l, effective.back()).second;
      }
      uniform_names_.emplace(effective, split);
      add(found, {std::move(effective), seconds, bytes, true});
    }
    return found;
  }

  AssignmentOption sum_of_uniform(const LayerSplit& split) {
    double sum = 0, bytes = 0, flight = 0, backward = 0;
    for (int l = 0; l < layers(); ++l) {
      const LayerSplit mine = effective_split(facts(l), split);
      const LayerPrice p = price(l, mine).first;
      sum += p.seconds;
      bytes += p.bytes;
      flight += p.gradient_flight;
      backward += p.backward;
      const auto& sources = sources_[static_cast<std::size_t>(l)];
      for (std::size_t k = 0; k < sources.size(); ++k)
        if (sources[k] >= 0)
          sum +=
              edge_prices(sources[k], {effective_split(facts(sources[k]), split)}, l, static_cast<int>(k), {mine})[0];
    }
    return {sum + exposed(flight, backward), bytes};
  }

  // --- stage 3 ---

  /// Adds variants whose chains of convolutions with one split exchange halos once (Overlap::recompute_halo).
  void add_recomputed_halos(std::vector<Priced>& strategies) {
    const auto best = std::ranges::min_element(strategies, {}, &Priced::seconds);
    if (best == strategies.end()) return;
    Priced variant = *best;
    const auto allows = [&](int l) {
      const LayerFacts& f = facts(l);
      const bool multiplies = f.properties.convolution || f.properties.convolution_if_split;
      const LayerSplit& split = variant.splits[static_cast<std::size_t>(l)];
      return !f.properties.has_statistics && split.grid.spatial_size() > 1 &&
             !(multiplies && split.tensor_grid()[Dim::channel] > 1);
    };
    bool changes = false;
    for (int l = 0; l < layers(); ++l) {
      for (const int s : sources_[static_cast<std::size_t>(l)]) {
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
      if (options_.simulated > 0 || !fits_certainly(s.bytes)) s.bytes = memory_use(s.splits).bytes;
      if (!fits(s.bytes)) continue;
      if (options_.simulated > 0) s.seconds = whole_seconds(s.splits);
      kept.push_back(std::move(s));
    }
    std::ranges::stable_sort(kept, {}, &Priced::seconds);
    strategies = std::move(kept);
  }

  double whole_seconds(const Splits& splits) const {
    if (options_.prices.seconds) return options_.prices.seconds(splits);
    const nn::NetworkPlan plan = plan_network(network_, splits, ranks_, samples_);
    return simulate(network_, plan, machine_, kernels_, {.kind = kind_, .step = options_.step}).seconds;
  }

  MemoryUse memory_use(const Splits& splits) {
    const MemoryUse use = find_memory_use(splits);
    if (least_.bytes < 0 || use.bytes < least_.bytes) least_ = use;
    return use;
  }

  MemoryUse find_memory_use(const Splits& splits) const {
    if (options_.prices.bytes) return {options_.prices.bytes(splits)};
    const nn::NetworkPlan layers = plan_network(network_, splits, ranks_, samples_);
    MemoryUse most;
    for (const int rank : find_representatives(network_, layers, description_).ranks) {
      const nn::StepPlan plan = plan_step(network_, layers, rank, kind_, description_, options_.step);
      const nn::PlanMemoryUse use = memory_of(plan, description_);
      if (static_cast<double>(use.peak) <= most.bytes) continue;
      most.bytes = static_cast<double>(use.peak);
      const int layer = use.peak_node < 0 ? -1 : plan.nodes[static_cast<std::size_t>(use.peak_node)].layer;
      most.layer = layer < 0 ? "" : network_.layers[static_cast<std::size_t>(layer)].name;
    }
    return most;
  }

  nn::Strategy strategy_of(const Splits& splits) const {
    const auto uniform = uniform_names_.find(splits);
    nn::Strategy strategy{.source = uniform == uniform_names_.end() ? "by layer" : to_string(uniform->second),
                          .rules = {}};
    for (std::size_t l = 0; l < network_.layers.size(); ++l)
      strategy.rules.push_back({network_.layers[l].name, splits[l], 0});
    return strategy;
  }

  [[noreturn]] void refuse_memory() {
    const MemoryUse least = least_memory();
    std::string expectation = "at least " + std::to_string(static_cast<std::int64_t>(least.bytes)) + " bytes";
    if (!least.layer.empty()) expectation += ", in use at layer \"" + least.layer + "\"";
    constexpr int most_doublings = 6;
    const int most_ranks = machine_.most_nodes * machine_.ranks_per_node;
    for (int more = 2 * ranks_, i = 0; i < most_doublings && !options_.prices.bytes; more *= 2, ++i) {
      if (most_ranks > 0 && more > most_ranks) break;
      if (!fits(Chooser(network_, machine_, more, options_, samples_).least_memory().bytes)) continue;
      expectation += "; " + std::to_string(more) + " ranks would do";
      break;
    }
    throw InvalidArgument(choose_operation, memory_argument,
                          std::to_string(static_cast<std::int64_t>(limit_)) + " bytes", expectation);
  }

  // --- reasons ---

  /// Positions of the chosen splits among the candidates; -1 for splits of a uniform strategy that are none.
  std::vector<int> positions(const Splits& splits) const {
    std::vector<int> all;
    for (int l = 0; l < layers(); ++l) {
      LayerSplit split = splits[static_cast<std::size_t>(l)];
      split.overlap = Overlap::interior_first;
      const auto found = std::ranges::find(candidates(l), split);
      all.push_back(found == candidates(l).end() ? -1 : static_cast<int>(found - candidates(l).begin()));
    }
    return all;
  }

  void explain(StrategyChoice& choice) {
    const std::vector<int> chosen = positions(choice.splits);
    std::vector<std::vector<std::size_t>> edges(static_cast<std::size_t>(layers()));
    for (std::size_t e = 0; e < problem_.edges.size(); ++e)
      for (const int end : {problem_.edges[e].from, problem_.edges[e].to})
        edges[static_cast<std::size_t>(end)].push_back(e);
    for (int l = 0; l < layers(); ++l) {
      const auto i = static_cast<std::size_t>(l);
      LayerChoice& layer = choice.layers.emplace_back();
      layer.split = choice.splits[i];
      layer.candidates = list_of_[i];
      const LayerPrice own = price(l, effective_split(facts(l), layer.split)).first;
      layer.seconds = own.seconds;
      layer.bytes = own.bytes;
      if (chosen[i] < 0) {
        layer.reason = "one split for all layers is fastest";
        continue;
      }
      /// Seconds of the redistributions with option `o`; only those of its inputs, if so wished.
      const auto moves = [&](int o, bool inputs_only) {
        double sum = 0;
        for (const std::size_t e : edges[i]) {
          const AssignmentEdge& edge = problem_.edges[e];
          const bool leads_here = edge.to == l;
          const int other = chosen[static_cast<std::size_t>(leads_here ? edge.from : edge.to)];
          if (other < 0 || (inputs_only && !leads_here)) continue;
          const std::size_t columns = problem_.layers[static_cast<std::size_t>(edge.to)].size();
          const auto row = static_cast<std::size_t>(leads_here ? other : o);
          sum += problem_.costs[static_cast<std::size_t>(edge.costs)]
                     .seconds[row * columns + static_cast<std::size_t>(leads_here ? o : other)];
        }
        return sum;
      };
      layer.seconds += moves(chosen[i], true);
      const double own_moves = moves(chosen[i], false);
      double more_here = 0, more_moved = 0;
      for (int o = 0; o < static_cast<int>(prices_[i].size()); ++o) {
        if (o == chosen[i]) continue;
        const double here = prices_[i][static_cast<std::size_t>(o)].seconds - own.seconds;
        const double moved = moves(o, false) - own_moves;
        if (layer.runner_up && here + moved >= layer.runner_up_seconds) continue;
        layer.runner_up = candidates(l)[static_cast<std::size_t>(o)];
        layer.runner_up_seconds = here + moved;
        more_here = here;
        more_moved = moved;
      }
      if (!layer.runner_up) {
        layer.reason = "the only candidate";
      } else if (layer.runner_up_seconds < 0) {
        layer.reason = to_string(*layer.runner_up) + " would save " + duration_text(-layer.runner_up_seconds) +
                       " here, but the whole step is longer, or takes more memory";
      } else {
        layer.reason = to_string(*layer.runner_up) + " would take " + duration_text(layer.runner_up_seconds) +
                       " more: " + duration_text(more_here) + " in the layer, " + duration_text(more_moved) +
                       " in redistributions";
      }
    }
  }

  struct LessSplits {
    static auto key(const LayerSplit& s) { return std::tuple(s.grid.blocks, s.filters, s.overlap); }
    bool operator()(const Splits& a, const Splits& b) const {
      return std::ranges::lexicographical_compare(
          a, b, [](const LayerSplit& x, const LayerSplit& y) { return key(x) < key(y); });
    }
  };

  const nn::NetworkDescription& network_;
  const Machine& machine_;
  int ranks_;
  const ChooseOptions& options_;
  Index samples_;
  nn::StepKind kind_;
  MachineDescription description_;
  std::unique_ptr<MachineKernels> own_kernels_;
  const KernelTimes& kernels_;
  LayerCosts costs_;
  double limit_ = std::numeric_limits<double>::infinity();
  std::vector<std::vector<int>> sources_;  ///< of each input of each layer
  std::vector<Candidates> lists_;
  Splits uniform_;            ///< splits that stage 3 tries for all layers
  std::vector<int> list_of_;  ///< of each layer
  AssignmentProblem problem_;
  std::vector<std::vector<LayerPrice>> prices_;  ///< by layer and option
  std::vector<std::vector<Overlap>> overlaps_;
  MemoryUse least_{-1};                                     ///< of all strategies that were considered
  std::map<Splits, LayerSplit, LessSplits> uniform_names_;  ///< the split from which a uniform strategy follows
};

}  // namespace

StrategyChoice choose_strategy(const nn::NetworkDescription& network, const Machine& machine, int ranks,
                               const ChooseOptions& options) {
  if (options.samples < 1)
    throw InvalidArgument(choose_operation, "samples", std::to_string(options.samples), "at least 1");
  StrategyChoice best = Chooser(network, machine, ranks, options, options.samples).choose();
  if (options.objective != Objective::throughput) return best;
  constexpr Index largest_factor = 32;
  for (Index factor = 2; factor <= largest_factor; factor *= 2) {
    try {
      StrategyChoice larger = Chooser(network, machine, ranks, options, options.samples * factor).choose();
      const auto rate = [](const StrategyChoice& c) { return static_cast<double>(c.samples) / c.seconds; };
      if (rate(larger) <= rate(best)) break;
      best = std::move(larger);
    } catch (const InvalidArgument&) {
      break;  // it does not fit into the memory
    }
  }
  return best;
}

}  // namespace aloni::model
