#pragma once
// The integer of every extent, offset, count and index in aloni: 64-bit and signed, so that a tensor of more than
// 2^31 elements and a ghost index below zero are both ordinary values.
#include <cstdint>

namespace aloni {

using Index = std::int64_t;

}  // namespace aloni
