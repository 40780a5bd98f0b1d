#pragma once
// The local work of direct all-reduces.
#include <aloni/core/comm/reduction.hpp>

#include <cstddef>
#include <span>

namespace aloni::comm::detail {

/// Replaces every operand by the reduction of all operands, in one pass over memory. `count`: elements per operand. The
/// order of combination, and so the bits, are those of recursive doubling. First come pairs of neighbours until a power
/// of two remains, then a binary tree. Lower positions are first operands.
void combine_all(const ElementOperation& operation, std::span<std::byte* const> operands, std::size_t count);

}  // namespace aloni::comm::detail
