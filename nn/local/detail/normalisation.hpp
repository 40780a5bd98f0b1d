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

inline Shares shares_of(Index segments, Index rows_of_segment) {
  const Index wanted = segments == 0 ? 0 : (most_channel_shares + segments - 1) / segments;
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

  KOKKOS_FUNCTION void add(Index n, Index d, Index h, Index w, Index c, double& first, double& second) const {
    const double value = static_cast<double>(x(n, d, h, w, c));
    if constexpr (gradients) {
      const double g = static_cast<double>(dy(n, d, h, w, c));
      const Index s = statistics(rows, n, d, h, w, c);
      first += g;
      second += g * ((value - mean(s)) * inv_std(s));
    } else {
      first += value;
      second += value * value;
    }
  }
  KOKKOS_FUNCTION NoConstants constants(Index) const { return {}; }
  KOKKOS_FUNCTION void add(const PixelPlace& p, Index c, NoConstants, double& first, double& second) const {
    add(p.n, p.d, p.h, p.w, c, first, second);
  }
  void operator()(const Index i) const {
    double* const first = partial.data() + i * 2 * rows.channels;
    double* const second = first + rows.channels;
    for (Index c = 0; c < 2 * rows.channels; ++c) first[c] = 0;
    for (Index r = shares.begin(i); r < shares.end(i); ++r) {
      Index n, d, h;
      rows.row(r, n, d, h);
      for (Index w = 0; w < rows.width; ++w)
        for (Index c = 0; c < rows.channels; ++c) add(n, d, h, w, c, first[c], second[c]);
    }
  }
};

template <class Exec>
struct AddShares {
  Index shares, values;
  Array<const double, Exec> partial;
  Array<double, Exec> sums;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index segment = i / values, value = i % values;
    double sum = 0;
    for (Index s = 0; s < shares; ++s) sum += partial((segment * shares + s) * values + value);
    sums(i) = sum;
  }
};

template <class Exec>
void add_shares(const Exec& exec, const Shares& shares, Index values, const InArray<double, Exec>& partial,
                const Array<double, Exec>& sums) {
  Kokkos::parallel_for("aloni::nn::add_shares", Range<Exec>(exec, 0, shares.segments * values),
                       AddShares<Exec>{shares.shares, values, partial, sums});
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
