#pragma once
// A box of global indices: half-open [lo, hi) in each of the five dimensions. Bounds may lie outside the tensor, for
// example in ghosts beyond the domain. A box is empty when any hi ≤ lo; the functions below treat all empty boxes
// alike.
#include <aloni/views/extents.hpp>

#include <array>
#include <string>
#include <vector>

namespace aloni::views {

struct Box {
  std::array<Index, num_dims> lo{0, 0, 0, 0, 0};
  std::array<Index, num_dims> hi{0, 0, 0, 0, 0};

  constexpr Index lower(Dim d) const { return lo[position(d)]; }
  constexpr Index upper(Dim d) const { return hi[position(d)]; }
  /// Number of indices in one dimension; 0 when hi ≤ lo.
  constexpr Index extent(Dim d) const { return upper(d) > lower(d) ? upper(d) - lower(d) : 0; }
  constexpr Index size() const {
    Index n = 1;
    for (Dim d : all_dims) n *= extent(d);
    return n;
  }
  constexpr bool empty() const { return size() == 0; }
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
