#pragma once
// The quadratic assignment problem behind placement: n subdomains on n ranks, bijectively, so that the sum of
// traffic(i, j) * distance(rank of i, rank of j) over all i, j is least.
#include <aloni/halo/placement/square_matrix.hpp>
#include <aloni/halo/placement/traffic_matrix.hpp>

#include <cstdint>
#include <vector>

namespace aloni::halo::detail {

struct DescentOptions {
  std::vector<int> kind = {};           ///< of each rank: only ranks of equal kind are swapped; empty: any
  std::vector<std::size_t> moved = {};  ///< the subdomains moved since the last descent from there; empty: all
};

class QuadraticAssignment {
 public:
  /// @pre of the same size
  QuadraticAssignment(const TrafficMatrix& traffic, const SquareMatrix& distance);

  int size() const { return static_cast<int>(self_.size()); }
  double cost(const std::vector<int>& rank_of) const;

  /// CRAFT (Buffa, Armour and Vollmann 1962, as in the paper): swaps two subdomains as long as that lowers the cost. Row by row: the best swap of one subdomain with
  /// any other is made at once, which needs a sweep where the best of all swaps needs one per swap. Ends where no swap of two lowers
  /// the cost, or where `work`, counted in entries of flows that are looked at, is used up (then it is negative).
  void descend(std::vector<int>& rank_of, std::int64_t& work, const DescentOptions& options = {}) const;

  /// The best of all n! orders, by depth-first search that leaves out what can't be below the cost of the given one. For n ≤ 10 or so.
  void solve_exactly(std::vector<int>& rank_of) const;

 private:
  // The cost of a pair is forth * d(rank of i, rank of j) + back * d(rank of j, rank of i). Where flows or distances are symmetric,
  // which they mostly are, `back` is left out, and all sums take half the time.
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
  /// What subdomain i costs on its rank, and with all its neighbours on theirs.
  double share(std::size_t i, const std::vector<int>& rank_of) const;

  bool one_way_ = false;
  SquareMatrix distance_, transposed_;
  std::vector<double> diagonal_;    ///< of the distances, as given
  std::vector<double> self_;        ///< what a subdomain sends itself
  std::vector<std::size_t> first_;  ///< of each subdomain's neighbours in the lists below
  std::vector<int> index_;
  std::vector<double> forth_, back_;
};

}  // namespace aloni::halo::detail
