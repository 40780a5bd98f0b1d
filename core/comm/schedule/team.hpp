#pragma once
// Team: the ranks that take part in a collective, and the position of the calling rank among them. Algorithms work with
// positions 0 … size() - 1; messages go to ranks.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace aloni::comm {

class Team {
 public:
  /// `ranks[i]`: rank at position i. @pre `ranks` contains `rank`, and no rank twice
  Team(int rank, std::vector<int> ranks)
      : ranks_(std::move(ranks)), position_(static_cast<int>(std::ranges::find(ranks_, rank) - ranks_.begin())) {}

  /// Ranks 0 … size - 1.
  static Team all(int rank, int size) {
    std::vector<int> ranks(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) ranks[static_cast<std::size_t>(i)] = i;
    return {rank, std::move(ranks)};
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  int position() const { return position_; }
  /// The rank at a position; positions wrap around.
  int at(int position) const {
    const int p = size();
    return ranks_[static_cast<std::size_t>((position % p + p) % p)];
  }
  const std::vector<int>& ranks() const { return ranks_; }

 private:
  std::vector<int> ranks_;
  int position_;
};

}  // namespace aloni::comm
