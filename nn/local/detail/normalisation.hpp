#pragma once
// Shared by the normalisations: two sums per channel over rows of a tensor, and loops that apply mean and deviation to
// each element. Mean and deviation belong to a channel of a sample (group) or to a cell (layer normalisation). Those of
// a channel have loops of their own (batch_norm_kernels.hpp).
#include <aloni/nn/local/channel_sums.hpp>
#include <aloni/nn/local/detail/device_loops.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/local_types.hpp>

#include <algorithm>

namespace aloni::nn::local::detail {

/// The index of an element's statistics: one for each channel, for all samples (sample_stride 0) or for each sample
/// (channels).
struct PerChannel {
  Index sample_stride = 0;
  KOKKOS_FUNCTION Index operator()(const Rows&, Index n, Index, Index, Index, Index c) const {
    return n * sample_stride + c;
  }
};

/// One for each cell: a pixel of one sample with all of its channels.
struct PerCell {
  KOKKOS_FUNCTION Index operator()(const Rows& rows, Index n, Index d, Index h, Index w, Index) const {
    return ((n * rows.depth + d) * rows.height + h) * rows.width + w;
  }
};

/// How rows are added. A segment is a set of rows with one sum: the whole tensor, or a sample. Each segment is split
/// into shares, and each share is added in its own part of the workspace. The numbers depend on the extents, not
/// on the threads, so sums do not change with the number of threads.
struct Shares {
  Index segments, rows, shares;  ///< rows and shares of one segment
  KOKKOS_FUNCTION Index total() const { return segments * shares; }
  KOKKOS_FUNCTION Index begin(Index i) const { return i / shares * rows + rows * (i % shares) / shares; }
  KOKKOS_FUNCTION Index end(Index i) const { return i / shares * rows + rows * (i % shares + 1) / shares; }
};

inline Shares shares_of(Index segments, Index rows_of_segment, Index most = most_channel_shares) {
  const Index wanted = segments == 0 ? 0 : (most + segments - 1) / segments;
  return {segments, rows_of_segment, wanted == 0 ? 0 : channel_shares(rows_of_segment, wanted)};
}

/// Two sums per channel over a share of rows: of x and x², or of dy and dy·x̂. On a host, one index is a share, and the
/// loop over channels runs over contiguous memory. A device has the loops of device_loops.hpp.
template <class T, class Exec, bool gradients, class Statistics>
struct PartialSums {
  struct NoConstants {};

  Rows rows;
  Shares shares;
  Statistics statistics;
  Tensor<const T, Exec> x, dy;
  Array<const double, Exec> mean, inv_std;
  Array<double, Exec> partial;

  /// s: the index of the element's statistics
  KOKKOS_FUNCTION void add_value(double value, double g, Index s, double& first, double& second) const {
    if constexpr (gradients) {
      first += g;
      second += g * ((value - mean(s)) * inv_std(s));
    } else {
      first += value;
      second += value * value;
    }
  }

  // On a device, as device_loops.hpp says.
  using Element = T;
  using Constants = NoConstants;
  static constexpr int sums = 2, tensors = gradients ? 2 : 1;
  static constexpr Index most_lanes = 32;
  template <int N>
  struct Values {
    PixelPlace place;
    Index channel;
    Pack<T, N> x, dy;
  };
  template <int N>
  bool has_packs() const {
    return detail::has_packs<N>(x) && (!gradients || detail::has_packs<N>(dy));
  }
  KOKKOS_FUNCTION NoConstants constants(Index) const { return {}; }
  template <int N>
  KOKKOS_FUNCTION Values<N> read(const PixelPlace& p, Index c) const {
    Values<N> v;
    v.place = p;
    v.channel = c;
    v.x = read_pack<N>(x, p, c);
    if constexpr (gradients) v.dy = read_pack<N>(dy, p, c);
    return v;
  }
  template <int N>
  KOKKOS_FUNCTION void add(const Values<N>& v, const NoConstants (&)[N], double (&sum)[2][N]) const {
    for (int j = 0; j < N; ++j) {
      const Index s = gradients ? statistics(rows, v.place.n, v.place.d, v.place.h, v.place.w, v.channel + j) : 0;
      add_value(static_cast<double>(v.x.value[j]), gradients ? static_cast<double>(v.dy.value[j]) : 0, s, sum[0][j],
                sum[1][j]);
    }
  }
  KOKKOS_FUNCTION void store(Index share, Index s, Index c, double sum) const {
    partial((share * 2 + s) * rows.channels + c) = sum;
  }
  void operator()(const Index i) const {
    double* const first = partial.data() + i * 2 * rows.channels;
    double* const second = first + rows.channels;
    for (Index c = 0; c < 2 * rows.channels; ++c) first[c] = 0;
    for (Index r = shares.begin(i); r < shares.end(i); ++r) {
      Index n, d, h;
      rows.row(r, n, d, h);
      for (Index w = 0; w < rows.width; ++w)
        for (Index c = 0; c < rows.channels; ++c)
          add_value(static_cast<double>(x(n, d, h, w, c)), gradients ? static_cast<double>(dy(n, d, h, w, c)) : 0,
                    gradients ? statistics(rows, n, d, h, w, c) : 0, first[c], second[c]);
    }
  }
};

/// Adds the shares of each segment. On a host, one index is a value. A device has the loops of device_loops.hpp, in
/// which a segment is a sample, a share a pixel and a value a channel.
template <class Exec>
struct AddShares {
  Rows rows;
  Array<const double, Exec> partial;
  Array<double, Exec> total;

  void operator()(const Index i) const {
    const Index segment = i / rows.channels, value = i % rows.channels;
    double sum = 0;
    for (Index s = 0; s < rows.width; ++s) sum += partial((segment * rows.width + s) * rows.channels + value);
    total(i) = sum;
  }

  using Element = double;
  struct Constants {};
  template <int N>
  using Values = Pack<double, N>;
  static constexpr int sums = 1, tensors = 1;
  static constexpr Index most_lanes = 8;  ///< few values: rather many threads for each
  Shares shares{rows.samples, 1, 1};

  KOKKOS_FUNCTION Constants constants(Index) const { return {}; }
  template <int N>
  KOKKOS_FUNCTION Values<N> read(const PixelPlace& p, Index c) const {
    return load_pack<N>(&partial((p.n * rows.width + p.w) * rows.channels + c));
  }
  template <int N>
  KOKKOS_FUNCTION void add(const Values<N>& v, const Constants (&)[N], double (&sum)[1][N]) const {
    for (int j = 0; j < N; ++j) sum[0][j] += v.value[j];
  }
  KOKKOS_FUNCTION void store(Index segment, Index, Index value, double sum) const {
    total(segment * rows.channels + value) = sum;
  }
};

template <class Exec>
void add_shares(const Exec& exec, const Shares& shares, Index values, const InArray<double, Exec>& partial,
                const Array<double, Exec>& sums) {
  constexpr auto label = "aloni::nn::add_shares";
  const AddShares<Exec> kernel{
      .rows = {shares.segments, 1, 1, shares.shares, values}, .partial = partial, .total = sums};
  if constexpr (runs_on_host<Exec>) {
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, shares.segments * values), kernel);
  } else {
    sum_channels_of_shares<1>(exec, label, kernel);
  }
}

/// sums: for each segment Σx, Σx² of the channels or, with gradients, Σdy, Σdy·x̂. `partial` has shares.total() · 2 ·
/// channels elements.
template <class T, class Exec, bool gradients, class Statistics>
void reduce_channels(const Exec& exec, const char* label, const Rows& rows, const Shares& shares,
                     const Statistics& statistics, const InTensor<T, Exec>& x, const InTensor<T, Exec>& dy,
                     const InArray<double, Exec>& mean, const InArray<double, Exec>& inv_std,
                     const Array<double, Exec>& partial, const Array<double, Exec>& sums) {
  const PartialSums<T, Exec, gradients, Statistics> kernel{rows, shares, statistics, x, dy, mean, inv_std, partial};
  if constexpr (runs_on_host<Exec>) {
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, shares.total()), kernel);
  } else {
    sum_channels_of_shares(exec, label, kernel);
  }
  add_shares(exec, shares, 2 * rows.channels, partial, sums);
}

/// y = (x - mean) × inv_std × gamma + beta.
template <class T, class Exec>
struct Normalise {
  Rows rows;
  PerChannel statistics;
  Tensor<const T, Exec> x;
  Array<const double, Exec> mean, inv_std;
  Array<const parameter_type_t<T>, Exec> gamma, beta;
  Tensor<T, Exec> y;
  KOKKOS_FUNCTION void element(Index n, Index d, Index h, Index w, Index c) const {
    const Index s = statistics(rows, n, d, h, w, c);
    const double normal = (static_cast<double>(x(n, d, h, w, c)) - mean(s)) * inv_std(s);
    y(n, d, h, w, c) = static_cast<T>(normal * static_cast<double>(gamma(c)) + static_cast<double>(beta(c)));
  }
};

/// Of parameters of type T: dgamma = Σdy·x̂ and dbeta = Σdy, added over the segments of `sums`.
template <class T, class Exec>
struct ParameterGradients {
  Index segments, channels;
  Array<const double, Exec> sums;
  Array<T, Exec> dgamma, dbeta;
  KOKKOS_FUNCTION void operator()(const Index c) const {
    double first = 0, second = 0;
    for (Index s = 0; s < segments; ++s) {
      first += sums(s * 2 * channels + c);
      second += sums((s * 2 + 1) * channels + c);
    }
    dbeta(c) = static_cast<T>(first);
    dgamma(c) = static_cast<T>(second);
  }
};

}  // namespace aloni::nn::local::detail
