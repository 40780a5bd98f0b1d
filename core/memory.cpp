#include <aloni/core/memory.hpp>

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace aloni {

std::int64_t peak_memory_bytes() {
  // getrusage() is only the fallback. On Linux its maximum survives exec(): a small program that a large program starts
  // would report the memory of its parent.
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    std::int64_t kibibytes = 0;
    if (status >> kibibytes) return kibibytes * 1024;
  }
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return usage.ru_maxrss;
#else
  return std::int64_t{usage.ru_maxrss} * 1024;
#endif
}

}  // namespace aloni
