#include <aloni/halo/placement/detail/lower_bound.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace aloni::halo::detail {

namespace {

constexpr int largest_assignment = 256;

}  // namespace

double linear_assignment(const SquareMatrix& cost) {
  // Rows are added one by one, each by the shortest augmenting path. Index n is a row, or column, outside the matrix.
  const auto n = static_cast<std::size_t>(cost.size());
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> row_price(n + 1, 0), column_price(n + 1, 0);
  std::vector<std::size_t> row_of(n + 1, n), before(n + 1, n);
  for (std::size_t row = 0; row < n; ++row) {
    row_of[n] = row;
    std::size_t column = n;
    std::vector<double> slack(n, infinity);
    std::vector<char> reached(n + 1, 0);
    do {
      reached[column] = 1;
      const std::size_t from = row_of[column];
      std::size_t next = n;
      double step = infinity;
      for (std::size_t c = 0; c < n; ++c) {
        if (reached[c]) continue;
        const double reduced = cost(static_cast<int>(from), static_cast<int>(c)) - row_price[from] - column_price[c];
        if (reduced < slack[c]) {
          slack[c] = reduced;
          before[c] = column;
        }
        if (slack[c] < step) {
          step = slack[c];
          next = c;
        }
      }
      for (std::size_t c = 0; c <= n; ++c) {
        if (reached[c]) {
          row_price[row_of[c]] += step;
          column_price[c] -= step;
        } else if (c < n) {
          slack[c] -= step;
        }
      }
      column = next;
    } while (row_of[column] != n);
    for (; column != n; column = before[column]) row_of[column] = row_of[before[column]];
  }
  double sum = 0;
  for (std::size_t c = 0; c < n; ++c) sum += cost(static_cast<int>(row_of[c]), static_cast<int>(c));
  return sum;
}

double lower_bound(const TrafficMatrix& traffic, const SquareMatrix& distance) {
  const int n = traffic.size();
  std::vector<std::vector<double>> flows;  // for each subdomain the bytes it sends, largest first
  std::vector<double> self;
  std::size_t most = 0;
  for (int i = 0; i < n; ++i) {
    auto& list = flows.emplace_back();
    self.push_back(0);
    for (const TrafficMatrix::Share& s : traffic.sends[static_cast<std::size_t>(i)]) {
      if (s.to == i)
        self.back() = s.bytes;
      else
        list.push_back(s.bytes);
    }
    std::ranges::sort(list, std::greater<>());
    most = std::max(most, list.size());
  }

  SquareMatrix least(n);  // least cost of subdomain i on rank a
  std::vector<double> distances;
  for (int a = 0; a < n; ++a) {
    distances.clear();
    for (int b = 0; b < n; ++b)
      if (b != a) distances.push_back(distance(a, b));
    const auto needed = distances.begin() + static_cast<std::ptrdiff_t>(most);
    std::partial_sort(distances.begin(), needed, distances.end());
    for (int i = 0; i < n; ++i) {
      const auto& list = flows[static_cast<std::size_t>(i)];
      least(i, a) = std::inner_product(list.begin(), list.end(), distances.begin(),
                                       self[static_cast<std::size_t>(i)] * distance(a, a));
    }
  }
  if (n <= largest_assignment) return linear_assignment(least);
  double by_subdomain = 0, by_rank = 0;
  std::vector<double> of_rank(static_cast<std::size_t>(n), std::numeric_limits<double>::infinity());
  for (int i = 0; i < n; ++i) {
    const auto row = least.row(i);
    by_subdomain += *std::ranges::min_element(row);
    for (std::size_t a = 0; a < of_rank.size(); ++a) of_rank[a] = std::min(of_rank[a], row[a]);
  }
  for (const double cheapest : of_rank) by_rank += cheapest;
  return std::max(by_subdomain, by_rank);
}

}  // namespace aloni::halo::detail
