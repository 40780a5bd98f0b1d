#pragma once
// Index: the integer type of every extent, offset, count and index. It is signed and has 64 bits, because tensors may
// have more than 2^31 elements and ghosts may have negative indices.
#include <cstdint>

namespace aloni {

using Index = std::int64_t;

/// a / b, rounded towards minus infinity. @pre b > 0
constexpr Index floor_div(Index a, Index b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
/// a / b, rounded towards plus infinity. @pre b > 0
constexpr Index ceil_div(Index a, Index b) { return -floor_div(-a, b); }

}  // namespace aloni
