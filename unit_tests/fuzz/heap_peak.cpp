#include "heap_peak.hpp"

#include <atomic>

// Of LLVM's sanitizer/allocator_interface.h, which GCC 12 does not install.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*after_malloc)(const volatile void*, std::size_t),
                                              void (*before_free)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void* block);
}

namespace aloni::test {

namespace {

std::atomic<long long> in_use{0}, most_in_use{0};

void after_malloc(const volatile void*, std::size_t bytes) {
  const long long now = in_use += static_cast<long long>(bytes);
  long long most = most_in_use;
  while (now > most && !most_in_use.compare_exchange_weak(most, now)) {
  }
}

void before_free(const volatile void* block) {
  if (block != nullptr) in_use -= static_cast<long long>(__sanitizer_get_allocated_size(block));
}

}  // namespace

HeapPeak::HeapPeak() {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(after_malloc, before_free);
  static_cast<void>(installed);
  in_use = most_in_use = 0;
}

std::size_t HeapPeak::bytes() const { return static_cast<std::size_t>(most_in_use.load()); }

}  // namespace aloni::test
