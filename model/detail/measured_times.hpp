#pragma once
// Checks of measured times, for fits. Private to collective_costs.cpp and transfer_costs.cpp.
#include <aloni/model/collective_costs.hpp>

#include <span>

namespace aloni::model::detail {

/// Throws InvalidArgument unless there are times above 0 of ascending sizes.
void check_times(const char* operation, std::span<const CollectiveTime> times);

}  // namespace aloni::model::detail
