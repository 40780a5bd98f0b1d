#pragma once
// The loops of batch normalisation over all elements, alone or with a ReLU behind it.
//
// Elements are computed in the type of the parameters, sums in double. On a host the loops run over blocks of channels,
// whose constants are rounded to that type once for several rows. On a device they are the loops of device_loops.hpp.
//
// The gradient through the ReLU needs the sign of y. The kernels compute it from x again, so they do not read y.
// They load dy in any case (`if_positive`), and loops of a host have no branch.
#include <aloni/nn/local/detail/choose_by_sign.hpp>
#include <aloni/nn/local/detail/device_loops.hpp>
#include <aloni/nn/local/detail/normalisation.hpp>

#include <algorithm>
#include <type_traits>

namespace aloni::nn::local::detail {

/// One value per channel.
template <class T, class Exec>
struct ChannelArrays {
  Array<const double, Exec> mean, inv_std;
  Array<const parameter_type_t<T>, Exec> gamma = {}, beta = {};  ///< empty: not read
  Array<const double, Exec> sums = {};                           ///< Σdy, Σdy·x̂ of all ranks; empty: not read
  double inverse_count = 0;
};

/// The constants of one channel: y = (x - mean) · scale + shift, x̂ = (x - mean) · inv_std.
template <class Real>
struct ChannelConstants {
  Real mean = 0, inv_std = 0, scale = 0, shift = 0;
  Real mean_dy = 0, mean_dot = 0;  ///< Σdy / count, Σdy·x̂ / count

  template <class Arrays>
  KOKKOS_FUNCTION static ChannelConstants of(const Arrays& a, Index c) {
    ChannelConstants k;
    k.mean = static_cast<Real>(a.mean(c));
    k.inv_std = static_cast<Real>(a.inv_std(c));
    if (a.gamma.extent(0) > 0) k.scale = static_cast<Real>(a.inv_std(c) * static_cast<double>(a.gamma(c)));
    if (a.beta.extent(0) > 0) k.shift = a.beta(c);
    if (a.sums.extent(0) > 0) {
      k.mean_dy = static_cast<Real>(a.sums(c) * a.inverse_count);
      k.mean_dot = static_cast<Real>(a.sums(static_cast<Index>(a.mean.extent(0)) + c) * a.inverse_count);
    }
    return k;
  }
  KOKKOS_FUNCTION Real y(Real x) const { return (x - mean) * scale + shift; }
  KOKKOS_FUNCTION Real normal(Real x) const { return (x - mean) * inv_std; }
};

/// The constants of consecutive channels, in memory that vector loads like.
template <class Real>
struct ChannelBlock {
  static constexpr Index most = 1024;
  Real mean[most], inv_std[most], scale[most], shift[most], mean_dy[most], mean_dot[most];

  template <class Arrays>
  void read(const Arrays& arrays, Index first, Index count) {
    for (Index c = 0; c < count; ++c) {
      const auto k = ChannelConstants<Real>::of(arrays, first + c);
      mean[c] = k.mean;
      inv_std[c] = k.inv_std;
      scale[c] = k.scale;
      shift[c] = k.shift;
      mean_dy[c] = k.mean_dy;
      mean_dot[c] = k.mean_dot;
    }
  }
  ChannelConstants<Real> operator[](Index c) const {
    return {mean[c], inv_std[c], scale[c], shift[c], mean_dy[c], mean_dot[c]};
  }
};

// Functions of an element of x, and of one of another tensor if `reads_other`. If `adds`, an element of a summand is
// added to the result.

/// y from x.
template <class Real, bool relu>
struct BatchNormValue {
  static constexpr bool reads_other = false, adds = false;
  KOKKOS_FUNCTION static Real of(Real x, Real, const ChannelConstants<Real>& k) {
    const Real y = k.y(x);
    return relu ? unless_negative(y) : y;
  }
};
/// y from x and the summand.
template <class Real, bool relu>
struct BatchNormSum {
  static constexpr bool reads_other = true, adds = false;
  KOKKOS_FUNCTION static Real of(Real x, Real summand, const ChannelConstants<Real>& k) {
    const Real y = k.y(x) + summand;
    return relu ? unless_negative(y) : y;
  }
};
/// dx from x and dy; with `sum` the gradient of x by other layers is added.
template <class Real, bool relu, bool sum = false>
struct BatchNormGradient {
  static constexpr bool reads_other = true, adds = sum;
  KOKKOS_FUNCTION static Real of(Real x, Real dy, const ChannelConstants<Real>& k) {
    const Real g = relu ? if_positive(k.y(x), dy) : dy;
    return k.scale * (g - k.mean_dy - k.normal(x) * k.mean_dot);
  }
};

/// Prefetches the channels of a later pixel, in tensors with gaps between pixels: the processor finds them by itself in
/// dense ones only.
class PixelsAhead {
 public:
  template <class View>
  PixelsAhead(const View& x, Index channels) {
    constexpr Index bytes_ahead = 2048;
    const Index size = static_cast<Index>(sizeof(typename View::value_type));
    const Index pixel = static_cast<Index>(x.stride(3));
    if (x.stride(4) != 1 || pixel <= channels) return;
    bytes_ = (bytes_ahead / (channels * size) + 1) * pixel * size;
  }
  template <class T>
  void prefetch(const T* pixel, Index count) const {
    if (bytes_ == 0) return;
    constexpr Index line = 64;
    const char* const first = reinterpret_cast<const char*>(pixel) + bytes_;
    for (Index i = 0; i < count * static_cast<Index>(sizeof(T)); i += line) __builtin_prefetch(first + i);
  }

 private:
  Index bytes_ = 0;  ///< ahead; 0: none
};

/// Computes each element of `result`, which may be one of the others.
template <class T, class Exec, class Function>
struct EachNormalised {
  using Real = parameter_type_t<T>;

  Rows rows;
  ChannelArrays<T, Exec> channels;
  Tensor<const T, Exec> x, other;
  Tensor<T, Exec> result;
  Tensor<const T, Exec> summand = {};
  Index rows_per_index = 1;

  /// On a host, one index is a block of rows.
  void operator()(const Index i) const {
    run_rows(i * rows_per_index, std::min((i + 1) * rows_per_index, rows.rows()));
  }

  // On a device, as device_loops.hpp says.
  using Element = T;
  using Constants = ChannelConstants<Real>;
  static constexpr int tensors = 1 + (Function::reads_other ? 1 : 0) + (Function::adds ? 1 : 0);
  template <int N>
  struct Values {
    Pack<T, N> x, other, summand;
  };
  template <int N>
  bool has_packs() const {
    return detail::has_packs<N>(x) && detail::has_packs<N>(result) &&
           (!Function::reads_other || detail::has_packs<N>(other)) &&
           (!Function::adds || detail::has_packs<N>(summand));
  }
  KOKKOS_FUNCTION Constants constants(Index c) const { return Constants::of(channels, c); }
  template <int N>
  KOKKOS_FUNCTION Values<N> read(const PixelPlace& p, Index c) const {
    Values<N> v;
    v.x = read_pack<N>(x, p, c);
    if constexpr (Function::reads_other) v.other = read_pack<N>(other, p, c);
    if constexpr (Function::adds) v.summand = read_pack<N>(summand, p, c);
    return v;
  }
  template <int N>
  KOKKOS_FUNCTION void write(const PixelPlace& p, Index c, const Values<N>& v, const Constants (&k)[N]) const {
    Pack<T, N> results;
    for (int j = 0; j < N; ++j) {
      Real g = 0;
      if constexpr (Function::reads_other) g = static_cast<Real>(v.other.value[j]);
      Real value = Function::of(static_cast<Real>(v.x.value[j]), g, k[j]);
      if constexpr (Function::adds) value += static_cast<Real>(v.summand.value[j]);
      results.value[j] = static_cast<T>(value);
    }
    store_pack(&result(p.n, p.d, p.h, p.w, c), results);
  }

  void run_rows(Index begin, Index end) const {
    const PixelsAhead x_ahead(x, rows.channels);
    ChannelBlock<Real> block;
    for (Index first = 0; first < rows.channels; first += ChannelBlock<Real>::most) {
      const Index count = std::min(ChannelBlock<Real>::most, rows.channels - first);
      block.read(channels, first, count);
      for (Index r = begin; r < end; ++r) {
        Index n, d, h;
        rows.row(r, n, d, h);
        for (Index w = 0; w < rows.width; ++w) {
          const T* const from = &x(n, d, h, w, first);
          const T* const second = Function::reads_other ? &other(n, d, h, w, first) : nullptr;
          const T* const third = Function::adds ? &summand(n, d, h, w, first) : nullptr;
          T* const to = &result(n, d, h, w, first);
          x_ahead.prefetch(from, count);
          if (x.stride(4) == 1 && result.stride(4) == 1 && (!Function::reads_other || other.stride(4) == 1) &&
              (!Function::adds || summand.stride(4) == 1))
            run_pixel(block, count, from, 1, second, 1, third, 1, to, 1);
          else
            run_pixel(block, count, from, x.stride(4), second, other.stride(4), third, summand.stride(4), to,
                      result.stride(4));
        }
      }
    }
  }

  template <class Stride>
  static void run_pixel(const ChannelBlock<Real>& block, Index count, const T* x, Stride x_stride, const T* other,
                        Stride other_stride, const T* summand, Stride summand_stride, T* to, Stride stride) {
#pragma GCC ivdep
    for (Index c = 0; c < count; ++c) {
      Real g = 0;
      if constexpr (Function::reads_other) g = static_cast<Real>(other[c * other_stride]);
      Real value = Function::of(static_cast<Real>(x[c * x_stride]), g, block[c]);
      if constexpr (Function::adds) value += static_cast<Real>(summand[c * summand_stride]);
      to[c * stride] = static_cast<T>(value);
    }
  }
};

template <class Function, class T, class Exec>
void for_each_normalised(const Exec& exec, const char* label, const ChannelArrays<T, Exec>& channels,
                         const InTensor<T, Exec>& x, const InTensor<T, Exec>& other, const Tensor<T, Exec>& result,
                         const InTensor<T, Exec>& summand = {}) {
  const Rows rows = rows_of(result);
  if (rows.elements() == 0) return;
  EachNormalised<T, Exec, Function> kernel{rows, channels, x, other, result, summand};
  if constexpr (runs_on_host<Exec>) {
    constexpr Index elements_per_index = 1 << 14;
    kernel.rows_per_index = std::max<Index>(elements_per_index / (rows.width * rows.channels), 1);
    const Index indices = (rows.rows() + kernel.rows_per_index - 1) / kernel.rows_per_index;
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, indices), kernel);
  } else {
    for_each_pixel_of_channels(exec, label, kernel);
  }
}

/// Two sums per channel over a share of rows: of x and x², or with `gradients` of dy and dy·x̂.
template <class T, class Exec, bool gradients, bool relu>
struct BatchNormSums {
  using Real = parameter_type_t<T>;

  Rows rows;
  Shares shares;
  ChannelArrays<T, Exec> channels;
  Tensor<const T, Exec> x, dy;
  Array<double, Exec> partial;

  /// On a host, one index is a share.
  void operator()(const Index i) const { run_share(i); }

  // On a device, as device_loops.hpp says.
  using Element = T;
  using Constants = ChannelConstants<Real>;
  static constexpr int sums = 2, tensors = gradients ? 2 : 1;
  static constexpr Index most_lanes = 32;
  template <int N>
  struct Values {
    Pack<T, N> x, dy;
  };
  template <int N>
  bool has_packs() const {
    return detail::has_packs<N>(x) && (!gradients || detail::has_packs<N>(dy));
  }
  KOKKOS_FUNCTION Constants constants(Index c) const {
    if constexpr (gradients) return Constants::of(channels, c);
    return {};
  }
  template <int N>
  KOKKOS_FUNCTION Values<N> read(const PixelPlace& p, Index c) const {
    Values<N> v;
    v.x = read_pack<N>(x, p, c);
    if constexpr (gradients) v.dy = read_pack<N>(dy, p, c);
    return v;
  }
  template <int N>
  KOKKOS_FUNCTION void add(const Values<N>& v, const Constants (&k)[N], double (&sum)[2][N]) const {
    for (int j = 0; j < N; ++j) {
      const Real value = static_cast<Real>(v.x.value[j]);
      if constexpr (gradients) {
        Real g = static_cast<Real>(v.dy.value[j]);
        if constexpr (relu) g = if_positive(k[j].y(value), g);
        sum[0][j] += static_cast<double>(g);
        sum[1][j] += static_cast<double>(g * k[j].normal(value));
      } else {
        sum[0][j] += static_cast<double>(value);
        sum[1][j] += static_cast<double>(value) * static_cast<double>(value);
      }
    }
  }
  KOKKOS_FUNCTION void store(Index share, Index s, Index c, double sum) const {
    partial((share * 2 + s) * rows.channels + c) = sum;
  }

  void run_share(Index i) const {
    double* const first = partial.data() + i * 2 * rows.channels;
    double* const second = first + rows.channels;
    for (Index c = 0; c < 2 * rows.channels; ++c) first[c] = 0;
    const bool dense = x.stride(4) == 1 && (!gradients || dy.stride(4) == 1);
    const PixelsAhead x_ahead(x, rows.channels);
    ChannelBlock<Real> block;
    for (Index begin = 0; begin < rows.channels; begin += ChannelBlock<Real>::most) {
      const Index count = std::min(ChannelBlock<Real>::most, rows.channels - begin);
      if constexpr (gradients) block.read(channels, begin, count);
      for (Index r = shares.begin(i); r < shares.end(i); ++r) {
        Index n, d, h;
        rows.row(r, n, d, h);
        for (Index w = 0; w < rows.width; ++w) {
          const T* const values = &x(n, d, h, w, begin);
          const T* const slopes = gradients ? &dy(n, d, h, w, begin) : nullptr;
          x_ahead.prefetch(values, count);
          if (dense)
            add_pixel(block, count, values, 1, slopes, 1, first + begin, second + begin);
          else
            add_pixel(block, count, values, x.stride(4), slopes, dy.stride(4), first + begin, second + begin);
        }
      }
    }
  }

  template <class Stride>
  static void add_pixel(const ChannelBlock<Real>& block, Index count, const T* values, Stride stride, const T* slopes,
                        Stride slope_stride, double* first, double* second) {
    if constexpr (gradients) {
#pragma GCC ivdep
      for (Index c = 0; c < count; ++c) {
        const Real value = static_cast<Real>(values[c * stride]);
        Real g = static_cast<Real>(slopes[c * slope_stride]);
        if constexpr (relu) g = if_positive(block[c].y(value), g);
        first[c] += static_cast<double>(g);
        second[c] += static_cast<double>(g * block[c].normal(value));
      }
    } else {
#pragma GCC ivdep
      for (Index c = 0; c < count; ++c) {
        const double value = static_cast<double>(values[c * stride]);
        first[c] += value;
        second[c] += value * value;
      }
    }
  }
};

/// sums: Σx, Σx² or Σdy, Σdy·x̂ of each channel. `partial` has partial_sums() elements.
template <bool gradients, bool relu, class T, class Exec>
void add_batch_norm_sums(const Exec& exec, const char* label, const ChannelArrays<T, Exec>& channels,
                         const InTensor<T, Exec>& x, const InTensor<T, Exec>& dy, const Array<double, Exec>& partial,
                         const Array<double, Exec>& sums) {
  const Rows rows = rows_of(x);
  const Shares shares = shares_of(1, rows.rows(), most_shares(runs_on_host<Exec>, rows.channels));
  const BatchNormSums<T, Exec, gradients, relu> kernel{rows, shares, channels, x, dy, partial};
  if constexpr (runs_on_host<Exec>) {
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, shares.total()), kernel);
  } else {
    sum_channels_of_shares(exec, label, kernel);
  }
  add_shares(exec, shares, 2 * rows.channels, partial, sums);
}

}  // namespace aloni::nn::local::detail
