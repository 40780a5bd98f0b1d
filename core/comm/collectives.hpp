#pragma once
// How a collective is to be done, for those who want to say it.
#include <aloni/core/comm/schedule/schedule.hpp>
#include <aloni/core/index.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace aloni::comm {

/// See schedule/algorithms.hpp for what each does and costs.
enum class AllReduceAlgorithm : std::uint8_t {
  automatic,
  direct,
  recursive_doubling,
  rabenseifner,
  ring,
  hierarchical
};

/// Those that `automatic` chooses from.
inline constexpr std::array all_reduce_algorithms{AllReduceAlgorithm::direct, AllReduceAlgorithm::recursive_doubling,
                                                  AllReduceAlgorithm::rabenseifner, AllReduceAlgorithm::ring,
                                                  AllReduceAlgorithm::hierarchical};

std::string to_string(AllReduceAlgorithm a);
/// Throws InvalidArgument that lists the names.
AllReduceAlgorithm parse_all_reduce_algorithm(std::string_view name);

/// Equal on all ranks of a call.
struct CollectiveOptions {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic;
  /// The same bits whatever the algorithm, parts, transport, and places of ranks on nodes: elements are combined in pairs of
  /// neighbouring ranks, pairs of pairs and so on. `split(0, key)` gives a communicator whose ranks are in the order of a key.
  /// Ring and hierarchical algorithms have an order of their own and are refused.
  bool reproducible = false;
  /// Wait for others of the kind, of the same type and operation, that are started soon, and travel with them. For small data;
  /// pieces of one array are not even copied for that.
  bool fuse = false;
  /// Operations of a greater one overtake what has begun, at the next part.
  int priority = 0;
  /// Large operations run in parts of so many elements; 0: chosen by size.
  Index part_elements = 0;
};

/// A schedule of the user's, the part of this rank. All ranks must give theirs the same name.
struct UserSchedule {
  std::string name;
  Schedule schedule;
};

}  // namespace aloni::comm
