#include <aloni/core/memory.hpp>

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace aloni {

namespace {

/// A line of a file in /proc/self in bytes; 0: there is none.
std::int64_t bytes_in(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string word; lines >> word;) {
    if (word != name) continue;
    std::int64_t kibibytes = 0;
    if (lines >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}
std::int64_t status_bytes(const std::string& name) { return bytes_in("/proc/self/status", name); }

}  // namespace

std::int64_t resident_memory_bytes() { return status_bytes("VmRSS:"); }

std::int64_t proportional_memory_bytes() { return bytes_in("/proc/self/smaps_rollup", "Pss:"); }

std::int64_t peak_memory_bytes() {
  // getrusage() is only the fallback. On Linux its maximum survives exec(): a small program that a large program starts
  // would report the memory of its parent.
  if (const std::int64_t bytes = status_bytes("VmHWM:"); bytes > 0) return bytes;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return usage.ru_maxrss;
#else
  return std::int64_t{usage.ru_maxrss} * 1024;
#endif
}

}  // namespace aloni
