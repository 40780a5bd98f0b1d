#pragma once
// Number of ghost layers around the owned box of this rank, per dimension and side. Ranks may differ: with strides or
// uneven blocks one rank needs more ghosts than its neighbour.
#include <aloni/views/box.hpp>

#include <array>

namespace aloni::views {

enum class Side : int { low = 0, high = 1 };

struct GhostWidths {
  std::array<std::array<Index, 2>, num_dims> widths{};

  constexpr Index operator()(Dim d, Side s) const { return widths[position(d)][static_cast<int>(s)]; }
  constexpr Index& operator()(Dim d, Side s) { return widths[position(d)][static_cast<int>(s)]; }
  friend constexpr bool operator==(const GhostWidths&, const GhostWidths&) = default;
};

/// The owned box and its ghosts.
constexpr Box grow(const Box& owned, const GhostWidths& g) {
  Box b = owned;
  for (Dim d : all_dims) b.set(d, owned.lower(d) - g(d, Side::low), owned.upper(d) + g(d, Side::high));
  return b;
}

/// The least ghost widths with which `owned` covers `needed`: 0 on sides that `owned` covers already, and 0 everywhere
/// if `needed` is empty. An empty `owned` box keeps its position: its ghosts are counted from there.
constexpr GhostWidths widths_to_cover(const Box& owned, const Box& needed) {
  GhostWidths g;
  if (needed.empty()) return g;
  for (Dim d : all_dims) {
    const Index below = owned.lower(d) - needed.lower(d), above = needed.upper(d) - owned.upper(d);
    g(d, Side::low) = below > 0 ? below : 0;
    g(d, Side::high) = above > 0 ? above : 0;
  }
  return g;
}

}  // namespace aloni::views
