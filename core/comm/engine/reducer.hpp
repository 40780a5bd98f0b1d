#pragma once
#include <aloni/core/comm/reduction.hpp>

#include <cstddef>
#include <span>

namespace aloni::comm::detail {

/// Every operand becomes the reduction of all, combined as recursive doubling would: neighbours in pairs until the rest is a power
/// of two, then halves, lower positions first; the same bits as that algorithm. One pass over memory.
void combine_all(const ElementOperation& operation, std::span<std::byte* const> operands, std::size_t count);

}  // namespace aloni::comm::detail
