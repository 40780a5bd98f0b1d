#include <aloni/model/detail/search_space.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

namespace aloni::model::detail {

using nn::LayerSplit;
using nn::Overlap;
using views::Dim;

namespace {

/// Whether a layer takes the candidates of its inputs: a kernel that visits elements has no better split of its own.
bool inherits(const LayerFacts& facts) {
  const nn::OperationProperties& p = facts.properties;
  return !p.convolution && !p.convolution_if_split && !p.stencil && !p.range_rule && !p.splits_samples_only &&
         !facts.last_before_softmax;
}

}  // namespace

SearchSpace::SearchSpace(const nn::NetworkDescription& network, const Machine& machine, const KernelTimes& kernels,
                         int ranks, Index samples, nn::StepKind kind, const ChooseOptions& options)
    : network_(network),
      ranks_(ranks),
      kind_(kind),
      options_(options),
      costs_(network, machine, kernels, ranks,
             {.samples = samples, .kind = kind, .step = options.step, .micro_batches = options.micro_batches}) {
  for (const nn::LayerDescription& layer : network.layers) {
    sources_.emplace_back();
    for (const std::string& input : layer.inputs) sources_.back().push_back(find_layer(network, input));
  }
  find_candidates();
  make_problem();
}

AssignmentProblem SearchSpace::weighted_problem(const Weights& weights) const {
  AssignmentProblem problem = problem_;
  for (std::size_t l = 0; l < problem.layers.size(); ++l)
    for (std::size_t o = 0; o < problem.layers[l].size(); ++o)
      problem.layers[l][o].seconds += weights.exposed * prices_[l][o].gradient_flight;
  if (weights.edges == 1) return problem;
  for (AssignmentCosts& costs : problem.costs)
    for (double& seconds : costs.seconds) seconds *= weights.edges;
  return problem;
}

bool SearchSpace::inherits_candidates(int layer) const {
  return inherits(facts(layer)) && sources_[static_cast<std::size_t>(layer)].front() >= 0;
}

void SearchSpace::find_candidates() {
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

  has_own_list_.assign(list_of_.size(), true);
  std::map<std::vector<int>, std::pair<int, bool>> inherited;  // the list, and whether the layers have it of their own
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
    const auto [found, is_new] = inherited.try_emplace(key);
    if (is_new) {
      Candidates list = inherited_candidates(l, from, options);
      const bool is_own = list.splits.empty();
      if (is_own) list = candidates_of(facts(l), ranks_, options);
      add_uniform_splits(l, list);
      found->second = {add_list(std::move(list)), is_own};
    }
    list_of_[static_cast<std::size_t>(l)] = found->second.first;
    has_own_list_[static_cast<std::size_t>(l)] = found->second.second;
  }
}

void SearchSpace::find_uniform_splits() {
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

void SearchSpace::add_uniform_splits(int layer, Candidates& list) const {
  constexpr std::size_t most_added = 8;
  for (std::size_t i = 0; i < std::min(most_added, uniform_.size()); ++i) {
    const LayerSplit split = effective_split(facts(layer), uniform_[i]);
    const bool is_known = std::ranges::find(list.splits, split) != list.splits.end();
    if (is_known || has_empty_blocks(facts(layer), split)) continue;
    list.splits.push_back(split);
    std::erase_if(list.rejected, [&](const Rejection& r) { return r.split == split; });
  }
}

int SearchSpace::add_list(Candidates list) {
  for (std::size_t i = 0; i < lists_.size(); ++i)
    if (lists_[i].splits == list.splits && (list.rejected.empty() || lists_[i].rejected == list.rejected))
      return static_cast<int>(i);
  lists_.push_back(std::move(list));
  return static_cast<int>(lists_.size()) - 1;
}

Candidates SearchSpace::inherited_candidates(int layer, const std::vector<int>& from,
                                             const CandidateOptions& options) const {
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
  return found;
}

std::pair<LayerPrice, Overlap> SearchSpace::price(int layer, LayerSplit split) {
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

std::vector<double> SearchSpace::edge_prices(int from, const Splits& a, int to, int input, const Splits& b) {
  if (!options_.prices.edge) return costs_.between(from, a, to, input, b);
  std::vector<double> prices;
  for (const LayerSplit& x : a)
    for (const LayerSplit& y : b) prices.push_back(options_.prices.edge(from, x, to, y));
  return prices;
}

void SearchSpace::make_problem() {
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

void SearchSpace::add_edge(int from, int to, int input, bool reads_input, std::map<std::vector<Index>, int>& known) {
  const LayerFacts& reader = facts(to);
  std::vector<Index> key{list_of_[static_cast<std::size_t>(from)], list_of_[static_cast<std::size_t>(to)], reads_input,
                         facts(from).properties.reduces_space};
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

std::vector<double> SearchSpace::copies(int from, int to, int input) const {
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

Splits SearchSpace::splits_of(const std::vector<int>& choice) const {
  Splits splits;
  for (int l = 0; l < layers(); ++l) {
    const auto i = static_cast<std::size_t>(l), o = static_cast<std::size_t>(choice[i]);
    splits.push_back(candidates(l)[o]);
    splits.back().overlap = overlaps_[i][o];
  }
  return splits;
}

double SearchSpace::estimate(const std::vector<int>& choice) const {
  double flight = 0, backward = 0;
  for (std::size_t l = 0; l < choice.size(); ++l) {
    const LayerPrice& p = prices_[l][static_cast<std::size_t>(choice[l])];
    flight += p.gradient_flight;
    backward += p.backward;
  }
  return model::price(problem_, choice).seconds + exposed(flight, backward);
}

double SearchSpace::exposed(double flight, double backward) const {
  return std::max(flight - backward, std::min(flight, costs_.bucket_flight()));
}

AssignmentOption SearchSpace::sum_of_uniform(const LayerSplit& split) {
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
        sum += edge_prices(sources[k], {effective_split(facts(sources[k]), split)}, l, static_cast<int>(k), {mine})[0];
  }
  return {sum + exposed(flight, backward), bytes};
}

}  // namespace aloni::model::detail
