#include <aloni/nn/local/detail/depthwise_kernels.hpp>

#include <aloni/nn/compiled_activations.hpp>
#include <aloni/nn/local/detail/vector_types.hpp>

namespace aloni::nn::local::detail {
namespace {

template <class T, int lanes, int num_pixels>
[[gnu::always_inline]] inline void row_block(const DepthwiseRowArguments<T>& a, Index first_pixel, Index c) {
  using V = Vector<T, lanes>;
  V sum[num_pixels];
  const V bias = a.bias == nullptr ? V{} : *reinterpret_cast<const V*>(a.bias + c);
#pragma GCC unroll 16
  for (int p = 0; p < num_pixels; ++p) sum[p] = bias;
  for (Index t = 0; t < a.num_terms; ++t) {
    const T* x = a.terms[t].x + a.x_first + first_pixel * a.x_pixel + c;
    const T* w = a.terms[t].w + a.w_first + c;
    for (Index m = 0; m < a.taps; ++m, x += a.x_tap, w += a.w_tap) {
      const V weight = *reinterpret_cast<const V*>(w);
#pragma GCC unroll 16
      for (int p = 0; p < num_pixels; ++p) sum[p] += *reinterpret_cast<const V*>(x + p * a.x_pixel) * weight;
    }
  }
  T* const y = a.y + first_pixel * a.y_pixel + c;
#pragma GCC unroll 16
  for (int p = 0; p < num_pixels; ++p) *reinterpret_cast<V*>(y + p * a.y_pixel) = sum[p];
}

/// Channels from c on with vectors of `lanes`, then with shorter ones.
template <class T, int num_pixels, int lanes, int... shorter>
[[gnu::always_inline]] inline void row_channels(const DepthwiseRowArguments<T>& a, Index first_pixel, Index c) {
  for (; c + lanes <= a.channels; c += lanes) row_block<T, lanes, num_pixels>(a, first_pixel, c);
  if constexpr (sizeof...(shorter) > 0) row_channels<T, num_pixels, shorter...>(a, first_pixel, c);
}

template <class T, int num_pixels, int... lanes>
[[gnu::always_inline]] inline void row_pixels(const DepthwiseRowArguments<T>& a, Index p) {
  for (; p + num_pixels <= a.pixels; p += num_pixels) row_channels<T, num_pixels, lanes...>(a, p, 0);
  if constexpr (num_pixels > 1) row_pixels<T, num_pixels / 2, lanes...>(a, p);
}

template <class T, int lanes, int num_values>
[[gnu::always_inline]] inline void filter_block(const DepthwiseFilterArguments<T>& a, Index first, Index c) {
  using V = Vector<T, lanes>;
  // A few sums cannot hide the latency of additions: then odd and even pixels have sums of their own.
  constexpr int ways = num_values <= 4 ? 2 : 1;
  V sum[ways][num_values];
  const T* x[num_values];
#pragma GCC unroll 16
  for (int j = 0; j < num_values; ++j) {
    x[j] = a.x[first + j] + c;
    for (int way = 0; way < ways; ++way) sum[way][j] = V{};
  }
  const T* dy = a.dy + c;
  Index at = 0, p = 0;
  for (; p + ways <= a.pixels; p += ways)
#pragma GCC unroll 2
    for (int way = 0; way < ways; ++way, dy += a.dy_pixel, at += a.x_pixel) {
      const V d = *reinterpret_cast<const V*>(dy);
#pragma GCC unroll 16
      for (int j = 0; j < num_values; ++j) sum[way][j] += *reinterpret_cast<const V*>(x[j] + at) * d;
    }
  for (; p < a.pixels; ++p, dy += a.dy_pixel, at += a.x_pixel) {
    const V d = *reinterpret_cast<const V*>(dy);
#pragma GCC unroll 16
    for (int j = 0; j < num_values; ++j) sum[0][j] += *reinterpret_cast<const V*>(x[j] + at) * d;
  }
#pragma GCC unroll 16
  for (int j = 0; j < num_values; ++j) {
    if constexpr (ways == 2) sum[0][j] += sum[1][j];
    *reinterpret_cast<V*>(a.sums[first + j] + c) += sum[0][j];
  }
}

template <class T, int lanes, int num_values>
[[gnu::always_inline]] inline void filter_block_of(const DepthwiseFilterArguments<T>& a, Index values, Index first,
                                                   Index c) {
  if constexpr (num_values > 0) {
    if (values == num_values) {
      filter_block<T, lanes, num_values>(a, first, c);
    } else {
      filter_block_of<T, lanes, num_values - 1>(a, values, first, c);
    }
  }
}

template <class T, int lanes>
[[gnu::always_inline]] inline void bias_block(const DepthwiseFilterArguments<T>& a, Index c) {
  using V = Vector<T, lanes>;
  V sum[4] = {};
  const T* dy = a.dy + c;
  Index p = 0;
  for (; p + 4 <= a.pixels; p += 4)
#pragma GCC unroll 4
    for (int way = 0; way < 4; ++way, dy += a.dy_pixel) sum[way] += *reinterpret_cast<const V*>(dy);
  for (; p < a.pixels; ++p, dy += a.dy_pixel) sum[0] += *reinterpret_cast<const V*>(dy);
  *reinterpret_cast<V*>(a.bias_sums + c) += (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <class T, int max_values, int lanes, int... shorter>
[[gnu::always_inline]] inline void filter_channels(const DepthwiseFilterArguments<T>& a, Index c) {
  const Index blocks = (a.values + max_values - 1) / max_values;
  for (; c + lanes <= a.channels; c += lanes) {
    Index first = 0;
    for (Index b = 0; b < blocks; ++b) {
      const Index last = a.values * (b + 1) / blocks;
      filter_block_of<T, lanes, max_values>(a, last - first, first, c);
      first = last;
    }
    bias_block<T, lanes>(a, c);
  }
  // Shorter vectors hold only the last few channels: smaller blocks keep their code small.
  if constexpr (sizeof...(shorter) > 0) filter_channels<T, 3, shorter...>(a, c);
}

// The shortest vectors come last: 16 bytes, then single values. Nine values are a kernel of 3 × 3; their pointers fit
// in registers.
template <class T>
void row_baseline(const DepthwiseRowArguments<T>& a) {
  row_pixels<T, 8, 16 / sizeof(T), 1>(a, 0);
}
template <class T>
void filter_baseline(const DepthwiseFilterArguments<T>& a) {
  filter_channels<T, 9, 16 / sizeof(T), 1>(a, 0);
}
template <class T>
constexpr DepthwiseKernels<T> baseline{"baseline", row_baseline<T>, filter_baseline<T>};

#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2,fma"))) void row_avx2(const DepthwiseRowArguments<T>& a) {
  row_pixels<T, 8, 32 / sizeof(T), 16 / sizeof(T), 1>(a, 0);
}
template <class T>
__attribute__((target("avx2,fma"))) void filter_avx2(const DepthwiseFilterArguments<T>& a) {
  filter_channels<T, 9, 32 / sizeof(T), 16 / sizeof(T), 1>(a, 0);
}
template <class T>
constexpr DepthwiseKernels<T> avx2{"avx2", row_avx2<T>, filter_avx2<T>};

template <class T>
__attribute__((target("avx512f,avx512vl,avx2,fma"))) void row_avx512(const DepthwiseRowArguments<T>& a) {
  row_pixels<T, 8, 64 / sizeof(T), 32 / sizeof(T), 16 / sizeof(T), 1>(a, 0);
}
template <class T>
__attribute__((target("avx512f,avx512vl,avx2,fma"))) void filter_avx512(const DepthwiseFilterArguments<T>& a) {
  filter_channels<T, 9, 64 / sizeof(T), 32 / sizeof(T), 16 / sizeof(T), 1>(a, 0);
}
template <class T>
constexpr DepthwiseKernels<T> avx512{"avx512", row_avx512<T>, filter_avx512<T>};
#endif

}  // namespace

template <class T>
std::vector<const DepthwiseKernels<T>*> all_depthwise_kernels() {
  std::vector<const DepthwiseKernels<T>*> all{&baseline<T>};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    all.push_back(&avx2<T>);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) all.push_back(&avx512<T>);
  }
#endif
  return all;
}

template <class T>
const DepthwiseKernels<T>& depthwise_kernels() {
  return *all_depthwise_kernels<T>().back();
}

template const DepthwiseKernels<float>& depthwise_kernels<float>();
template std::vector<const DepthwiseKernels<float>*> all_depthwise_kernels<float>();
ALONI_WITH_DOUBLE(template const DepthwiseKernels<double>& depthwise_kernels<double>();)
ALONI_WITH_DOUBLE(template std::vector<const DepthwiseKernels<double>*> all_depthwise_kernels<double>();)

}  // namespace aloni::nn::local::detail
