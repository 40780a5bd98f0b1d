#pragma once
// Memory of this process as the operating system counts it. Device memory is not included.
#include <cstdint>

namespace aloni {

/// Largest resident set of this process so far, in bytes; 0 where the system does not report it.
std::int64_t peak_memory_bytes();
/// Resident set of this process now, in bytes; 0 where the system does not report it.
std::int64_t resident_memory_bytes();

}  // namespace aloni
