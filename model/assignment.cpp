#include <aloni/model/assignment.hpp>

#include <aloni/core/error.hpp>
#include <aloni/model/detail/elimination.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace aloni::model {

namespace {

using detail::Elimination;
using detail::Weights;
using Costs = Elimination::Costs;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

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

/// Depth first through the layers, in the reverse order of their elimination. For each start of a choice the tables
/// tell the least sums that it can end with: of bytes, and of seconds with a price per byte.
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
