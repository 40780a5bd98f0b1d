#include <aloni/model/detail/elimination.hpp>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace aloni::model::detail {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Visits the elements of tables with these extents, the last dimension fastest. `strides[t]`: of table t in each
/// dimension. Calls f(offsets).
template <class F>
void visit(const std::vector<int>& extents, const std::vector<std::vector<std::size_t>>& strides, const F& f) {
  std::vector<int> position(extents.size(), 0);
  std::vector<std::size_t> offsets(strides.size(), 0);
  for (;;) {
    f(offsets);
    std::size_t d = extents.size();
    for (;;) {
      if (d == 0) return;
      --d;
      if (++position[d] < extents[d]) break;
      for (std::size_t t = 0; t < strides.size(); ++t) offsets[t] -= strides[t][d] * at(extents[d] - 1);
      position[d] = 0;
    }
    for (std::size_t t = 0; t < strides.size(); ++t) offsets[t] += strides[t][d];
  }
}

Elimination::Costs edge_costs(const AssignmentCosts& costs, const Weights& weights) {
  Elimination::Costs table(costs.seconds.size(), 0.0);
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = weights(costs.seconds[i], costs.bytes.empty() ? 0 : costs.bytes[i]);
  return table;
}

}  // namespace

Elimination::Elimination(const AssignmentProblem& problem, std::vector<int> members)
    : problem_(problem), members_(std::move(members)), edges_of_(problem.layers.size()) {
  is_member_.assign(problem.layers.size(), false);
  for (const int m : members_) is_member_[at(m)] = true;
  for (std::size_t e = 0; e < problem.edges.size(); ++e)
    for (const int end : {problem.edges[e].from, problem.edges[e].to})
      if (is_member_[at(end)]) edges_of_[at(end)].push_back(static_cast<int>(e));
}

bool Elimination::find_order(std::size_t largest) {
  std::vector<std::set<int>> adjacent(problem_.layers.size());
  for (const int m : members_) {
    for (const int e : edges_of_[at(m)]) {
      const AssignmentEdge& edge = problem_.edges[at(e)];
      const int other = edge.from == m ? edge.to : edge.from;
      if (is_member_[at(other)]) adjacent[at(m)].insert(other);
    }
  }
  const auto size_of = [&](int m) {
    double size = static_cast<double>(problem_.layers[at(m)].size());
    for (const int n : adjacent[at(m)]) size *= static_cast<double>(problem_.layers[at(n)].size());
    return size;
  };
  std::set<std::pair<double, int>> queue;
  for (const int m : members_) queue.insert({size_of(m), m});
  neighbours_.assign(problem_.layers.size(), {});
  while (!queue.empty()) {
    const auto [size, layer] = *queue.begin();
    if (size > static_cast<double>(largest)) return false;
    queue.erase(queue.begin());
    const std::vector<int> around(adjacent[at(layer)].begin(), adjacent[at(layer)].end());
    for (const int n : around) queue.erase({size_of(n), n});
    for (const int n : around) {
      adjacent[at(n)].erase(layer);
      for (const int m : around)
        if (m != n) adjacent[at(n)].insert(m);
    }
    for (const int n : around) queue.insert({size_of(n), n});
    order_.push_back(layer);
    neighbours_[at(layer)] = around;
  }
  return true;
}

double Elimination::run(const Weights& weights, const std::vector<int>& options) {
  factors_.assign(problem_.layers.size(), {});
  results_.assign(problem_.layers.size(), {});
  std::vector<std::size_t> turn(problem_.layers.size(), 0);
  for (std::size_t i = 0; i < order_.size(); ++i) turn[at(order_[i])] = i;
  const auto first_of = [&](const std::vector<int>& scope) {
    return *std::ranges::min_element(scope, {}, [&](int l) { return turn[at(l)]; });
  };
  for (const int m : members_) factors_[at(m)].push_back({{m}, own_costs(m, weights, options)});
  for (const AssignmentEdge& edge : problem_.edges) {
    if (!is_member_[at(edge.from)] || !is_member_[at(edge.to)]) continue;
    const std::vector<int> scope{edge.from, edge.to};
    add(first_of(scope), {scope, edge_costs(problem_.costs[at(edge.costs)], weights)});
  }
  double least = 0;
  for (const int layer : order_) {
    Costs result = eliminate(layer);
    const std::vector<int>& around = neighbours_[at(layer)];
    if (around.empty()) {
      least += result[0];
    } else {
      add(first_of(around), {around, result});
    }
    results_[at(layer)] = std::move(result);
  }
  return least;
}

void Elimination::choose(std::vector<int>& options) const {
  Costs costs;
  for (auto layer = order_.rbegin(); layer != order_.rend(); ++layer) {
    costs_of(*layer, options, costs);
    options[at(*layer)] = static_cast<int>(std::ranges::min_element(costs) - costs.begin());
  }
}

void Elimination::regrets(int layer, const std::vector<int>& options, Costs& regrets) const {
  costs_of(layer, options, regrets);
  const std::vector<int>& around = neighbours_[at(layer)];
  std::size_t offset = 0;
  for (const int n : around) offset = offset * problem_.layers[at(n)].size() + at(options[at(n)]);
  const double least = results_[at(layer)][offset];
  for (double& r : regrets) r -= least;
}

/// The costs of a layer's options, with those of the edges to layers that are no members.
Elimination::Costs Elimination::own_costs(int layer, const Weights& weights, const std::vector<int>& options) const {
  Costs costs;
  for (const AssignmentOption& o : problem_.layers[at(layer)]) costs.push_back(weights(o.seconds, o.bytes));
  for (const int e : edges_of_[at(layer)]) {
    const AssignmentEdge& edge = problem_.edges[at(e)];
    const bool leads_here = edge.to == layer;
    const int other = leads_here ? edge.from : edge.to;
    if (is_member_[at(other)] || options[at(other)] < 0) continue;
    const AssignmentCosts& table = problem_.costs[at(edge.costs)];
    const std::size_t fixed = at(options[at(other)]);
    for (std::size_t o = 0; o < costs.size(); ++o) {
      const std::size_t i = leads_here ? fixed * costs.size() + o : o * at(count(other)) + fixed;
      costs[o] += weights(table.seconds[i], table.bytes.empty() ? 0 : table.bytes[i]);
    }
  }
  return costs;
}

/// Adds a factor to a layer, with that layer first in its scope and the others ascending.
void Elimination::add(int layer, Factor factor) {
  std::vector<int> scope{layer};
  for (const int l : factor.scope)
    if (l != layer) scope.push_back(l);
  std::sort(scope.begin() + 1, scope.end());
  if (scope != factor.scope) {
    std::vector<int> extents;
    std::vector<std::size_t> strides;
    for (const int l : scope) {
      extents.push_back(count(l));
      std::size_t stride = 1;
      for (auto later = factor.scope.rbegin(); *later != l; ++later) stride *= at(count(*later));
      strides.push_back(stride);
    }
    Costs table;
    table.reserve(factor.table.size());
    visit(extents, {strides}, [&](const std::vector<std::size_t>& at0) { table.push_back(factor.table[at0[0]]); });
    factor = {std::move(scope), std::move(table)};
  }
  factors_[at(layer)].push_back(std::move(factor));
}

/// Element strides of the dimensions `layers` in a factor; 0 where it does not depend on a layer.
std::vector<std::size_t> Elimination::strides_in(const Factor& factor, const std::vector<int>& layers) const {
  std::vector<std::size_t> strides(layers.size(), 0);
  std::size_t stride = 1;
  for (auto l = factor.scope.rbegin(); l != factor.scope.rend(); ++l) {
    const auto found = std::ranges::find(layers, *l);
    if (found != layers.end()) strides[static_cast<std::size_t>(found - layers.begin())] = stride;
    stride *= at(count(*l));
  }
  return strides;
}

/// The least sum of the layer's factors over its options, for all options of its neighbours. The inner loop runs
/// over the options of the last neighbour: vector instructions need them side by side in all tables.
Elimination::Costs Elimination::eliminate(int layer) const {
  std::vector<int> outer = neighbours_[at(layer)];
  const bool has_inner = !outer.empty();
  const int inner = has_inner ? outer.back() : -1;
  const std::size_t width = has_inner ? at(count(inner)) : 1;
  if (has_inner) outer.pop_back();
  outer.push_back(layer);
  std::vector<const Factor*> rows, scalars;
  for (const Factor& f : factors_[at(layer)]) (has_inner && f.scope.back() == inner ? rows : scalars).push_back(&f);

  std::vector<int> extents;
  std::vector<std::vector<std::size_t>> strides;
  std::vector<std::size_t> of_result(outer.size(), 0);
  std::size_t size = width;
  for (std::size_t d = outer.size() - 1; d-- > 0;) {
    of_result[d] = size;
    size *= at(count(outer[d]));
  }
  for (const int l : outer) extents.push_back(count(l));
  strides.push_back(of_result);
  for (const Factor* f : scalars) strides.push_back(strides_in(*f, outer));
  for (const Factor* f : rows) strides.push_back(strides_in(*f, outer));

  Costs result(size, std::numeric_limits<double>::infinity()), sum(width);
  visit(extents, strides, [&](const std::vector<std::size_t>& offsets) {
    double scalar = 0;
    for (std::size_t s = 0; s < scalars.size(); ++s) scalar += scalars[s]->table[offsets[1 + s]];
    double* const least = result.data() + offsets[0];
    const auto row = [&](std::size_t r) { return rows[r]->table.data() + offsets[1 + scalars.size() + r]; };
    if (rows.size() == 1) {  // most layers
      const double* const only = row(0);
      for (std::size_t i = 0; i < width; ++i) least[i] = std::min(least[i], scalar + only[i]);
      return;
    }
    std::ranges::fill(sum, scalar);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const double* const next = row(r);
      for (std::size_t i = 0; i < width; ++i) sum[i] += next[i];
    }
    for (std::size_t i = 0; i < width; ++i) least[i] = std::min(least[i], sum[i]);
  });
  return result;
}

void Elimination::costs_of(int layer, const std::vector<int>& options, Costs& costs) const {
  costs.assign(at(count(layer)), 0.0);
  for (const Factor& f : factors_[at(layer)]) {
    std::size_t offset = 0, stride = 1;
    for (std::size_t i = f.scope.size(); i-- > 1;) {
      offset += stride * at(options[at(f.scope[i])]);
      stride *= at(count(f.scope[i]));
    }
    for (std::size_t o = 0; o < costs.size(); ++o) costs[o] += f.table[offset + o * stride];
  }
}

}  // namespace aloni::model::detail
