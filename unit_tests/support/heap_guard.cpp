#include <support/heap_guard.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> armed{false};
std::atomic<std::size_t> smallest_counted{0};
std::atomic<long> count{0};
std::array<std::atomic<std::size_t>, 16> first_sizes{};

[[maybe_unused]] void note(std::size_t bytes) {
  if (!armed || bytes < smallest_counted) return;
  const long number = count++;
  if (number < static_cast<long>(first_sizes.size())) first_sizes[static_cast<std::size_t>(number)] = bytes;
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// All other forms of new and delete call these. Not inlined: gcc would complain that free() meets memory of new.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  note(bytes);
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  note(bytes);
  const auto a = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(a, std::max((bytes + a - 1) / a, std::size_t{1}) * a)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace aloni::test {

HeapGuard::HeapGuard(std::size_t smallest) {
  smallest_counted = smallest;
  count = 0;
  armed = true;
}

HeapGuard::~HeapGuard() { disarm(); }

void HeapGuard::disarm() { armed = false; }

long HeapGuard::allocations() const { return count; }

std::string HeapGuard::report() const {
  std::string text = "bytes:";
  for (long i = 0; i < std::min(allocations(), static_cast<long>(first_sizes.size())); ++i)
    text += " " + std::to_string(first_sizes[static_cast<std::size_t>(i)]);
  return text;
}

}  // namespace aloni::test
