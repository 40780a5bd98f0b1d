#include <aloni/halo/placement/detail/quadratic_assignment.hpp>

#include <map>
#include <utility>

namespace aloni::halo::detail {

namespace {

bool symmetric(const SquareMatrix& m) {
  for (int i = 0; i < m.size(); ++i)
    for (int j = 0; j < i; ++j)
      if (m(i, j) != m(j, i)) return false;
  return true;
}

SquareMatrix transpose(const SquareMatrix& m) {
  SquareMatrix t(m.size());
  for (int i = 0; i < m.size(); ++i)
    for (int j = 0; j < m.size(); ++j) t(j, i) = m(i, j);
  return t;
}

constexpr double rounding = 1e-12;  // fraction of the cost; smaller gains are ignored, or a descent might not end

}  // namespace

QuadraticAssignment::QuadraticAssignment(const TrafficMatrix& traffic, const SquareMatrix& distance)
    : distance_(distance), self_(traffic.sends.size(), 0) {
  const std::size_t n = traffic.sends.size();
  std::vector<std::map<int, std::pair<double, double>>> pairs(n);
  for (std::size_t i = 0; i < n; ++i) {
    diagonal_.push_back(distance(static_cast<int>(i), static_cast<int>(i)));
    for (const TrafficMatrix::Share& s : traffic.sends[i]) {
      if (s.to == static_cast<int>(i)) {
        self_[i] = s.bytes;
        continue;
      }
      pairs[i][s.to].first = s.bytes;
      pairs[static_cast<std::size_t>(s.to)][static_cast<int>(i)].second = s.bytes;
    }
  }
  const bool even_distance = symmetric(distance);
  bool even_flow = true;
  for (const auto& list : pairs)
    for (const auto& [to, bytes] : list) even_flow = even_flow && bytes.first == bytes.second;
  one_way_ = even_distance || even_flow;
  if (!even_distance && even_flow)
    for (int i = 0; i < size(); ++i)
      for (int j = 0; j <= i; ++j) distance_(i, j) = distance_(j, i) = distance(i, j) + distance(j, i);
  transposed_ = one_way_ ? distance_ : transpose(distance_);

  first_.push_back(0);
  for (const auto& list : pairs) {
    for (const auto& [to, bytes] : list) {
      index_.push_back(to);
      forth_.push_back(even_distance ? bytes.first + bytes.second : bytes.first);
      back_.push_back(one_way_ ? 0 : bytes.second);
    }
    first_.push_back(index_.size());
  }
  index_.push_back(0);  // gives an empty list at the end a valid address
  forth_.push_back(0);
  back_.push_back(0);
}

double QuadraticAssignment::share(std::size_t i, const std::vector<int>& rank_of) const {
  const Neighbours near = neighbours(i);
  const int a = rank_of[i];
  double sum = 0;
  for (std::size_t k = 0; k < near.count; ++k) {
    const int b = rank_of[static_cast<std::size_t>(near.index[k])];
    sum += near.forth[k] * d(a, b);
    if (!one_way_) sum += near.back[k] * d(b, a);
  }
  return sum + self_[i] * diagonal_[static_cast<std::size_t>(a)];
}

double QuadraticAssignment::cost(const std::vector<int>& rank_of) const {
  double pairs = 0, self = 0;
  for (std::size_t i = 0; i < rank_of.size(); ++i) {
    const double own = self_[i] * diagonal_[static_cast<std::size_t>(rank_of[i])];
    self += own;
    pairs += share(i, rank_of) - own;
  }
  return pairs / 2 + self;
}

void QuadraticAssignment::descend(std::vector<int>& rank_of, std::int64_t& work, const DescentOptions& options) const {
  const std::size_t n = self_.size();
  const double least_gain = rounding * cost(rank_of);
  std::vector<double> shares(n);  // share(i) of all i
  for (std::size_t i = 0; i < n; ++i) shares[i] = share(i, rank_of);
  std::vector<double> at(n);  // for each rank the share of i on this rank, with all others unmoved
  std::vector<double> to(n), from(n), gain(n);

  // The subdomains whose swaps may lower the cost. At first all, or the moved ones and their neighbours. Later each
  // subdomain that moves, and its neighbours. The gain of swapping i and j depends only on i, j and their neighbours,
  // so no swap is missed.
  std::vector<char> open(n, options.moved.empty());
  const auto reopen = [&](std::size_t moved) {
    const Neighbours around = neighbours(moved);
    open[moved] = 1;
    for (std::size_t k = 0; k < around.count; ++k) open[static_cast<std::size_t>(around.index[k])] = 1;
  };
  for (const std::size_t moved : options.moved) reopen(moved);
  work -= static_cast<std::int64_t>(2 * index_.size());
  for (std::size_t closed = 0, i = 0; closed < n && work >= 0; i = (i + 1) % n) {
    if (!open[i]) {
      ++closed;
      continue;
    }
    closed = 0;
    open[i] = 0;
    const Neighbours near = neighbours(i);
    const int a = rank_of[i];
    work -= static_cast<std::int64_t>(index_.size() + n * (near.count + 1));

    for (std::size_t r = 0; r < n; ++r) at[r] = self_[i] * diagonal_[r];
    for (std::size_t k = 0; k < near.count; ++k) {
      const int b = rank_of[static_cast<std::size_t>(near.index[k])];
      const double forth = near.forth[k], back = near.back[k];
      const auto to_b = transposed_.row(b), from_b = distance_.row(b);
      for (std::size_t r = 0; r < n; ++r) at[r] += forth * to_b[r];
      if (!one_way_)
        for (std::size_t r = 0; r < n; ++r) at[r] += back * from_b[r];
    }
    for (std::size_t j = 0; j < n; ++j) {
      to[j] = d(a, rank_of[j]);
      from[j] = transposed_(a, rank_of[j]);
    }
    for (std::size_t j = 0; j < n; ++j) {
      const Neighbours other = neighbours(j);
      double there = self_[j] * diagonal_[static_cast<std::size_t>(a)];
      for (std::size_t k = 0; k < other.count; ++k)
        there += other.forth[k] * to[static_cast<std::size_t>(other.index[k])];
      if (!one_way_)
        for (std::size_t k = 0; k < other.count; ++k)
          there += other.back[k] * from[static_cast<std::size_t>(other.index[k])];
      gain[j] = shares[i] + shares[j] - at[static_cast<std::size_t>(rank_of[j])] - there;
    }
    // So far each subdomain was moved as if the other stayed, and the traffic between both was counted twice.
    for (std::size_t k = 0; k < near.count; ++k) {
      const auto j = static_cast<std::size_t>(near.index[k]);
      const int b = rank_of[j];
      const double both = near.forth[k] + near.back[k];
      gain[j] += both * (d(a, a) + d(b, b) - d(a, b) - d(b, a));
    }
    std::size_t best = i;
    gain[i] = least_gain;
    for (std::size_t j = 0; j < n; ++j)
      if (gain[j] > gain[best] && (options.kind.empty() || options.kind[static_cast<std::size_t>(rank_of[j])] ==
                                                               options.kind[static_cast<std::size_t>(a)]))
        best = j;
    if (best == i) continue;

    std::swap(rank_of[i], rank_of[best]);
    for (const std::size_t moved : {i, best}) {
      const Neighbours around = neighbours(moved);
      shares[moved] = share(moved, rank_of);
      for (std::size_t k = 0; k < around.count; ++k) {
        const auto j = static_cast<std::size_t>(around.index[k]);
        shares[j] = share(j, rank_of);
      }
      reopen(moved);
    }
  }
}

void QuadraticAssignment::solve_exactly(std::vector<int>& rank_of) const {
  const int n = size();
  SquareMatrix forth(n), back(n);
  for (int i = 0; i < n; ++i) {
    const Neighbours near = neighbours(static_cast<std::size_t>(i));
    for (std::size_t k = 0; k < near.count; ++k) {
      forth(i, near.index[k]) = near.forth[k];
      back(i, near.index[k]) = near.back[k];
    }
  }
  double best = cost(rank_of);
  const double least_gain = rounding * best;
  std::vector<int> order(static_cast<std::size_t>(n));
  std::vector<char> taken(static_cast<std::size_t>(n), 0);
  const auto place = [&](const auto& self, int i, double so_far) -> void {
    if (so_far >= best - least_gain) return;  // further costs are not negative
    if (i == n) {
      best = so_far;
      rank_of = order;
      return;
    }
    for (int a = 0; a < n; ++a) {
      if (taken[static_cast<std::size_t>(a)]) continue;
      double added = self_[static_cast<std::size_t>(i)] * diagonal_[static_cast<std::size_t>(a)];
      for (int j = 0; j < i; ++j) {
        const int b = order[static_cast<std::size_t>(j)];
        added += forth(i, j) * d(a, b) + back(i, j) * d(b, a);
      }
      taken[static_cast<std::size_t>(a)] = 1;
      order[static_cast<std::size_t>(i)] = a;
      self(self, i + 1, so_far + added);
      taken[static_cast<std::size_t>(a)] = 0;
    }
  };
  place(place, 0, 0);
}

}  // namespace aloni::halo::detail
