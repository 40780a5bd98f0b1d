#include <aloni/nn/local/detail/direct_kernels.hpp>

#include <aloni/nn/local/detail/vector_types.hpp>

namespace aloni::nn::local::detail {
namespace {

/// `num_pixels` × `num_vectors` accumulators live in registers; the caller chooses numbers that fit. With the constant
/// pixel stride 1 (one channel) the addresses of pixels need no registers; otherwise each pixel needs an integer
/// register.
template <class T, int lanes, int num_vectors, int num_pixels, bool unit_stride>
[[gnu::always_inline]] inline void row_block(const RowArguments<T>& a, Index first_pixel, Index first_filter) {
  using V = Vector<T, lanes>;
  const Index x_pixel = unit_stride ? 1 : a.x_pixel;
  V sum[num_pixels][num_vectors];
#pragma GCC unroll 16
  for (int p = 0; p < num_pixels; ++p)
#pragma GCC unroll 4
    for (int v = 0; v < num_vectors; ++v) sum[p][v] = *reinterpret_cast<const V*>(a.bias + first_filter + v * lanes);
  for (Index t = 0; t < a.num_terms; ++t) {
    const T* x_term = a.terms[t].x + first_pixel * x_pixel;
    const T* w_term = a.terms[t].w + first_filter;
    for (Index m = 0; m < a.taps; ++m, x_term += a.x_tap, w_term += a.w_tap) {
      const T* x = x_term;
      const T* w = w_term;
      for (Index c = 0; c < a.channels; ++c, ++x, w += a.padded) {
        V weight[num_vectors];
#pragma GCC unroll 4
        for (int v = 0; v < num_vectors; ++v) weight[v] = *reinterpret_cast<const V*>(w + v * lanes);
#pragma GCC unroll 16
        for (int p = 0; p < num_pixels; ++p) {
          const T value = x[p * x_pixel];
#pragma GCC unroll 4
          for (int v = 0; v < num_vectors; ++v) sum[p][v] += value * weight[v];
        }
      }
    }
  }
  const Index filters_left = a.filters - first_filter;
  constexpr Index width = num_vectors * lanes;
  // Lanes beyond the filters may write into the next pixels, which later blocks overwrite, but never beyond the row.
  Index whole = 0;  // pixels stored with all lanes
  if (filters_left >= width) {
    whole = num_pixels;
  } else if (a.y_pixel == a.filters && first_filter == 0) {
    whole = a.pixels - first_pixel - (width + a.filters - 1) / a.filters + 1;
  }
  T* const y = a.y + first_pixel * a.y_pixel + first_filter;
  if (whole >= num_pixels) {
#pragma GCC unroll 16
    for (int p = 0; p < num_pixels; ++p)
#pragma GCC unroll 4
      for (int v = 0; v < num_vectors; ++v) *reinterpret_cast<V*>(y + p * a.y_pixel + v * lanes) = sum[p][v];
    return;
  }
  T all[num_pixels * width];
#pragma GCC unroll 16
  for (int p = 0; p < num_pixels; ++p)
#pragma GCC unroll 4
    for (int v = 0; v < num_vectors; ++v) *reinterpret_cast<V*>(all + p * width + v * lanes) = sum[p][v];
  Index p = 0;
  for (; p < whole; ++p)
#pragma GCC unroll 4
    for (int v = 0; v < num_vectors; ++v)
      *reinterpret_cast<V*>(y + p * a.y_pixel + v * lanes) = *reinterpret_cast<const V*>(all + p * width + v * lanes);
  for (; p < num_pixels; ++p)
    for (Index f = 0; f < filters_left; ++f) y[p * a.y_pixel + f] = all[p * width + f];
}

template <class T, int lanes, int num_vectors, int num_pixels, bool unit_stride>
[[gnu::always_inline]] inline void row_block_of(const RowArguments<T>& a, Index pixels, Index first_pixel,
                                                Index first_filter) {
  if constexpr (num_pixels > 0) {
    if (pixels == num_pixels) {
      row_block<T, lanes, num_vectors, num_pixels, unit_stride>(a, first_pixel, first_filter);
    } else {
      row_block_of<T, lanes, num_vectors, num_pixels - 1, unit_stride>(a, pixels, first_pixel, first_filter);
    }
  }
}

template <class T, int lanes, int num_vectors, int max_pixels, bool unit_stride>
[[gnu::always_inline]] inline void row_filters(const RowArguments<T>& a, Index first_filter) {
  // Blocks of about equal size: each has enough independent sums to hide latency.
  const Index blocks = (a.pixels + max_pixels - 1) / max_pixels;
  Index first = 0;
  for (Index b = 0; b < blocks; ++b) {
    const Index last = a.pixels * (b + 1) / blocks;
    row_block_of<T, lanes, num_vectors, max_pixels, unit_stride>(a, last - first, first, first_filter);
    first = last;
  }
}

template <class T, int lanes, int pixels_1, int pixels_2>
[[gnu::always_inline]] inline Index row_all(const RowArguments<T>& a, Index f) {
  for (; f + 2 * lanes <= a.padded; f += 2 * lanes) row_filters<T, lanes, 2, pixels_2, false>(a, f);
  for (; f + lanes <= a.padded; f += lanes) {
    if (a.x_pixel == 1) {
      row_filters<T, lanes, 1, pixels_1, true>(a, f);
    } else {
      row_filters<T, lanes, 1, pixels_1, false>(a, f);
    }
  }
  return f;
}

template <class T, int lanes, int num_vectors, int num_values>
[[gnu::always_inline]] inline void filter_block(const FilterArguments<T>& a, Index first_value, Index first_filter) {
  using V = Vector<T, lanes>;
  // Sums of one call start at zero: sums of sums lose fewer digits than one long sum. A few sums cannot hide the
  // latency of additions: then odd and even pixels have sums of their own.
  constexpr int ways = num_values * num_vectors <= 7 ? 2 : 1;
  V sum[ways][num_values][num_vectors];
  T* out = a.sum + first_value * a.padded + first_filter;
#pragma GCC unroll 16
  for (int j = 0; j < num_values; ++j)
#pragma GCC unroll 4
    for (int v = 0; v < num_vectors; ++v) {
      sum[0][j][v] = V{};
      if constexpr (ways == 2) sum[1][j][v] = V{};
    }
  for (Index r = 0; r < a.rows; ++r) {
    const T* x = a.x[r] + first_value;
    const T* dy = a.dy[r] + first_filter;
    Index p = 0;
    if constexpr (ways == 2) {
      for (; p + 2 <= a.pixels; p += 2) {
#pragma GCC unroll 2
        for (int way = 0; way < 2; ++way, x += a.x_pixel, dy += a.dy_pixel) {
          V d[num_vectors];
#pragma GCC unroll 4
          for (int v = 0; v < num_vectors; ++v) d[v] = *reinterpret_cast<const V*>(dy + v * lanes);
#pragma GCC unroll 16
          for (int j = 0; j < num_values; ++j) {
            const T value = x[j];
#pragma GCC unroll 4
            for (int v = 0; v < num_vectors; ++v) sum[way][j][v] += value * d[v];
          }
        }
      }
    }
    for (; p < a.pixels; ++p, x += a.x_pixel, dy += a.dy_pixel) {
      V d[num_vectors];
#pragma GCC unroll 4
      for (int v = 0; v < num_vectors; ++v) d[v] = *reinterpret_cast<const V*>(dy + v * lanes);
#pragma GCC unroll 16
      for (int j = 0; j < num_values; ++j) {
        const T value = x[j];
#pragma GCC unroll 4
        for (int v = 0; v < num_vectors; ++v) sum[0][j][v] += value * d[v];
      }
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < num_values; ++j)
#pragma GCC unroll 4
    for (int v = 0; v < num_vectors; ++v) {
      if constexpr (ways == 2) sum[0][j][v] += sum[1][j][v];
      *reinterpret_cast<V*>(out + j * a.padded + v * lanes) += sum[0][j][v];
    }
}

template <class T, int lanes, int num_vectors, int num_values>
[[gnu::always_inline]] inline void filter_block_of(const FilterArguments<T>& a, Index values, Index first_value,
                                                   Index first_filter) {
  if constexpr (num_values > 0) {
    if (values == num_values) {
      filter_block<T, lanes, num_vectors, num_values>(a, first_value, first_filter);
    } else {
      filter_block_of<T, lanes, num_vectors, num_values - 1>(a, values, first_value, first_filter);
    }
  }
}

template <class T, int lanes, int num_vectors, int max_values>
[[gnu::always_inline]] inline void filter_values(const FilterArguments<T>& a, Index first_filter) {
  const Index blocks = (a.values + max_values - 1) / max_values;
  Index first = 0;
  for (Index b = 0; b < blocks; ++b) {
    const Index last = a.values * (b + 1) / blocks;
    filter_block_of<T, lanes, num_vectors, max_values>(a, last - first, first, first_filter);
    first = last;
  }
}

template <class T, int lanes, int values_1, int values_2>
[[gnu::always_inline]] inline Index filter_all(const FilterArguments<T>& a, Index f) {
  for (; f + 2 * lanes <= a.padded; f += 2 * lanes) filter_values<T, lanes, 2, values_2>(a, f);
  for (; f + lanes <= a.padded; f += lanes) filter_values<T, lanes, 1, values_1>(a, f);
  return f;
}

template <class T, int lanes>
[[gnu::always_inline]] inline void column_sums(const FilterArguments<T>& a) {
  using V = Vector<T, lanes>;
  for (Index f = 0; f < a.padded; f += lanes) {
    V sum[4] = {};
    for (Index r = 0; r < a.rows; ++r) {
      const T* dy = a.dy[r] + f;
      Index p = 0;
      for (; p + 4 <= a.pixels; p += 4)
#pragma GCC unroll 4
        for (int way = 0; way < 4; ++way, dy += a.dy_pixel) sum[way] += *reinterpret_cast<const V*>(dy);
      for (; p < a.pixels; ++p, dy += a.dy_pixel) sum[0] += *reinterpret_cast<const V*>(dy);
    }
    *reinterpret_cast<V*>(a.sum + f) += (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
}

// Without attribute: vectors that every processor of the target architecture has (16 bytes, sixteen registers).
template <class T>
void row_baseline(const RowArguments<T>& a) {
  row_all<T, 16 / sizeof(T), 8, 5>(a, 0);
}
template <class T>
void filter_baseline(const FilterArguments<T>& a) {
  filter_all<T, 16 / sizeof(T), 8, 5>(a, 0);
}
template <class T>
void column_sums_baseline(const FilterArguments<T>& a) {
  column_sums<T, 16 / sizeof(T)>(a);
}
template <class T>
constexpr DirectKernels<T> baseline{"baseline", 16 / sizeof(T), row_baseline<T>, filter_baseline<T>,
                                    column_sums_baseline<T>};

#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2,fma"))) void row_avx2(const RowArguments<T>& a) {
  row_all<T, 32 / sizeof(T), 10, 6>(a, 0);
}
template <class T>
__attribute__((target("avx2,fma"))) void filter_avx2(const FilterArguments<T>& a) {
  filter_all<T, 32 / sizeof(T), 10, 6>(a, 0);
}
template <class T>
__attribute__((target("avx2,fma"))) void column_sums_avx2(const FilterArguments<T>& a) {
  column_sums<T, 32 / sizeof(T)>(a);
}
template <class T>
constexpr DirectKernels<T> avx2{"avx2", 32 / sizeof(T), row_avx2<T>, filter_avx2<T>, column_sums_avx2<T>};

// Filters are padded to 32 bytes only. Filters that do not fill a 64 byte vector go through a 32 byte vector.
template <class T>
__attribute__((target("avx512f,avx512vl,avx2,fma"))) void row_avx512(const RowArguments<T>& a) {
  const Index f = row_all<T, 64 / sizeof(T), 14, 12>(a, 0);
  if (f == a.padded) return;
  if (a.x_pixel == 1) {
    row_filters<T, 32 / sizeof(T), 1, 14, true>(a, f);
  } else {
    row_filters<T, 32 / sizeof(T), 1, 14, false>(a, f);
  }
}
template <class T>
__attribute__((target("avx512f,avx512vl,avx2,fma"))) void filter_avx512(const FilterArguments<T>& a) {
  const Index f = filter_all<T, 64 / sizeof(T), 15, 12>(a, 0);
  if (f < a.padded) filter_values<T, 32 / sizeof(T), 1, 15>(a, f);
}
template <class T>
constexpr DirectKernels<T> avx512{"avx512", 32 / sizeof(T), row_avx512<T>, filter_avx512<T>, column_sums_avx2<T>};
#endif

}  // namespace

template <class T>
const DirectKernels<T>& direct_kernels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return avx512<T>;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2<T>;
#endif
  return baseline<T>;
}

template <class T>
std::vector<const DirectKernels<T>*> all_direct_kernels() {
  std::vector<const DirectKernels<T>*> all{&baseline<T>};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&avx2<T>);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) all.push_back(&avx512<T>);
#endif
  return all;
}

template const DirectKernels<float>& direct_kernels<float>();
template const DirectKernels<double>& direct_kernels<double>();
template std::vector<const DirectKernels<float>*> all_direct_kernels<float>();
template std::vector<const DirectKernels<double>*> all_direct_kernels<double>();

}  // namespace aloni::nn::local::detail
