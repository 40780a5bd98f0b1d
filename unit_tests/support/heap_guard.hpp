#pragma once
// Counts allocations by operator new on all threads while armed. It does not see Views (the fence guard does) and
// malloc inside MPI. Under a sanitizer, which replaces operator new itself, it counts nothing.
//
//   aloni::test::HeapGuard guard;            // armed from here on
//   network.train_step(queue);
//   EXPECT_EQ(guard.allocations(), 0) << guard.report();
//
// CMake: add heap_guard.cpp to the sources of a SEPARATE test. It replaces operator new.
#include <support/sanitizer.hpp>

#include <cstddef>
#include <string>

namespace aloni::test {

/// At most one exists at a time.
class HeapGuard {
 public:
  static constexpr bool counts = !sanitized;

  /// Smaller blocks are not counted.
  explicit HeapGuard(std::size_t smallest = 0);
  HeapGuard(const HeapGuard&) = delete;
  HeapGuard& operator=(const HeapGuard&) = delete;
  ~HeapGuard();

  void disarm();
  /// Number of allocations since the construction.
  long allocations() const;
  /// Bytes of the first allocation.
  std::string report() const;
};

}  // namespace aloni::test
