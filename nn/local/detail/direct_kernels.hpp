#pragma once
// The inner loops of the direct convolution on a CPU: pure functions over pointers. They are compiled once for each
// instruction set and chosen at run time, so a binary for any x86-64 uses the vectors of its processor.
//
// Vectors run over filters. Library kernels vectorise over channels. Their vectors are mostly empty on channels-last
// tensors with few channels (1, 3, 6: the first layers of every network). Layers have more filters than that, and
// padding 6 filters to 8 lanes wastes little. Each loaded weight vector serves a block of pixels in registers; each
// loaded input value serves all filters of the block.
#include <aloni/core/index.hpp>

#include <vector>

namespace aloni::nn::local::detail {

/// One input row of the sum for an output row. `x` is the address of pixel 0, tap 0. `w` points to the packed weights
/// of tap 0.
template <class T>
struct RowTerm {
  const T* x;
  const T* w;
};

/// y[p][f] = bias[f] + Σ over terms, taps m and channels c of
/// x[p * x_pixel + m * x_tap + c] * w[m * w_tap + c * padded + f].
template <class T>
struct RowArguments {
  const RowTerm<T>* terms;
  Index num_terms;
  Index taps, channels;
  Index x_pixel, x_tap, w_tap;  ///< strides in elements; x_tap may be negative
  const T* bias;                ///< of padded filters
  Index filters, padded;        ///< `padded` is a multiple of the lanes
  T* y;
  Index pixels, y_pixel;  ///< channel stride of y is 1
};

/// sum[j][f] += Σ over rows r and pixels p of x_r[p * x_pixel + j] * dy_r[p * dy_pixel + f], 0 ≤ j < values.
template <class T>
struct FilterArguments {
  const T* const* x;   ///< one pointer per row
  const T* const* dy;  ///< one pointer per row; each pixel has `padded` readable elements
  Index rows, pixels;
  Index x_pixel, dy_pixel;
  Index values, padded;
  T* sum;
};

/// The functions for one instruction set.
template <class T>
struct DirectKernels {
  const char* name;
  Index lanes;  ///< filters are padded to a multiple of this
  void (*row)(const RowArguments<T>&);
  void (*filter)(const FilterArguments<T>&);
  void (*column_sums)(const FilterArguments<T>&);  ///< sum[f] += Σ over rows and pixels of dy; reads no x
};

/// The best functions that this processor can run.
template <class T>
const DirectKernels<T>& direct_kernels();
/// All functions that this processor can run, for tests. The baseline is first.
template <class T>
std::vector<const DirectKernels<T>*> all_direct_kernels();

}  // namespace aloni::nn::local::detail
