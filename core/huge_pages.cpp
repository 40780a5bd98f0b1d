#include <aloni/core/huge_pages.hpp>

#include <sys/mman.h>

#include <cstdint>

namespace aloni {

namespace {

constexpr int madv_collapse = 25;  // MADV_COLLAPSE, which older headers do not have

/// For the whole huge pages inside the memory.
void advise(void* memory, std::size_t bytes, int advice) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory), end = begin + bytes;
  const auto first = (begin + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes,
             last = end / huge_page_bytes * huge_page_bytes;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, advice);
}

}  // namespace

void use_huge_pages(void* memory, std::size_t bytes) { advise(memory, bytes, MADV_HUGEPAGE); }
void collapse_into_huge_pages(void* memory, std::size_t bytes) { advise(memory, bytes, madv_collapse); }

}  // namespace aloni
