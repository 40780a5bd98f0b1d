#pragma once
// Memory of this process and of its node as the operating system counts it. Device memory is not included.
#include <cstdint>
#include <string>

namespace aloni {

/// Largest resident set of this process so far, in bytes; 0 where the system does not report it.
std::int64_t peak_memory_bytes();
/// Resident set of this process now, in bytes; 0 where the system does not report it.
std::int64_t resident_memory_bytes();
/// As resident_memory_bytes(), where a page that n processes use counts 1/n ("proportional set size" of Linux). The sum
/// over the ranks of a node counts shared pages once.
std::int64_t proportional_memory_bytes();
/// Returns the pages of freed blocks of the heap to the system, if the C library can (glibc). Otherwise does nothing.
void return_freed_memory();

/// Memory that the processes of this job may use on this node, in bytes: that of the machine, or the least limit of the
/// control groups of this process. Batch systems set such limits. 0 where the system does not report it.
/// `root`: of the file system, for tests.
std::int64_t usable_memory_bytes(const std::string& root = "");

}  // namespace aloni
