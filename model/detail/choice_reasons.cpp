#include <aloni/model/detail/choice_reasons.hpp>

#include <aloni/model/quantity_text.hpp>

#include <algorithm>

namespace aloni::model::detail {

using nn::LayerSplit;
using nn::Overlap;

namespace {

/// Positions of the chosen splits among the candidates; -1 for splits of a uniform strategy that are none.
std::vector<int> positions(const SearchSpace& space, const Splits& splits) {
  std::vector<int> all;
  for (int l = 0; l < space.layers(); ++l) {
    LayerSplit split = splits[static_cast<std::size_t>(l)];
    split.overlap = Overlap::interior_first;
    const auto found = std::ranges::find(space.candidates(l), split);
    all.push_back(found == space.candidates(l).end() ? -1 : static_cast<int>(found - space.candidates(l).begin()));
  }
  return all;
}

}  // namespace

std::vector<LayerChoice> explain_layers(SearchSpace& space, const Splits& splits) {
  std::vector<LayerChoice> layers;
  const AssignmentProblem& problem = space.problem();
  const std::vector<int> chosen = positions(space, splits);
  std::vector<std::vector<std::size_t>> edges(static_cast<std::size_t>(space.layers()));
  for (std::size_t e = 0; e < problem.edges.size(); ++e)
    for (const int end : {problem.edges[e].from, problem.edges[e].to})
      edges[static_cast<std::size_t>(end)].push_back(e);
  for (int l = 0; l < space.layers(); ++l) {
    const auto i = static_cast<std::size_t>(l);
    LayerChoice& layer = layers.emplace_back();
    layer.split = splits[i];
    layer.candidates = space.list_of(l);
    layer.own_candidates = space.has_own_list(l);
    const LayerPrice own = space.price(l, effective_split(space.facts(l), layer.split)).first;
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
        const AssignmentEdge& edge = problem.edges[e];
        const bool leads_here = edge.to == l;
        const int other = chosen[static_cast<std::size_t>(leads_here ? edge.from : edge.to)];
        if (other < 0 || (inputs_only && !leads_here)) continue;
        const std::size_t columns = problem.layers[static_cast<std::size_t>(edge.to)].size();
        const auto row = static_cast<std::size_t>(leads_here ? other : o);
        sum += problem.costs[static_cast<std::size_t>(edge.costs)]
                   .seconds[row * columns + static_cast<std::size_t>(leads_here ? o : other)];
      }
      return sum;
    };
    layer.seconds += moves(chosen[i], true);
    const double own_moves = moves(chosen[i], false);
    double more_here = 0, more_moved = 0;
    for (int o = 0; o < static_cast<int>(space.prices(l).size()); ++o) {
      if (o == chosen[i]) continue;
      const double here = space.prices(l)[static_cast<std::size_t>(o)].seconds - own.seconds;
      const double moved = moves(o, false) - own_moves;
      if (layer.runner_up && here + moved >= layer.runner_up_seconds) continue;
      layer.runner_up = space.candidates(l)[static_cast<std::size_t>(o)];
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
  return layers;
}

}  // namespace aloni::model::detail
