#pragma once
// Index: the integer type of every extent, offset, count and index. It is signed and has 64 bits, because tensors may
// have more than 2^31 elements and ghosts may have negative indices.
#include <cstddef>
#include <cstdint>
#include <limits>

namespace aloni {

using Index = std::int64_t;

/// Bound of every tensor, View and block of memory, in bytes: 2 EiB. Each gate (a distribution, a View, an allocation)
/// refuses more. Below it, sums and products of sizes cannot overflow.
inline constexpr Index max_bytes = Index{1} << 61;
/// Bound of the number of elements of a tensor, which may have 8 bytes each.
inline constexpr Index max_elements = max_bytes / 8;

/// a · b, or the largest Index if the product is larger: to be compared with a bound. @pre a, b ≥ 0
constexpr Index saturating_product(Index a, Index b) {
  constexpr Index most = std::numeric_limits<Index>::max();
  return a != 0 && b > most / a ? most : a * b;
}

/// a / b, rounded towards minus infinity. @pre b > 0
constexpr Index floor_div(Index a, Index b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
/// a / b, rounded towards plus infinity. @pre b > 0
constexpr Index ceil_div(Index a, Index b) { return -floor_div(-a, b); }

}  // namespace aloni
