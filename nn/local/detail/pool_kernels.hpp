#pragma once
// The inner loops of max pooling on a CPU over one row. Vectors run over channels; pure functions like
// direct_kernels.hpp.
//
// With few channels a vector covers neighbouring pixels too. Values read there are not used. Values written there are
// unchanged, or a later vector overwrites them. Vectors stay inside the row (`end` pointers); single values do the
// rest.
#include <aloni/core/index.hpp>

#include <cstdint>

namespace aloni::nn::local::detail {

/// One element of the window: its distance from the start of the window in memory, and its position in the window.
struct PoolTap {
  Index x;
  std::int32_t position;
};

inline constexpr Index most_pool_taps = 64;  ///< of the callers' lists; larger windows are rare

/// y[p] = maximum over taps of x[p * x_pixel + tap.x], for each channel; argmax[p] = position of the first one. With
/// `relu` a negative maximum becomes 0, and the position of a maximum that is not positive is -1.
template <class T>
struct MaxForwardArguments {
  const T *x, *x_end;
  Index x_pixel;
  const PoolTap* taps;
  Index num_taps;  ///< ≥ 1
  T *y, *y_end;
  Index y_pixel;
  std::int32_t* argmax;  ///< null: not wanted; its row has as many pixels as that of y
  Index argmax_pixel;
  Index pixels, channels;
  bool relu;
};

/// For each tap and channel c, with g = argmax[p * argmax_pixel + c] == tap.position ? dy[p * dy_pixel + c] : 0:
/// max_backward, which takes one tap with x = 0, adds g to dx[p * dx_stride + c]; windows may overlap.
/// max_backward_disjoint sets dx[p * dx_stride + tap.x + c] to g. @pre each element of dx belongs to one p and one tap;
/// taps have rising x
template <class T>
struct MaxBackwardArguments {
  const T *dy, *dy_end;
  Index dy_pixel;
  const std::int32_t *argmax, *argmax_end;
  Index argmax_pixel;
  const PoolTap* taps;
  Index num_taps;   ///< ≥ 1
  Index reach;      ///< the largest distance of a tap from the first one of its row
  T *dx, *dx_end;   ///< the row of the first tap; rows of other taps are as long
  Index dx_stride;  ///< between windows
  bool dense;       ///< a row of dx has no gaps between its pixels
  Index pixels, channels;
};

template <class T>
struct PoolKernels {
  void (*max_forward)(const MaxForwardArguments<T>&);
  void (*max_backward)(const MaxBackwardArguments<T>&);
  void (*max_backward_disjoint)(const MaxBackwardArguments<T>&);
};

/// The best functions that this processor can run.
template <class T>
const PoolKernels<T>& pool_kernels();

}  // namespace aloni::nn::local::detail
