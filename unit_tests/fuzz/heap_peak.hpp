#pragma once
// The heap of all threads: the most bytes in use at once since the construction. Needs AddressSanitizer.
//
//   const HeapPeak peak;
//   read(input);
//   peak.bytes();
#include <cstddef>

namespace aloni::test {

/// At most one exists at a time. Blocks from before the construction do not count.
class HeapPeak {
 public:
  HeapPeak();
  HeapPeak(const HeapPeak&) = delete;
  HeapPeak& operator=(const HeapPeak&) = delete;
  std::size_t bytes() const;
};

}  // namespace aloni::test
