#pragma once
// Named regions for Kokkos Tools. With a tool loaded (KOKKOS_TOOLS_LIBS) they appear in its timeline or tables. Without
// a tool they cost one comparison.
//
//   aloni::ScopedRegion region("aloni::halo::Exchange::start");
#include <Kokkos_Core.hpp>

#include <cassert>
#include <string>
#include <string_view>

namespace aloni {

/// Opens a region and closes it at the end of the scope. Kokkos' own ScopedRegion builds a std::string even if no tool
/// is loaded. Regions lie inside the training step, which must not allocate.
class [[nodiscard]] ScopedRegion {
 public:
  /// @pre `label` starts with "aloni::"
  explicit ScopedRegion(std::string_view label) : open_(Kokkos::Profiling::profileLibraryLoaded()) {
    assert(label.starts_with("aloni::"));
    if (open_) Kokkos::Profiling::pushRegion(std::string(label));
  }
  ScopedRegion(const ScopedRegion&) = delete;
  ScopedRegion& operator=(const ScopedRegion&) = delete;
  ~ScopedRegion() {
    if (open_) Kokkos::Profiling::popRegion();
  }

 private:
  bool open_;
};

}  // namespace aloni
