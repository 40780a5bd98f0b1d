#pragma once
// The local work of a reduction, with the type and the operation chosen once per call.
#include <aloni/core/comm/reduction.hpp>

#include <cstddef>
#include <span>

namespace aloni::comm::detail {

struct Reducer {
  /// to[i] = first[i] ∘ second[i]; `to` may be either operand.
  using Combine = void (*)(void* to, const void* first, const void* second, std::size_t count);
  /// a[i] = b[i] = a[i] ∘ b[i]
  using CombineBoth = void (*)(void* a, void* b, std::size_t count);

  Combine combine = nullptr;
  CombineBoth combine_both = nullptr;
  std::size_t element_bytes = 1;
};

Reducer reducer_for(ElementType type, Reduction reduction);

/// Every operand becomes the reduction of all, combined as recursive doubling would: neighbours in pairs until the rest is a power
/// of two, then halves, lower positions first; the same bits as that algorithm. One pass over memory.
void combine_all(const Reducer& reducer, std::span<std::byte* const> operands, std::size_t count);

}  // namespace aloni::comm::detail
