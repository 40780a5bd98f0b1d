#pragma once
// The schedules of a collective on all its ranks, as the engine runs them: for costs, and for tests of single methods.
//
//   const CollectivePlan plan{.operation = OperationKind::all_gather, .method = CollectiveMethod::ring, .count = 4096};
//   const CollectiveSchedules all = collective_schedules({{0, 1}, {2, 3}}, true, plan);   // two nodes of two ranks
//   all.last[2].messages_sent();                                                          // of rank 2
//
// Use all_reduce_traffic() instead to count the messages of an all-reduce on thousands of ranks. Pure.
#include <aloni/core/comm/collectives.hpp>
#include <aloni/core/comm/message.hpp>
#include <aloni/core/comm/schedule/schedule.hpp>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace aloni::comm {

/// The algorithms of all collectives (schedule/algorithms.hpp). Those of an all-reduce have the names of
/// AllReduceAlgorithm.
enum class CollectiveMethod : std::uint8_t {
  direct,
  recursive_doubling,
  rabenseifner,
  ring,
  hierarchical,
  bruck,
  pairwise,
  binomial,
  chain,
  dissemination
};
std::string_view name(CollectiveMethod method);

/// A method of a collective that moves blocks. A reduce-scatter is a ring, or an all-reduce of which each rank keeps
/// its block.
struct CollectiveVariant {
  OperationKind operation{};
  CollectiveMethod method{};

  friend bool operator==(const CollectiveVariant&, const CollectiveVariant&) = default;
};
inline constexpr std::array collective_variants{
    CollectiveVariant{OperationKind::all_reduce, CollectiveMethod::direct},
    CollectiveVariant{OperationKind::all_reduce, CollectiveMethod::recursive_doubling},
    CollectiveVariant{OperationKind::all_reduce, CollectiveMethod::rabenseifner},
    CollectiveVariant{OperationKind::all_reduce, CollectiveMethod::ring},
    CollectiveVariant{OperationKind::all_reduce, CollectiveMethod::hierarchical},
    CollectiveVariant{OperationKind::reduce_scatter, CollectiveMethod::ring},
    CollectiveVariant{OperationKind::reduce_scatter, CollectiveMethod::direct},
    CollectiveVariant{OperationKind::reduce_scatter, CollectiveMethod::recursive_doubling},
    CollectiveVariant{OperationKind::all_gather, CollectiveMethod::ring},
    CollectiveVariant{OperationKind::all_gather, CollectiveMethod::bruck},
    CollectiveVariant{OperationKind::all_to_all, CollectiveMethod::pairwise},
    CollectiveVariant{OperationKind::all_to_all, CollectiveMethod::bruck}};

/// Whether collective_variants has this one.
bool is_variant(const CollectiveVariant& variant);

/// The all-reduce whose schedules these are. @pre `method` is one of an all-reduce
AllReduceAlgorithm all_reduce_algorithm(CollectiveMethod method);

struct CollectivePlan {
  OperationKind operation = OperationKind::all_reduce;
  CollectiveMethod method = CollectiveMethod::ring;
  Index count = 0;  ///< elements of the whole operation, as in operations.hpp
  int element_bytes = 4;
  bool shared_data = false;  ///< the data of all ranks lie in Communicator::shared_memory()
  int root = 0;              ///< of a broadcast
  Index part_elements = 0;   ///< as CollectiveOptions::part_elements
};

struct CollectiveSchedules {
  std::vector<Schedule> whole = {}, last = {};  ///< by rank: of each part but the last, and of the last part
  std::uint32_t parts = 1;
  std::uint32_t parts_at_once = 1;  ///< a rank begins a part while this number less one have not ended
};

/// `nodes`: the ranks of each node, ascending; ranks are numbered from 0. `shared_memory`: whether the ranks of a node
/// reach each other's memory. With part_elements = 0 the parts are those without a tuning.
/// @pre count ≥ 0, element_bytes ≥ 1, part_elements ≥ 0; `operation` is a collective and `method` one of its methods
/// Throws InvalidArgument for other arguments and for counts that the method cannot divide among the ranks. Throws
/// Unsupported for nodes on which the method cannot run.
CollectiveSchedules collective_schedules(const std::vector<std::vector<int>>& nodes, bool shared_memory,
                                         const CollectivePlan& plan);

}  // namespace aloni::comm
