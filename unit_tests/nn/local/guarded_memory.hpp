#pragma once
// Host memory between two protected pages. A read or write beside the memory ends the test, with or without a
// sanitizer.
#include <aloni/core/index.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace aloni::test {

template <class T>
class GuardedMemory {
 public:
  enum class Against { end, begin };  ///< end of the memory that adjoins its guard page

  explicit GuardedMemory(Index size, Against against = Against::end) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
    const std::size_t inner = (bytes + page - 1) / page * page;
    mapped_ = inner + 2 * page;
    base_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(base_, page, PROT_NONE);
    mprotect(base_ + page + inner, page, PROT_NONE);
    data_ = reinterpret_cast<T*>(base_ + page + (against == Against::end ? inner - bytes : 0));
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() { munmap(base_, mapped_); }

  T* data() const { return data_; }

 private:
  char* base_;
  std::size_t mapped_;
  T* data_;
};

}  // namespace aloni::test
