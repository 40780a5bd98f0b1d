#pragma once
// A box of global indices: half-open [lo, hi) in each of the five dimensions. Bounds may lie outside the tensor, for
// example in ghosts beyond the domain. A box is empty when any hi ≤ lo; the functions below treat all empty boxes
// alike.
#include <aloni/views/extents.hpp>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace aloni::views {

struct Box {
  std::array<Index, num_dims> lo{0, 0, 0, 0, 0};
  std::array<Index, num_dims> hi{0, 0, 0, 0, 0};

  constexpr Index lower(Dim d) const { return lo[position(d)]; }
  constexpr Index upper(Dim d) const { return hi[position(d)]; }
  /// Number of indices in one dimension; 0 when hi ≤ lo. The largest Index if the number is larger.
  constexpr Index extent(Dim d) const {
    if (upper(d) <= lower(d)) return 0;
    constexpr std::uint64_t most = std::numeric_limits<Index>::max();
    const std::uint64_t n = static_cast<std::uint64_t>(upper(d)) - static_cast<std::uint64_t>(lower(d));
    return static_cast<Index>(n < most ? n : most);
  }
  /// Number of indices. Throws InvalidArgument above max_elements.
  constexpr Index size() const {
    std::array<Index, num_dims> extents{};
    for (Dim d : all_dims) extents[position(d)] = extent(d);
    return detail::checked_size(extents);
  }
  constexpr bool empty() const {
    for (int i = 0; i < num_dims; ++i)
      if (hi[i] <= lo[i]) return true;
    return false;
  }
  constexpr void set(Dim d, Index lower, Index upper) {
    lo[position(d)] = lower;
    hi[position(d)] = upper;
  }
  friend constexpr bool operator==(const Box&, const Box&) = default;
};

/// All indices of a tensor.
constexpr Box whole(const Extents& e) { return {{0, 0, 0, 0, 0}, e.values}; }

constexpr Extents extents_of(const Box& b) {
  Extents e;
  for (Dim d : all_dims) e[d] = b.extent(d);
  return e;
}

constexpr Box intersect(const Box& a, const Box& b) {
  Box r;
  for (int i = 0; i < num_dims; ++i) {
    r.lo[i] = a.lo[i] > b.lo[i] ? a.lo[i] : b.lo[i];
    r.hi[i] = a.hi[i] < b.hi[i] ? a.hi[i] : b.hi[i];
  }
  return r;
}

/// The smallest box that contains both boxes; an empty box is ignored.
constexpr Box hull(const Box& a, const Box& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  Box r;
  for (int i = 0; i < num_dims; ++i) {
    r.lo[i] = a.lo[i] < b.lo[i] ? a.lo[i] : b.lo[i];
    r.hi[i] = a.hi[i] > b.hi[i] ? a.hi[i] : b.hi[i];
  }
  return r;
}

/// Whether every index of `inner` lies in `outer`; an empty box lies in every box.
constexpr bool contains(const Box& outer, const Box& inner) {
  return inner.empty() || intersect(outer, inner) == inner;
}

/// `outer` without `inner`: at most ten disjoint boxes, none of them empty. `inner` may be empty.
/// @pre the bounds of `inner` lie within the bounds of `outer`
std::vector<Box> difference(const Box& outer, const Box& inner);

/// "[0,4)x[0,1)x[12,28)x[0,28)x[0,6)".
std::string to_string(const Box& b);

}  // namespace aloni::views
