#include <aloni/tasks/detail/processors.hpp>

#ifdef __linux__
#include <sched.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>
#else
#include <numeric>
#include <thread>
#endif

namespace aloni::tasks::detail {

#ifdef __linux__

std::vector<int> processors_of_process() {
  cpu_set_t all;
  CPU_ZERO(&all);
  const auto add = [&](pid_t thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(thread, sizeof set, &set) == 0) CPU_OR(&all, &all, &set);
  };
  add(0);  // the calling thread
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/task", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (thread > 0) add(thread);
  }
  std::vector<int> processors;
  for (int p = 0; p < CPU_SETSIZE; ++p)
    if (CPU_ISSET(p, &all)) processors.push_back(p);
  return processors;
}

void use_processors(const std::vector<int>& processors) {
  if (processors.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int p : processors) CPU_SET(p, &set);
  sched_setaffinity(0, sizeof set, &set);  // a worker on fewer processors is slower, not wrong
}

#else

std::vector<int> processors_of_process() {
  std::vector<int> processors(std::thread::hardware_concurrency());
  std::iota(processors.begin(), processors.end(), 0);
  return processors;
}
void use_processors(const std::vector<int>&) {}

#endif

}  // namespace aloni::tasks::detail
