#pragma once
// Counts what operator new hands out while it is armed, on all threads. Views and what MPI takes by malloc it doesn't see (the fence
// guard sees Views). Under a sanitizer, which has operators of its own, it counts nothing.
//
//   aloni::test::HeapGuard guard;            // armed from here on
//   network.train_step(queue);
//   EXPECT_EQ(guard.allocations(), 0) << guard.report();
//
// CMake: heap_guard.cpp among the test's own sources: it replaces operator new.
#include <support/sanitizer.hpp>

#include <cstddef>
#include <string>

namespace aloni::test {

/// One at a time.
class HeapGuard {
 public:
  static constexpr bool counts = !sanitized;

  /// Smaller blocks don't count.
  explicit HeapGuard(std::size_t smallest = 0);
  HeapGuard(const HeapGuard&) = delete;
  HeapGuard& operator=(const HeapGuard&) = delete;
  ~HeapGuard();

  void disarm();
  /// Since the construction.
  long allocations() const;
  /// Bytes of the first of them.
  std::string report() const;
};

}  // namespace aloni::test
