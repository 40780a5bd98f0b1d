#include <aloni/halo/placement/placement.hpp>

#include <aloni/core/error.hpp>
#include <aloni/halo/placement/detail/cluster_order.hpp>
#include <aloni/halo/placement/detail/lower_bound.hpp>
#include <aloni/halo/placement/detail/quadratic_assignment.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <utility>

namespace aloni::halo {

namespace {

constexpr int most_exact = 10;

std::string pair_name(const char* matrix, int i, int j) {
  return std::string(matrix) + " from " + std::to_string(i) + " to " + std::to_string(j);
}

void check_entry(const char* operation, const std::string& name, double value) {
  if (!(value >= 0) || std::isinf(value))
    throw InvalidArgument(operation, name, std::to_string(value), "a finite number, 0 or more");
}

void check(const char* operation, const TrafficMatrix& traffic, const SquareMatrix& distance) {
  const int n = traffic.size();
  if (n < 1) throw InvalidArgument(operation, "traffic", "0 subdomains", "at least one subdomain");
  for (int i = 0; i < n; ++i) {
    int last = -1;
    for (const TrafficMatrix::Share& s : traffic.sends[static_cast<std::size_t>(i)]) {
      if (s.to <= last || s.to >= n)
        throw InvalidArgument(operation, "traffic from " + std::to_string(i), "to " + std::to_string(s.to),
                              "ascending subdomains from 0 to " + std::to_string(n - 1));
      check_entry(operation, pair_name("traffic", i, s.to), s.bytes);
      last = s.to;
    }
  }
  if (distance.size() != n)
    throw InvalidArgument(operation, "seconds_per_byte", std::to_string(distance.size()) + " ranks",
                          std::to_string(n) + ", one for each subdomain");
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      if (!(distance(i, j) >= 0) || std::isinf(distance(i, j)))
        check_entry(operation, pair_name("seconds_per_byte", i, j), distance(i, j));
}

std::vector<int> trivial_order(int n) {
  std::vector<int> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

constexpr std::size_t moved_by_a_kick = 4;

/// Permutes the ranks of `count` subdomains drawn at random, and returns these subdomains. Not std::shuffle, because it
/// may differ between standard libraries, and all ranks must find the same order.
std::vector<std::size_t> shuffle(std::vector<int>& order, std::size_t count, std::mt19937_64& random) {
  std::vector<std::size_t> drawn(order.size());
  std::iota(drawn.begin(), drawn.end(), std::size_t{0});
  for (std::size_t i = 0; i < count; ++i) std::swap(drawn[i], drawn[i + random() % (drawn.size() - i)]);
  drawn.resize(count);
  for (std::size_t i = count; i > 1; --i) std::swap(order[drawn[i - 1]], order[drawn[random() % i]]);
  return drawn;
}

}  // namespace

Placement place(const TrafficMatrix& traffic, const SquareMatrix& seconds_per_byte, const PlacementOptions& options) {
  constexpr const char* operation = "aloni::halo::place";
  check(operation, traffic, seconds_per_byte);
  const int n = traffic.size();
  if (options.restarts < 0)
    throw InvalidArgument(operation, "options.restarts", std::to_string(options.restarts), "0 or more");
  if (options.work < 0) throw InvalidArgument(operation, "options.work", std::to_string(options.work), "0 or more");
  if (options.exact_up_to < 0 || options.exact_up_to > most_exact)
    throw InvalidArgument(operation, "options.exact_up_to", std::to_string(options.exact_up_to),
                          "0 to " + std::to_string(most_exact) + " ranks");

  const detail::QuadraticAssignment problem(traffic, seconds_per_byte);
  Placement best;
  best.rank_of = trivial_order(n);
  best.cost = best.trivial_cost = problem.cost(best.rank_of);
  best.lower_bound = detail::lower_bound(traffic, seconds_per_byte);

  std::int64_t work = options.work;
  const auto search_from = [&](std::vector<int> order, const detail::DescentOptions& descent = {}) {
    problem.descend(order, work, descent);
    const double cost = problem.cost(order);
    if (cost < best.cost) {
      best.cost = cost;
      best.rank_of = std::move(order);
    }
  };
  // The best start comes first: with many ranks the work is used up soon. A cost equal to its bound cannot be improved.
  const auto finished = [&] { return work < 0 || best.cost <= best.lower_bound; };
  if (!finished()) search_from(detail::cluster_order(traffic, seconds_per_byte));
  if (!finished()) search_from(trivial_order(n));
  if (n <= options.exact_up_to) {
    problem.solve_exactly(best.rank_of);
    best.cost = best.lower_bound = problem.cost(best.rank_of);
  }
  std::mt19937_64 random(options.seed);
  for (int i = 0; i < options.restarts && !finished(); ++i) {
    // Better orders are similar to good ones: on an 8 × 8 mesh of ranks these small changes find the optimum; 500
    // random orders end 45 % above it.
    for (int kick = 0; kick < n && !finished(); ++kick) {
      std::vector<int> order = best.rank_of;
      auto moved = shuffle(order, std::min(moved_by_a_kick, order.size()), random);
      search_from(std::move(order), {.moved = std::move(moved)});
    }
    std::vector<int> order = trivial_order(n);
    shuffle(order, order.size(), random);
    if (!finished()) search_from(std::move(order));
  }
  best.lower_bound = std::min(best.lower_bound, best.cost);  // rounding: the two are summed in different orders
  return best;
}

double placement_cost(const TrafficMatrix& traffic, const SquareMatrix& seconds_per_byte,
                      const std::vector<int>& rank_of) {
  constexpr const char* operation = "aloni::halo::placement_cost";
  check(operation, traffic, seconds_per_byte);
  if (!std::ranges::is_permutation(rank_of, trivial_order(traffic.size())))
    throw InvalidArgument(operation, "rank_of", std::to_string(rank_of.size()) + " entries",
                          "each of the " + std::to_string(traffic.size()) + " ranks once");
  double cost = 0;
  for (std::size_t i = 0; i < rank_of.size(); ++i)
    for (const TrafficMatrix::Share& s : traffic.sends[i])
      cost += s.bytes * seconds_per_byte(rank_of[i], rank_of[static_cast<std::size_t>(s.to)]);
  return cost;
}

std::string describe(const Placement& placement) {
  const auto number = [](const char* format, double value) {
    char text[64];
    std::snprintf(text, sizeof text, format, value);
    return std::string(text);
  };
  const auto percent = [&](double part, double whole) { return number("%.1f %%", whole > 0 ? 100 * part / whole : 0); };
  const Placement& p = placement;
  std::string text = std::to_string(p.rank_of.size()) + " ranks placed at cost " + number("%.3g s", p.cost) + ", " +
                     percent(p.trivial_cost - p.cost, p.trivial_cost) + " below the trivial order (" +
                     number("%.3g s", p.trivial_cost) + ")";
  if (p.cost <= p.lower_bound) return text + ", the optimum";
  return text + "; no order is below " + number("%.3g s", p.lower_bound);
}

}  // namespace aloni::halo
