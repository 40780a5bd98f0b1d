#pragma once
// The inner loops of the depthwise convolution on a CPU: pure functions over pointers like direct_kernels.hpp.
//
// Each channel has its own weights, so vectors run over channels, which are contiguous. Kernels read and write no
// memory beyond the channels: the last channels, which do not fill a vector, go through shorter vectors.
//
// A kernel takes a few pixels through all channels before the next pixels, so it reads memory in order. One vector of
// channels through the whole row would touch one cache line in several; no prefetcher follows this pattern.
#include <aloni/core/index.hpp>
#include <aloni/nn/local/detail/direct_kernels.hpp>

#include <vector>

namespace aloni::nn::local::detail {

/// y[p][c] = bias[c] + Σ over terms and taps m of x[x_first + p * x_pixel + m * x_tap + c] * w[w_first + m * w_tap +
/// c].
template <class T>
struct DepthwiseRowArguments {
  const RowTerm<T>* terms;
  Index num_terms;
  Index taps;
  Index x_first, x_pixel, x_tap;  ///< in elements; x_tap may be negative
  Index w_first, w_tap;
  const T* bias;  ///< null: zeros
  T* y;
  Index y_pixel;
  Index pixels, channels;
};

/// sums[j][c] += Σ over pixels p of x[j][p * x_pixel + c] * dy[p * dy_pixel + c], 0 ≤ j < values;
/// bias_sums[c] += Σ over pixels p of dy[p * dy_pixel + c].
template <class T>
struct DepthwiseFilterArguments {
  const T* const* x;
  T* const* sums;
  Index values;
  const T* dy;
  T* bias_sums;
  Index x_pixel, dy_pixel;
  Index pixels, channels;
};

template <class T>
struct DepthwiseKernels {
  const char* name;
  void (*row)(const DepthwiseRowArguments<T>&);
  void (*filter)(const DepthwiseFilterArguments<T>&);
};

/// The best functions that this processor can run.
template <class T>
const DepthwiseKernels<T>& depthwise_kernels();
/// All functions that this processor can run, for tests. The baseline is first.
template <class T>
std::vector<const DepthwiseKernels<T>*> all_depthwise_kernels();

}  // namespace aloni::nn::local::detail
