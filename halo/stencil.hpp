#pragma once
// Which inputs a sliding window reads, and which outputs read a given input. Convolution, pooling and their gradients
// derive the boxes they need from this arithmetic.
//
//   const Stencil1D rows{.kernel = 5, .stride = 2, .pad_low = 1, .pad_high = 2};
//   rows.output_extent(28);              // 14
//   rows.input_range(0, 7);              // [-1, 16): the inputs of outputs 0 to 6; may lie outside the domain
//   rows.output_range(14, 28, 14);       // [6, 14): the outputs that read any of the inputs 14 to 27
//
// Output o reads the inputs o·stride − pad_low + k·dilation for 0 ≤ k < kernel. Kernels may be even, strides may exceed
// the kernel, and padding may differ between the sides.
#include <aloni/views/box.hpp>

#include <array>
#include <string>

namespace aloni::halo {

/// Half-open; empty when hi ≤ lo.
struct Range {
  Index lo = 0, hi = 0;

  constexpr bool empty() const { return hi <= lo; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

struct Stencil1D {
  /// Bound of each number of a stencil. With extents up to max_elements, no index of the arithmetic below overflows.
  static constexpr Index max_width = Index{1} << 30;

  Index kernel = 1, stride = 1, dilation = 1, pad_low = 0, pad_high = 0;

  constexpr bool identity() const { return kernel == 1 && stride == 1 && pad_low == 0 && pad_high == 0; }
  /// Distance from the first to the last input of one output, plus one.
  constexpr Index reach() const { return (kernel - 1) * dilation + 1; }

  /// @pre kernel, stride, dilation ≥ 1; pad_low, pad_high ≥ 0; all ≤ max_width. Throws InvalidArgument with
  /// `operation`.
  void check(const std::string& operation) const;

  /// Number of outputs over a domain of `input` elements. @pre the stencil is valid, input ≤ max_elements, result ≥ 1
  Index output_extent(Index input) const;
  /// From the first to the last input that the outputs [lo, hi) read. May lie outside the domain; empty if hi ≤ lo.
  constexpr Range input_range(Index lo, Index hi) const {
    if (hi <= lo) return {};
    return {lo * stride - pad_low, (hi - 1) * stride - pad_low + reach()};
  }
  /// From the first to the last of the outputs in [0, outputs) that read any of the inputs [lo, hi). Empty if none
  /// does.
  Range output_range(Index lo, Index hi, Index outputs) const;

  friend constexpr bool operator==(const Stencil1D&, const Stencil1D&) = default;
};

/// One window for each of the five dimensions. Sample and channel keep the identity: that a convolution reads all
/// channels is part of its needed box, not of a window.
struct Stencil {
  std::array<Stencil1D, views::num_dims> dims{};

  constexpr const Stencil1D& operator[](views::Dim d) const { return dims[views::position(d)]; }
  constexpr Stencil1D& operator[](views::Dim d) { return dims[views::position(d)]; }

  /// @pre every dimension is valid, sample and channel are the identity. Throws InvalidArgument with the dimension.
  void check(const std::string& operation) const;
  /// Extents of the output for an input. @pre valid, every output extent ≥ 1. Throws InvalidArgument with the
  /// dimension.
  views::Extents output_extents(const views::Extents& input) const;
  /// The inputs that a box of outputs reads; may lie outside the domain. Empty for an empty box.
  views::Box input_box(const views::Box& output) const;
  /// The outputs, of a tensor with extents `outputs`, that read any input of a box. Empty for an empty box.
  views::Box output_box(const views::Box& input, const views::Extents& outputs) const;

  friend constexpr bool operator==(const Stencil&, const Stencil&) = default;
};

}  // namespace aloni::halo
