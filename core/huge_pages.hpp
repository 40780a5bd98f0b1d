#pragma once
// Huge pages for large arrays of the host. A kernel that walks through many pages of 4 KiB waits for their addresses:
// matrix products of 512 rows are 2 to 6 % faster on pages of 2 MiB (docs/experiments/cholesky.md).
#include <cstddef>
#include <memory_resource>

namespace aloni {

/// Size and alignment of a huge page on x86-64, and on ARM with pages of 4 KiB.
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

/// Asks the system for huge pages before the memory is first written. Only whole huge pages inside the memory count.
/// The system may decline: the memory then has small pages.
/// Not collective.
void use_huge_pages(void* memory, std::size_t bytes);
/// Alignment of an array: that of a huge page if it has at least two of them, otherwise `least`.
constexpr std::size_t array_alignment(std::size_t bytes, std::size_t least) {
  return bytes >= 2 * huge_page_bytes ? huge_page_bytes : least;
}
/// Private memory. Blocks with the alignment of a huge page ask for huge pages. It lives as long as the process.
std::pmr::memory_resource* array_memory();
/// Moves written memory to huge pages at once; shared memory too, for which the setting of the system is often "never".
/// Needs Linux 6.1 or later; otherwise, or if the system has no free huge pages, the memory keeps its pages. Copies the
/// memory once. Not collective.
void collapse_into_huge_pages(void* memory, std::size_t bytes);

}  // namespace aloni
