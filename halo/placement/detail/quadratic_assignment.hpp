#pragma once
// The quadratic assignment problem of placement: n subdomains on n ranks, each rank once. Minimised is the sum over all
// i, j of traffic(i, j) * distance(rank of i, rank of j).
#include <aloni/halo/placement/square_matrix.hpp>
#include <aloni/halo/placement/traffic_matrix.hpp>

#include <cstdint>
#include <vector>

namespace aloni::halo::detail {

struct DescentOptions {
  std::vector<int> kind = {};           ///< kind of each rank; only ranks of equal kind are swapped. Empty: all equal
  std::vector<std::size_t> moved = {};  ///< subdomains moved since an order that descend() returned. Empty: all
};

class QuadraticAssignment {
 public:
  /// @pre equal sizes
  QuadraticAssignment(const TrafficMatrix& traffic, const SquareMatrix& distance);

  int size() const { return static_cast<int>(self_.size()); }
  double cost(const std::vector<int>& rank_of) const;

  /// CRAFT (Buffa, Armour and Vollmann 1962, as in the paper): swaps two subdomains as long as a swap lowers the cost.
  /// For one subdomain after another it makes the best swap with any other subdomain at once. To make only the best of
  /// all swaps would need one sweep over all subdomains per swap. Ends if no swap of two lowers the cost, or if `work`
  /// becomes negative; `work` counts the traffic entries read.
  void descend(std::vector<int>& rank_of, std::int64_t& work, const DescentOptions& options = {}) const;

  /// Sets `rank_of` to the best of all n! orders. Depth-first search that skips partial orders which already cost as
  /// much as the best known order; `rank_of` is the first known order. For n up to about 10.
  void solve_exactly(std::vector<int>& rank_of) const;

 private:
  // The cost of a pair is forth * d(rank of i, rank of j) + back * d(rank of j, rank of i). If flows or distances are
  // symmetric, as in most cases, `back` is left out, and all sums take half the time.
  struct Neighbours {
    const int* index;
    const double *forth, *back;
    std::size_t count;
  };
  Neighbours neighbours(std::size_t i) const {
    const std::size_t first = first_[i];
    return {&index_[first], &forth_[first], &back_[first], first_[i + 1] - first};
  }
  double d(int a, int b) const { return distance_(a, b); }
  /// The cost of subdomain i: its traffic with all its neighbours and with itself.
  double share(std::size_t i, const std::vector<int>& rank_of) const;

  bool one_way_ = false;
  SquareMatrix distance_, transposed_;
  std::vector<double> diagonal_;    ///< diagonal of the distances as given
  std::vector<double> self_;        ///< bytes that each subdomain sends to itself
  std::vector<std::size_t> first_;  ///< index of each subdomain's first neighbour in the lists below
  std::vector<int> index_;
  std::vector<double> forth_, back_;
};

}  // namespace aloni::halo::detail
