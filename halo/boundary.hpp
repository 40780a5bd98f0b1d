#pragma once
// The values of ghosts outside the domain. For a row of extent n = 5 (values a to e) and three ghosts on each side:
//
//   zero        0 0 0 | a b c d e | 0 0 0
//   periodic    c d e | a b c d e | a b c
//   replicate   a a a | a b c d e | e e e
//   reflect     d c b | a b c d e | d c b      the edge itself is not repeated (numpy's "reflect")
//   none        . . . | a b c d e | . . .      not touched
//
// Ghosts may be wider than the domain: periodic wraps and reflect mirrors as often as needed. With n = 1, reflect
// equals replicate.
#include <aloni/views/ghost_widths.hpp>

#include <array>

namespace aloni::halo {

enum class Boundary { zero, periodic, replicate, reflect, none };

/// "zero", "periodic", …
const char* name(Boundary b);

/// The boundary kind of each dimension and side; the default is zero everywhere. If a ghost lies outside the domain in
/// several dimensions, `none` in one of them wins, then `zero`. The other kinds apply dimension by dimension.
struct BoundaryConditions {
  std::array<std::array<Boundary, 2>, views::num_dims> kinds{};

  constexpr Boundary operator()(views::Dim d, views::Side s) const {
    return kinds[views::position(d)][static_cast<int>(s)];
  }
  constexpr Boundary& operator()(views::Dim d, views::Side s) { return kinds[views::position(d)][static_cast<int>(s)]; }
  /// Sets the kind of both sides of one dimension; returns *this.
  constexpr BoundaryConditions& set(views::Dim d, Boundary b) {
    kinds[views::position(d)] = {b, b};
    return *this;
  }
  /// One kind for all dimensions and sides.
  static constexpr BoundaryConditions all(Boundary b) {
    BoundaryConditions c;
    for (views::Dim d : views::all_dims) c.set(d, b);
    return c;
  }
  friend constexpr bool operator==(const BoundaryConditions&, const BoundaryConditions&) = default;
};

}  // namespace aloni::halo
