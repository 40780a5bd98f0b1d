#pragma once
// Named regions for Kokkos Tools: with a connector loaded (KOKKOS_TOOLS_LIBS) they appear in its timeline or tables;
// without one they cost a comparison.
//
//   aloni::ScopedRegion region("aloni::halo::Exchange::start");
#include <Kokkos_Core.hpp>

#include <cassert>
#include <string>
#include <string_view>

namespace aloni {

/// Opens a region and closes it at the end of the scope. Kokkos' own ScopedRegion builds a std::string even when nobody
/// listens; regions sit inside the training step, which allocates nothing.
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
