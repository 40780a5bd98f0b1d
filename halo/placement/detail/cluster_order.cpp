#include <aloni/halo/placement/detail/cluster_order.hpp>

#include <aloni/halo/placement/detail/quadratic_assignment.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>

namespace aloni::halo::detail {

namespace {

using views::Dim;
using views::ProcessGrid;

constexpr double clear_gap = 1.25;  // measured bandwidths of equal links differ by less
constexpr std::int64_t coarse_work = 20'000'000;

/// Subdomains, row-major in a box of the grid. If they fill no box, the shape has another size.
struct Part {
  std::vector<int> subdomains;
  ProcessGrid shape;

  bool is_box() const { return shape.size() == static_cast<int>(subdomains.size()); }
};

class ClusterOrder {
 public:
  ClusterOrder(const TrafficMatrix& traffic, const SquareMatrix& distance)
      : traffic_(traffic),
        distance_(distance),
        exchanged_(traffic.sends.size()),
        part_of_(traffic.sends.size(), -1),
        rank_of_(traffic.sends.size()) {
    for (int i = 0; i < traffic.size(); ++i)
      for (const TrafficMatrix::Share& s : traffic.sends[static_cast<std::size_t>(i)]) {
        exchanged_[static_cast<std::size_t>(i)].push_back(s);
        exchanged_[static_cast<std::size_t>(s.to)].push_back({i, s.bytes});
      }
  }

  std::vector<int> run() {
    Part all{std::vector<int>(traffic_.sends.size()), traffic_.grid};
    std::iota(all.subdomains.begin(), all.subdomains.end(), 0);
    place(all, all.subdomains);
    return rank_of_;
  }

 private:
  void place(const Part& region, const std::vector<int>& ranks) {
    const auto clusters = clusters_of(ranks, distance_);
    if (clusters.size() == 1) {
      for (std::size_t i = 0; i < ranks.size(); ++i)
        rank_of_[static_cast<std::size_t>(region.subdomains[i])] = ranks[i];
      return;
    }
    std::vector<Part> parts = bricks(region, clusters);
    if (parts.empty()) parts = grown(region, clusters);
    const std::vector<int> cluster_of = assign(parts, clusters);
    for (std::size_t p = 0; p < parts.size(); ++p) place(parts[p], clusters[static_cast<std::size_t>(cluster_of[p])]);
  }

  /// Splits the region into one brick per cluster. Empty if no bricks of the clusters' size fit.
  std::vector<Part> bricks(const Part& region, const std::vector<std::vector<int>>& clusters) {
    const auto uneven = [&](const auto& c) { return c.size() != clusters.front().size(); };
    if (!region.is_box() || std::ranges::any_of(clusters, uneven)) return {};
    std::vector<Dim> dims;
    for (const Dim d : views::all_dims)
      if (region.shape[d] > 1) dims.push_back(d);
    std::vector<Part> best;
    double least = std::numeric_limits<double>::infinity();
    for (const ProcessGrid& counts : views::all_grids(static_cast<int>(clusters.size()), dims)) {
      if (std::ranges::any_of(dims, [&](Dim d) { return region.shape[d] % counts[d] != 0; })) continue;
      std::vector<Part> parts(clusters.size());
      for (const Dim d : views::all_dims)
        for (Part& part : parts) part.shape[d] = region.shape[d] / counts[d];
      for (std::size_t i = 0; i < region.subdomains.size(); ++i) {
        auto brick = region.shape.coordinate(static_cast<int>(i));
        for (const Dim d : views::all_dims)
          brick[static_cast<std::size_t>(views::position(d))] /= region.shape[d] / counts[d];
        parts[static_cast<std::size_t>(counts.rank_of(brick))].subdomains.push_back(region.subdomains[i]);
      }
      const double between = bytes_between(parts);
      if (between >= least) continue;
      least = between;
      best = std::move(parts);
    }
    return best;
  }

  /// Splits the region into one part per cluster, part after part. A part starts with the subdomain that exchanges
  /// least with the remaining ones. It then grows by the subdomain that exchanges most with the part; among equals, by
  /// the one that exchanges least with the remaining subdomains.
  std::vector<Part> grown(const Part& region, const std::vector<std::vector<int>>& clusters) {
    std::vector<Part> parts;
    std::map<int, double> left;  // subdomains without a part, and their bytes to other such subdomains
    for (const int i : region.subdomains) left[i] = 0;
    for (auto& [i, bytes] : left)
      for (const TrafficMatrix::Share& s : exchanged_[static_cast<std::size_t>(i)])
        if (left.contains(s.to)) bytes += s.bytes;
    for (const auto& cluster : clusters) {
      Part part;
      std::map<int, double> near;  // subdomains that exchange with this part, and their bytes
      while (part.subdomains.size() < cluster.size()) {
        auto next = left.end();
        for (auto it = left.begin(); it != left.end(); ++it) {
          const auto weight = [&](int i) { return near.contains(i) ? near.at(i) : 0; };
          if (next == left.end() || weight(it->first) > weight(next->first) ||
              (weight(it->first) == weight(next->first) && it->second < next->second))
            next = it;
        }
        const int taken = next->first;
        left.erase(next);
        part.subdomains.push_back(taken);
        for (const TrafficMatrix::Share& s : exchanged_[static_cast<std::size_t>(taken)]) {
          const auto other = left.find(s.to);
          if (other == left.end()) continue;
          other->second -= s.bytes;
          near[s.to] += s.bytes;
        }
      }
      std::ranges::sort(part.subdomains);
      parts.push_back(std::move(part));
    }
    return parts;
  }

  /// The cluster of each part; cluster and part have the same size.
  std::vector<int> assign(const std::vector<Part>& parts, const std::vector<std::vector<int>>& clusters) {
    const int count = static_cast<int>(parts.size());
    std::vector<int> cluster_of(parts.size()), sizes;
    std::iota(cluster_of.begin(), cluster_of.end(), 0);  // sizes match in this order
    SquareMatrix mean(count);
    for (int a = 0; a < count; ++a) {
      const auto& ranks = clusters[static_cast<std::size_t>(a)];
      sizes.push_back(static_cast<int>(ranks.size()));
      for (int b = 0; b < count; ++b) {
        const auto& others = clusters[static_cast<std::size_t>(b)];
        double sum = 0;
        for (const int from : ranks)
          for (const int to : others) sum += distance_(from, to);
        mean(a, b) = sum / static_cast<double>(ranks.size() * others.size());
      }
    }
    mark(parts);
    TrafficMatrix traffic;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      std::map<int, double> bytes;
      for (const int i : parts[p].subdomains)
        for (const TrafficMatrix::Share& s : traffic_.sends[static_cast<std::size_t>(i)])
          if (const int to = part_of_[static_cast<std::size_t>(s.to)]; to >= 0) bytes[to] += s.bytes;
      auto& sends = traffic.sends.emplace_back();
      for (const auto& [to, total] : bytes) sends.push_back({to, total});
    }
    unmark(parts);
    std::int64_t work = coarse_work;
    QuadraticAssignment(traffic, mean).descend(cluster_of, work, {.kind = sizes});
    return cluster_of;
  }

  double bytes_between(const std::vector<Part>& parts) {
    mark(parts);
    double sum = 0;
    for (const Part& part : parts)
      for (const int i : part.subdomains)
        for (const TrafficMatrix::Share& s : traffic_.sends[static_cast<std::size_t>(i)]) {
          const int to = part_of_[static_cast<std::size_t>(s.to)];
          if (to >= 0 && to != part_of_[static_cast<std::size_t>(i)]) sum += s.bytes;
        }
    unmark(parts);
    return sum;
  }

  void mark(const std::vector<Part>& parts) {
    for (std::size_t p = 0; p < parts.size(); ++p)
      for (const int i : parts[p].subdomains) part_of_[static_cast<std::size_t>(i)] = static_cast<int>(p);
  }
  void unmark(const std::vector<Part>& parts) {
    for (const Part& part : parts)
      for (const int i : part.subdomains) part_of_[static_cast<std::size_t>(i)] = -1;
  }

  const TrafficMatrix& traffic_;
  const SquareMatrix& distance_;
  std::vector<std::vector<TrafficMatrix::Share>> exchanged_;  ///< bytes in either direction
  std::vector<int> part_of_;                                  ///< -1: outside the current region
  std::vector<int> rank_of_;
};

}  // namespace

std::vector<std::vector<int>> clusters_of(const std::vector<int>& ranks, const SquareMatrix& distance) {
  // Prim's algorithm; `joined` is in the order in which the tree reaches the ranks.
  struct Edge {
    double length;
    std::size_t from, to;
  };
  const std::size_t n = ranks.size();
  std::vector<Edge> nearest(n, {std::numeric_limits<double>::infinity(), 0, 0}), tree;
  std::vector<char> reached(n, 0);
  for (std::size_t last = 0; tree.size() + 1 < n;) {
    reached[last] = 1;
    std::size_t next = n;
    for (std::size_t i = 0; i < n; ++i) {
      if (reached[i]) continue;
      const double length = distance(ranks[last], ranks[i]) + distance(ranks[i], ranks[last]);
      if (length < nearest[i].length) nearest[i] = {length, last, i};
      if (next == n || nearest[i].length < nearest[next].length) next = i;
    }
    tree.push_back(nearest[next]);
    last = next;
  }

  std::vector<double> lengths;
  for (const Edge& e : tree) lengths.push_back(e.length);
  std::ranges::sort(lengths);
  double longest_inside = std::numeric_limits<double>::infinity();
  for (std::size_t i = lengths.size(); i-- > 1;)
    if (lengths[i] > clear_gap * lengths[i - 1]) {
      longest_inside = lengths[i - 1];
      break;
    }

  // An edge starts at a rank that the tree reached earlier, so that its start already has a cluster.
  std::vector<std::vector<int>> clusters{{ranks.front()}};
  std::vector<std::size_t> cluster_of(n, 0);
  for (const Edge& e : tree) {
    if (e.length > longest_inside) {
      cluster_of[e.to] = clusters.size();
      clusters.push_back({ranks[e.to]});
    } else {
      cluster_of[e.to] = cluster_of[e.from];
      clusters[cluster_of[e.to]].push_back(ranks[e.to]);
    }
  }
  for (auto& c : clusters) std::ranges::sort(c);
  std::ranges::sort(clusters, {}, [](const auto& c) { return c.front(); });
  return clusters;
}

std::vector<int> cluster_order(const TrafficMatrix& traffic, const SquareMatrix& distance) {
  return ClusterOrder(traffic, distance).run();
}

}  // namespace aloni::halo::detail
