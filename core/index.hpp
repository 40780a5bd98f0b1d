#pragma once
// The integer of every extent, offset, count and index in aloni: 64-bit and signed, so that a tensor of more than
// 2^31 elements and a ghost index below zero are both ordinary values.
#include <cstdint>

namespace aloni {

using Index = std::int64_t;

/// The quotient rounded towards minus infinity, and towards plus infinity. @pre b > 0
constexpr Index floor_div(Index a, Index b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
constexpr Index ceil_div(Index a, Index b) { return -floor_div(-a, b); }

}  // namespace aloni
