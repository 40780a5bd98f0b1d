#include <aloni/model/assignment.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace aloni::model {

namespace {

using Costs = std::vector<double>;

/// What a sum counts: seconds · Weights::seconds + bytes · Weights::bytes.
struct Weights {
  double seconds = 1, bytes = 0;
  double operator()(double s, double b) const { return seconds * s + bytes * b; }
};

/// A function of the options of some layers; the option of the last layer of `scope` varies fastest.
struct Factor {
  std::vector<int> scope;
  Costs table;
};

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

/// The layers in the order of their elimination, and the neighbours of each at that time.
struct EliminationOrder {
  std::vector<int> layers;
  std::vector<std::vector<int>> neighbours;  ///< of each layer, ascending; all are eliminated later
};

/// A problem in a form that depends on the options of `members` only: the options of all other layers are fixed.
class Elimination {
 public:
  Elimination(const AssignmentProblem& problem, std::vector<int> members)
      : problem_(problem), members_(std::move(members)), edges_of_(problem.layers.size()) {
    is_member_.assign(problem.layers.size(), false);
    for (const int m : members_) is_member_[at(m)] = true;
    for (std::size_t e = 0; e < problem.edges.size(); ++e)
      for (const int end : {problem.edges[e].from, problem.edges[e].to})
        if (is_member_[at(end)]) edges_of_[at(end)].push_back(static_cast<int>(e));
  }

  /// Whether no table has more than `largest` elements.
  bool find_order(std::size_t largest) {
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
    order_.neighbours.assign(problem_.layers.size(), {});
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
      order_.layers.push_back(layer);
      order_.neighbours[at(layer)] = around;
    }
    return true;
  }

  /// Computes all tables. `options`: of layers that are no members. Returns the least sum over all terms that contain
  /// a member.
  double run(const Weights& weights, const std::vector<int>& options) {
    factors_.assign(problem_.layers.size(), {});
    results_.assign(problem_.layers.size(), {});
    std::vector<std::size_t> turn(problem_.layers.size(), 0);
    for (std::size_t i = 0; i < order_.layers.size(); ++i) turn[at(order_.layers[i])] = i;
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
    for (const int layer : order_.layers) {
      Costs result = eliminate(layer);
      const std::vector<int>& around = order_.neighbours[at(layer)];
      if (around.empty()) {
        least += result[0];
      } else {
        add(first_of(around), {around, result});
      }
      results_[at(layer)] = std::move(result);
    }
    return least;
  }

  /// The options with the least sum, written to those of the members. After run().
  void choose(std::vector<int>& options) const {
    Costs costs;
    for (auto layer = order_.layers.rbegin(); layer != order_.layers.rend(); ++layer) {
      costs_of(*layer, options, costs);
      options[at(*layer)] = static_cast<int>(std::ranges::min_element(costs) - costs.begin());
    }
  }

  const std::vector<int>& order() const { return order_.layers; }
  const std::vector<int>& members() const { return members_; }

  /// For each option of a layer: the least sum with it, minus the least sum without it. The options of all layers that
  /// are eliminated later are given. All ≥ 0, but for rounding errors.
  void regrets(int layer, const std::vector<int>& options, Costs& regrets) const {
    costs_of(layer, options, regrets);
    const std::vector<int>& around = order_.neighbours[at(layer)];
    std::size_t offset = 0;
    for (const int n : around) offset = offset * problem_.layers[at(n)].size() + at(options[at(n)]);
    const double least = results_[at(layer)][offset];
    for (double& r : regrets) r -= least;
  }

 private:
  int count(int layer) const { return static_cast<int>(problem_.layers[at(layer)].size()); }

  /// The costs of a layer's options, with those of the edges to layers that are no members.
  Costs own_costs(int layer, const Weights& weights, const std::vector<int>& options) const {
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

  static Costs edge_costs(const AssignmentCosts& costs, const Weights& weights) {
    Costs table(costs.seconds.size(), 0.0);
    for (std::size_t i = 0; i < table.size(); ++i)
      table[i] = weights(costs.seconds[i], costs.bytes.empty() ? 0 : costs.bytes[i]);
    return table;
  }

  /// Adds a factor to a layer, with that layer first in its scope and the others ascending.
  void add(int layer, Factor factor) {
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
  std::vector<std::size_t> strides_in(const Factor& factor, const std::vector<int>& layers) const {
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
  Costs eliminate(int layer) const {
    std::vector<int> outer = order_.neighbours[at(layer)];
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

  void costs_of(int layer, const std::vector<int>& options, Costs& costs) const {
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

  const AssignmentProblem& problem_;
  std::vector<int> members_;
  std::vector<bool> is_member_;
  std::vector<std::vector<int>> edges_of_;
  EliminationOrder order_;
  std::vector<std::vector<Factor>> factors_;  ///< of each layer: with the layer first in their scopes
  std::vector<Costs> results_;                ///< of each layer: the table that replaces it
};

/// A choice with the sum that it was chosen by.
struct Choice {
  std::vector<int> options;
  double sum = 0;
  AssignmentOption price;
};

/// Finds the choice with the least weighted sum.
class Solver {
 public:
  Solver(const AssignmentProblem& problem, const AssignmentLimits& limits) : problem_(problem) {
    std::vector<int> all(problem.layers.size());
    std::iota(all.begin(), all.end(), 0);
    Elimination whole(problem, std::move(all));
    if (whole.find_order(limits.largest_table)) {
      parts_.push_back(std::move(whole));
      return;
    }
    exact_ = false;
    for (std::vector<int>& path : longest_paths()) {
      Elimination part(problem, path);
      // The path may have edges that skip layers. Without them in the tables, its layers are optimised one by one.
      if (part.find_order(limits.largest_table)) {
        parts_.push_back(std::move(part));
        continue;
      }
      for (const int layer : path) {
        parts_.emplace_back(problem, std::vector<int>{layer});
        parts_.back().find_order(std::numeric_limits<std::size_t>::max());
      }
    }
  }

  bool exact() const { return exact_; }
  /// The elimination of all layers. @pre exact()
  Elimination& elimination() { return parts_.front(); }

  Choice solve(const Weights& weights) {
    Choice choice;
    choice.options.assign(problem_.layers.size(), -1);  // not chosen yet: its edges do not count
    const auto sum_of = [&] {
      choice.price = price(problem_, choice.options);
      choice.sum = weights(choice.price.seconds, choice.price.bytes);
    };
    const auto optimise_all = [&] {
      for (Elimination& part : parts_) {
        part.run(weights, choice.options);
        part.choose(choice.options);
      }
      sum_of();
    };
    optimise_all();
    if (exact_) return choice;
    constexpr int most_sweeps = 8;  // random graphs settle after two or three
    for (int i = 0; i < most_sweeps; ++i) {
      const Choice before = choice;
      optimise_all();
      if (choice.sum >= before.sum) return before;
    }
    return choice;
  }

 private:
  /// The longest path by the least seconds of its layers, then the longest one through the layers that are left, …
  std::vector<std::vector<int>> longest_paths() const {
    const int n = static_cast<int>(problem_.layers.size());
    std::vector<std::vector<int>> inputs(at(n)), paths;
    for (const AssignmentEdge& e : problem_.edges) inputs[at(e.to)].push_back(e.from);
    std::vector<double> own;
    for (const auto& options : problem_.layers)
      own.push_back(std::ranges::min(options, {}, &AssignmentOption::seconds).seconds);
    std::vector<bool> used(at(n), false);
    for (int left = n; left > 0;) {
      // Layers before lengths: a path of free layers must not be shorter than a single costly one by rounding.
      std::vector<std::pair<double, int>> length(at(n), {0, 0});
      std::vector<int> previous(at(n), -1);
      int last = -1;
      for (int l = 0; l < n; ++l) {
        if (used[at(l)]) continue;
        for (const int i : inputs[at(l)]) {
          if (used[at(i)] || (previous[at(l)] >= 0 && length[at(i)] <= length[at(previous[at(l)])])) continue;
          previous[at(l)] = i;
        }
        length[at(l)] = previous[at(l)] >= 0 ? length[at(previous[at(l)])] : std::pair<double, int>{0, 0};
        length[at(l)].first += own[at(l)];
        ++length[at(l)].second;
        if (last < 0 || length[at(l)] > length[at(last)]) last = l;
      }
      std::vector<int> path;
      for (; last >= 0; last = previous[at(last)]) {
        path.push_back(last);
        used[at(last)] = true;
        --left;
      }
      std::ranges::reverse(path);
      paths.push_back(std::move(path));
    }
    return paths;
  }

  const AssignmentProblem& problem_;
  bool exact_ = true;
  std::vector<Elimination> parts_;
};

/// Depth first through the layers, in the reverse order of their elimination. The tables tell for every start of a
/// choice the least sums that it can end with. Both are exact: that of bytes, and that of seconds with a price per byte.
class BranchAndBound {
 public:
  BranchAndBound(const AssignmentProblem& problem, const Elimination& priced, const Elimination& bytes, int most_steps)
      : problem_(problem), priced_(priced), bytes_(bytes), steps_left_(most_steps) {}

  /// Improves `best`, the best choice known. `bound`: of its seconds; `least_bytes`: of all choices. Returns whether
  /// the search was complete.
  bool improve(Choice& best, double bound, double least_bytes) {
    best_ = &best;
    options_.assign(problem_.layers.size(), 0);
    visit(priced_.order().size(), bound, least_bytes);
    return steps_left_ > 0;
  }

 private:
  void visit(std::size_t depth, double bound, double bytes) {
    if (depth == 0) {
      const AssignmentOption found = price(problem_, options_);
      if (found.bytes <= problem_.most_bytes && found.seconds < best_->price.seconds)
        *best_ = {options_, found.seconds, found};
      return;
    }
    const int layer = priced_.order()[depth - 1];
    Costs regrets, more_bytes;
    priced_.regrets(layer, options_, regrets);
    bytes_.regrets(layer, options_, more_bytes);
    std::vector<int> candidates(regrets.size());
    std::iota(candidates.begin(), candidates.end(), 0);
    std::ranges::stable_sort(candidates, {}, [&](int o) { return regrets[at(o)]; });
    for (const int o : candidates) {
      if (steps_left_ <= 0) return;
      constexpr double tolerance = 1e-12;  // rounding errors of sums of hundreds of terms
      if (bound + regrets[at(o)] >= best_->price.seconds * (1 - tolerance)) return;
      if (bytes + more_bytes[at(o)] > problem_.most_bytes * (1 + tolerance)) continue;
      --steps_left_;
      options_[at(layer)] = o;
      visit(depth - 1, bound + regrets[at(o)], bytes + more_bytes[at(o)]);
    }
  }

  const AssignmentProblem& problem_;
  const Elimination &priced_, &bytes_;
  int steps_left_;
  std::vector<int> options_;
  Choice* best_ = nullptr;
};

void check(const AssignmentProblem& problem) {
  const auto refuse = [](const std::string& argument, const std::string& value, const std::string& expectation) {
    throw InvalidArgument("aloni::model::assign", argument, value, expectation);
  };
  const auto check_finite = [&](const std::string& argument, double value) {
    if (!std::isfinite(value)) refuse(argument, std::to_string(value), "a finite number");
  };
  const int n = static_cast<int>(problem.layers.size());
  for (int l = 0; l < n; ++l) {
    const std::string layer = "layer " + std::to_string(l);
    if (problem.layers[at(l)].empty()) refuse(layer, "no options", "at least one");
    for (const AssignmentOption& o : problem.layers[at(l)]) {
      check_finite(layer + ": seconds", o.seconds);
      check_finite(layer + ": bytes", o.bytes);
    }
  }
  for (const AssignmentCosts& costs : problem.costs) {
    for (const double s : costs.seconds) check_finite("costs of an edge: seconds", s);
    for (const double b : costs.bytes) check_finite("costs of an edge: bytes", b);
  }
  for (const AssignmentEdge& e : problem.edges) {
    const std::string edge = "edge from " + std::to_string(e.from) + " to " + std::to_string(e.to);
    if (e.from < 0 || e.to >= n || e.from >= e.to) refuse(edge, "no such edge", "an edge to a later layer");
    if (e.costs < 0 || e.costs >= static_cast<int>(problem.costs.size()))
      refuse(edge, "costs " + std::to_string(e.costs), "a position in costs");
    const AssignmentCosts& costs = problem.costs[at(e.costs)];
    const std::size_t size = problem.layers[at(e.from)].size() * problem.layers[at(e.to)].size();
    if (costs.seconds.size() != size || (!costs.bytes.empty() && costs.bytes.size() != size))
      refuse(edge, std::to_string(costs.seconds.size()) + " costs", std::to_string(size) + ", one for each pair");
  }
}

Assignment result_of(const Choice& choice, bool feasible, bool exact, double bound) {
  return {feasible, choice.options, choice.price.seconds, choice.price.bytes, exact, bound};
}

/// The best choice within the limit. `fast` exceeds it, `small` does not.
Assignment choose_within_limit(const AssignmentProblem& problem, const AssignmentLimits& limits, Solver& solver,
                               Choice fast, Choice small) {
  Choice best = small;
  double bound = fast.price.seconds, best_price_of_byte = 0;
  constexpr int most_prices = 30;
  for (int i = 0; i < most_prices; ++i) {
    const double more_seconds = small.price.seconds - fast.price.seconds;
    const double price_of_byte = more_seconds / (fast.price.bytes - small.price.bytes);
    if (!(price_of_byte > 0)) break;  // the small one is as fast
    const Choice next = solver.solve({1, price_of_byte});
    const double next_bound = next.sum - price_of_byte * problem.most_bytes;
    if (next_bound > bound) {
      bound = next_bound;
      best_price_of_byte = price_of_byte;
    }
    const bool fits = next.price.bytes <= problem.most_bytes;
    if (fits && next.price.seconds < best.price.seconds) best = next;
    const double on_line = small.price.seconds + price_of_byte * small.price.bytes;
    if (next.sum >= on_line * (1 - 1e-12)) break;  // no choice lies below the line between both
    (fits ? small : fast) = next;
  }
  if (!solver.exact()) return result_of(best, true, false, 0);
  bound = std::min(bound, best.price.seconds);
  constexpr double tolerance = 1e-12;
  if (bound >= best.price.seconds * (1 - tolerance)) return result_of(best, true, true, best.price.seconds);

  Elimination bytes = solver.elimination();
  const double least_bytes = bytes.run({0, 1}, best.options);
  solver.elimination().run({1, best_price_of_byte}, best.options);
  const bool complete =
      BranchAndBound(problem, solver.elimination(), bytes, limits.most_steps).improve(best, bound, least_bytes);
  return result_of(best, true, complete, complete ? best.price.seconds : bound);
}

}  // namespace

AssignmentOption price(const AssignmentProblem& problem, const std::vector<int>& options) {
  AssignmentOption sum;
  for (std::size_t l = 0; l < problem.layers.size(); ++l) {
    const AssignmentOption& o = problem.layers[l][at(options[l])];
    sum.seconds += o.seconds;
    sum.bytes += o.bytes;
  }
  for (const AssignmentEdge& e : problem.edges) {
    const AssignmentCosts& costs = problem.costs[at(e.costs)];
    const std::size_t i = at(options[at(e.from)]) * problem.layers[at(e.to)].size() + at(options[at(e.to)]);
    sum.seconds += costs.seconds[i];
    if (!costs.bytes.empty()) sum.bytes += costs.bytes[i];
  }
  return sum;
}

Assignment assign(const AssignmentProblem& problem, const AssignmentLimits& limits) {
  check(problem);
  Solver solver(problem, limits);
  const Choice fast = solver.solve({1, 0});
  if (fast.price.bytes <= problem.most_bytes)
    return result_of(fast, true, solver.exact(), solver.exact() ? fast.price.seconds : 0);
  const Choice small = solver.solve({0, 1});
  if (small.price.bytes > problem.most_bytes) return result_of(small, false, solver.exact(), 0);
  return choose_within_limit(problem, limits, solver, fast, small);
}

}  // namespace aloni::model
