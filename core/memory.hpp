#pragma once
// Memory of this process as the operating system counts it (device memory is not in it).
#include <cstdint>

namespace aloni {

/// Largest resident set so far, in bytes; 0 where the system doesn't tell.
std::int64_t peak_memory_bytes();

}  // namespace aloni
