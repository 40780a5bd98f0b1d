#include <aloni/core/huge_pages.hpp>

#include <sys/mman.h>

#include <cstdint>

namespace aloni {

void use_huge_pages(void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory), end = begin + bytes;
  const auto first = (begin + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes,
             last = end / huge_page_bytes * huge_page_bytes;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

}  // namespace aloni
