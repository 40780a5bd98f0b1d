#pragma once
// Algorithms and options of an all-reduce. The operations themselves are in operations.hpp. Pure.
//
//   comm.all_reduce(std::span(values), Reduction::sum, {.algorithm = AllReduceAlgorithm::ring, .priority = 1});
#include <aloni/core/index.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace aloni::comm {

/// schedule/algorithms.hpp has the steps and the cost of each algorithm.
enum class AllReduceAlgorithm : std::uint8_t {
  automatic,
  direct,
  recursive_doubling,
  rabenseifner,
  ring,
  hierarchical
};

/// The algorithms that `automatic` chooses from.
inline constexpr std::array all_reduce_algorithms{AllReduceAlgorithm::direct, AllReduceAlgorithm::recursive_doubling,
                                                  AllReduceAlgorithm::rabenseifner, AllReduceAlgorithm::ring,
                                                  AllReduceAlgorithm::hierarchical};

std::string to_string(AllReduceAlgorithm a);
/// Throws InvalidArgument, which lists the names.
AllReduceAlgorithm parse_all_reduce_algorithm(std::string_view name);

/// Options of an all-reduce. Equal on all ranks.
struct CollectiveOptions {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic;
  /// The result has the same bits for every algorithm, part size, transport and distribution of ranks over nodes.
  /// Neighbouring ranks are combined in pairs, then pairs of pairs, and so on. Communicator::split can reorder ranks.
  /// Unsupported with ring and hierarchical, which combine in another order.
  bool reproducible = false;
  /// Waits up to half a millisecond for more all-reduces of this type and reduction, and runs all of them as one.
  /// For small data. Neighbouring pieces of one array are not copied for it. All ranks start the same fused operations
  /// before they wait for one of them.
  bool fuse = false;
  /// Operations of a greater priority overtake this one at its next part.
  int priority = 0;
  /// Elements of one part of a large all-reduce; 0: chosen by size.
  Index part_elements = 0;
};

}  // namespace aloni::comm
