#include <aloni/core/huge_pages.hpp>

#include <sys/mman.h>

#include <cstdint>
#include <new>

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

class ArrayMemory final : public std::pmr::memory_resource {
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* const memory = ::operator new (bytes, std::align_val_t{alignment});
    if (alignment >= huge_page_bytes) use_huge_pages(memory, bytes);
    return memory;
  }
  void do_deallocate(void* memory, std::size_t, std::size_t alignment) override {
    ::operator delete (memory, std::align_val_t{alignment});
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace

std::pmr::memory_resource* array_memory() {
  static auto* const memory = new ArrayMemory;  // arrays may outlive the end of main()
  return memory;
}

void use_huge_pages(void* memory, std::size_t bytes) { advise(memory, bytes, MADV_HUGEPAGE); }
void collapse_into_huge_pages(void* memory, std::size_t bytes) { advise(memory, bytes, madv_collapse); }

}  // namespace aloni
