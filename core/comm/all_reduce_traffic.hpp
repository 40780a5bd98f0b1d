#pragma once
// The messages of an all-reduce, by arithmetic alone: for plans of machines that are not there. The algorithm and the
// parts are those that the engine chooses for AllReduceAlgorithm::automatic.
//
//   const auto traffic = all_reduce_traffic({{0, 1}, {2, 3}}, true, 0, 1'000'000, 4);   // two nodes of two ranks
//   traffic.elements_sent * 4;                                                          // bytes that rank 0 sends
//
// Pure.
#include <aloni/core/comm/collectives.hpp>

#include <aloni/core/comm/tuning.hpp>

#include <memory>
#include <optional>
#include <vector>

namespace aloni::comm {

namespace detail {
class Plans;
}

/// How an all-reduce runs: the facts that determine the schedules of all its ranks.
struct AllReducePlan {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic;  ///< automatic: there is nothing to reduce
  Index part_elements = 0;  ///< of one part of a large all-reduce, as CollectiveOptions::part_elements

  friend bool operator==(const AllReducePlan&, const AllReducePlan&) = default;
};

/// Chooses as the engine does for AllReduceAlgorithm::automatic. `nodes`, `shared_memory`: as in all_reduce_traffic().
/// `tuning`: counts if it is of as many ranks.
class AllReduceChooser {
 public:
  AllReduceChooser(const std::vector<std::vector<int>>& nodes, bool shared_memory,
                   const std::optional<Tuning>& tuning = std::nullopt);

  /// @pre count ≥ 0, element_bytes ≥ 1. Throws InvalidArgument.
  AllReducePlan operator()(Index count, int element_bytes) const;

 private:
  std::shared_ptr<const detail::Plans> plans_;
};

/// The traffic of one rank. Where ranks share memory and combine values in place (AllReduceAlgorithm::direct), messages
/// are empty. Then elements_sent are the elements that other ranks read from this rank, and the results that it writes
/// into their memory.
struct AllReduceTraffic {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic;
  Index messages_sent = 0, messages_received = 0;
  Index elements_sent = 0, elements_received = 0;
  Index elements_combined = 0;  ///< additions on this rank

  friend bool operator==(const AllReduceTraffic&, const AllReduceTraffic&) = default;
};

/// The traffic of the rank at `position` among the members, which are numbered from 0. `nodes`: the positions of the
/// members on each node, ascending. `shared_memory`: whether the ranks of a node reach each other's memory.
/// @pre every position is on one node; `position` is one of them; count ≥ 0, element_bytes ≥ 1
/// Throws InvalidArgument.
AllReduceTraffic all_reduce_traffic(const std::vector<std::vector<int>>& nodes, bool shared_memory, int position,
                                    Index count, int element_bytes);

/// The same for a given plan.
AllReduceTraffic all_reduce_traffic(const std::vector<std::vector<int>>& nodes, int position, Index count,
                                    int element_bytes, const AllReducePlan& plan);

/// The traffic of all positions, in the order of the positions. @pre as above
std::vector<AllReduceTraffic> all_reduce_traffic(const std::vector<std::vector<int>>& nodes, bool shared_memory,
                                                 Index count, int element_bytes,
                                                 const std::optional<Tuning>& tuning = std::nullopt);

}  // namespace aloni::comm
