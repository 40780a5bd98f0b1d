#include <aloni/core/memory.hpp>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
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

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

/// The least number in the files `name` of a control group and of those that it is in. A file with "max" has none.
std::int64_t least_limit(const std::filesystem::path& groups, std::filesystem::path group, const char* name) {
  std::int64_t least = no_limit;
  for (group = group.relative_path();; group = group.parent_path()) {
    if (std::int64_t limit = 0; std::ifstream(groups / group / name) >> limit) least = std::min(least, limit);
    if (group.empty()) return least;
  }
}

}  // namespace

std::int64_t resident_memory_bytes() { return status_bytes("VmRSS:"); }

void return_freed_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

std::int64_t proportional_memory_bytes() { return bytes_in("/proc/self/smaps_rollup", "Pss:"); }

std::int64_t usable_memory_bytes(const std::string& root) {
  std::int64_t least = no_limit;
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {  // "0::/GROUP" of version 2, "4:memory:/GROUP" of version 1
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const std::string group = line.substr(second + 1);
    if (controllers == ",,")
      least = std::min(least, least_limit(root + "/sys/fs/cgroup", group, "memory.max"));
    else if (controllers.find(",memory,") != std::string::npos)
      least = std::min(least, least_limit(root + "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
  }
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) least = std::min(least, std::int64_t{pages} * page);
  return least == no_limit ? 0 : least;
}

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
