#pragma once
// How a collective is to be done, for those who want to say it.
#include <aloni/core/index.hpp>

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

std::string to_string(AllReduceAlgorithm a);
/// Throws InvalidArgument that lists the names.
AllReduceAlgorithm parse_all_reduce_algorithm(std::string_view name);

/// Equal on all ranks of a call.
struct CollectiveOptions {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic;
  /// Operations of a greater one overtake what has begun, at the next part.
  int priority = 0;
  /// Large operations run in parts of so many elements; 0: chosen by size.
  Index part_elements = 0;
};

}  // namespace aloni::comm
