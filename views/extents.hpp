#pragma once
// The five dimensions of an activation tensor and its global extents.
//
// Tensors are stored channels last. Every tensor has the five dimensions sample, depth, height, width, channel. Absent
// spatial dimensions have extent 1: depth at spatial rank 2, depth and height at spatial rank 1. So boxes,
// distributions, transfer plans and kernels are written once. Only DistributedView, the type users hold, knows the
// spatial rank. A tensor without spatial dimensions (after flatten) is N,1,1,1,C.
#include <aloni/core/index.hpp>

#include <array>
#include <cstddef>
#include <string>

namespace aloni::views {

enum class Dim : int { sample = 0, depth = 1, height = 2, width = 3, channel = 4 };

inline constexpr int num_dims = 5;
inline constexpr std::array<Dim, num_dims> all_dims{Dim::sample, Dim::depth, Dim::height, Dim::width, Dim::channel};
inline constexpr std::array<Dim, 3> spatial_dims{Dim::depth, Dim::height, Dim::width};

constexpr int position(Dim d) { return static_cast<int>(d); }
/// "sample", "depth", "height", "width", "channel".
const char* name(Dim d);
/// The letter of a dimension in a process grid's text form: n, d, h, w, c.
char letter(Dim d);

namespace detail {

/// Throws InvalidArgument: an extent is below 0, or their product above max_elements.
[[noreturn]] void refuse_size(const std::array<Index, num_dims>& extents);

/// The product of the extents. Throws InvalidArgument if one is below 0, or the product above max_elements.
constexpr Index checked_size(const std::array<Index, num_dims>& extents) {
  Index n = 1;
  bool zero = false;
  for (const Index extent : extents) {
    if (extent < 0) refuse_size(extents);
    zero |= extent == 0;
    n = saturating_product(n, extent == 0 ? 1 : extent);
  }
  if (zero) return 0;
  if (n > max_elements) refuse_size(extents);
  return n;
}

}  // namespace detail

/// Number of elements per dimension, all ≥ 0, in the order of Dim.
struct Extents {
  std::array<Index, num_dims> values{1, 1, 1, 1, 1};

  constexpr Index operator[](Dim d) const { return values[position(d)]; }
  constexpr Index& operator[](Dim d) { return values[position(d)]; }
  /// The product. Throws InvalidArgument if an extent is below 0, or the product above max_elements.
  constexpr Index size() const { return detail::checked_size(values); }
  friend constexpr bool operator==(const Extents&, const Extents&) = default;
};

/// Extents of a tensor with 1 spatial dimension (`{width}`), 2 (`{height, width}`) or 3 (`{depth, height, width}`).
template <std::size_t SpatialRank>
constexpr Extents make_extents(Index samples, const Index (&spatial)[SpatialRank], Index channels) {
  static_assert(SpatialRank >= 1 && SpatialRank <= 3);
  Extents e{{samples, 1, 1, 1, channels}};
  for (std::size_t i = 0; i < SpatialRank; ++i) e.values[4 - SpatialRank + i] = spatial[i];
  return e;
}
template <std::size_t SpatialRank>
constexpr Extents make_extents(Index samples, const std::array<Index, SpatialRank>& spatial, Index channels) {
  static_assert(SpatialRank >= 1 && SpatialRank <= 3);
  Extents e{{samples, 1, 1, 1, channels}};
  for (std::size_t i = 0; i < SpatialRank; ++i) e.values[4 - SpatialRank + i] = spatial[i];
  return e;
}

/// Throws InvalidArgument with `operation` if an extent is below 0, or if the product of the extents other than 0 is
/// above max_elements. Extents that pass have no subset whose product overflows.
void check_extents(const std::string& operation, const Extents& e);

/// "8x1x28x28x1": all five extents in the order of Dim.
std::string to_string(const Extents& e);

}  // namespace aloni::views
