#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/group_by_group.hpp>
#include <aloni/nn/local/gemm.hpp>
#include <aloni/nn/local/pointwise.hpp>

#include <algorithm>
#include <cstdint>

// Convolution as matrix multiplication on tiles. A tile is a run of output pixels (over samples, depth, height and
// width); its matrix `columns` (pixels × kernel · channels) holds each pixel's window, and exists for one tile at a
// time:
//   forward          y(tile)   = columns Wᵀ + bias
//   backward-filter  dW       += dy(tile)ᵀ columns
//   backward-data    columns   = dy(tile) W, then each element of dx gathers its share; with stride 1, if it is faster,
//                    the forward pass from dy to dx with flipped filters
// Groups are multiplied one after the other. The tile bounds the workspace, not the tensor. dx gathers instead of
// scattering, which keeps the order of sums fixed.

namespace aloni::nn::local::detail {

struct Tile {
  Index begin, end;  // output pixels, counted over samples, depth, height, width
};

/// Start of the window of an output pixel.
struct WindowStart {
  Index n, d, h, w;
};
KOKKOS_INLINE_FUNCTION WindowStart window_of(const ConvolutionProblem& p, Index pixel) {
  const Index ow = pixel % p.output[2];
  pixel /= p.output[2];
  const Index oh = pixel % p.output[1];
  pixel /= p.output[1];
  return {pixel / p.output[0], pixel % p.output[0] * p.stride[0] + p.offset[0], oh * p.stride[1] + p.offset[1],
          ow * p.stride[2] + p.offset[2]};
}

// Copies of the channels of one pixel, to or from dense memory. Compilers vectorise the loops over contiguous channels,
// the usual case.
template <class T>
KOKKOS_INLINE_FUNCTION void copy_channels(const T* __restrict__ from, Index from_step, T* __restrict__ to,
                                          Index to_step, Index channels) {
  if (from_step == 1 && to_step == 1) {
    // In blocks: compilers turn a plain loop into a call of memcpy, which takes longer than a copy of a few channels.
    constexpr int block = 16;
    Index c = 0;
    for (; c + block <= channels; c += block)
      for (int i = 0; i < block; ++i) to[c + i] = from[c + i];
    for (; c < channels; ++c) to[c] = from[c];
  } else {
    for (Index c = 0; c < channels; ++c) to[c * to_step] = from[c * from_step];
  }
}
template <class T>
KOKKOS_INLINE_FUNCTION void add_channels(const T* __restrict__ from, T* __restrict__ to, Index step, Index channels) {
  if (step == 1) {
    for (Index c = 0; c < channels; ++c) to[c] += from[c];
  } else {
    for (Index c = 0; c < channels; ++c) to[c * step] += from[c];
  }
}
template <class T>
KOKKOS_INLINE_FUNCTION void zero(T* to, Index count) {
  for (Index i = 0; i < count; ++i) to[i] = T(0);
}

/// The windows of the pixels of a tile.
template <class T, class Exec>
struct GatherColumns {
  ConvolutionProblem p;
  Index begin;
  Tensor<const T, Exec> x;
  T* columns;
  bool side_by_side;  // a row of a window is contiguous in x

  /// One row of a window (fixed kernel depth and height): kernel width × channels.
  KOKKOS_FUNCTION void gather_row(const WindowStart& from, Index kd, Index kh, T* out) const {
    const Index d = from.d + kd * p.dilation[0], h = from.h + kh * p.dilation[1], channels = p.channels;
    if (d < 0 || d >= p.input[0] || h < 0 || h >= p.input[1]) {
      zero(out, p.kernel[2] * channels);
    } else if (side_by_side) {
      const Index lo = Kokkos::clamp<Index>(-from.w, 0, p.kernel[2]),
                  hi = Kokkos::clamp<Index>(p.input[2] - from.w, lo, p.kernel[2]);
      zero(out, lo * channels);
      if (hi > lo) copy_channels(&x(from.n, d, h, from.w + lo, 0), 1, out + lo * channels, 1, (hi - lo) * channels);
      zero(out + hi * channels, (p.kernel[2] - hi) * channels);
    } else {
      for (Index kw = 0; kw < p.kernel[2]; ++kw, out += channels) {
        const Index w = from.w + kw * p.dilation[2];
        if (w >= 0 && w < p.input[2]) {
          copy_channels(&x(from.n, d, h, w, 0), static_cast<Index>(x.stride(4)), out, 1, channels);
        } else {
          zero(out, channels);
        }
      }
    }
  }
  /// On a host, one index is a pixel, because the divisions take as long as the copy of a row. On a device it is a row.
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index rows = p.kernel[0] * p.kernel[1], values = p.kernel[2] * p.channels;
    if constexpr (runs_on_host<Exec>) {
      const WindowStart from = window_of(p, begin + i);
      T* out = columns + i * rows * values;
      for (Index kd = 0; kd < p.kernel[0]; ++kd)
        for (Index kh = 0; kh < p.kernel[1]; ++kh, out += values) gather_row(from, kd, kh, out);
    } else {
      const Index row = i % rows;
      gather_row(window_of(p, begin + i / rows), row / p.kernel[1], row % p.kernel[1], columns + i * values);
    }
  }
  static Index indices(const ConvolutionProblem& p, Index pixels) {
    return runs_on_host<Exec> ? pixels : pixels * p.kernel[0] * p.kernel[1];
  }
};

/// dx (n, d, h, w, ·) += its share of a tile's columns, one pixel of dx per index, within a box of dx.
template <class T, class Exec>
struct AddColumns {
  ConvolutionProblem p;
  Tile tile;
  Index n0, d0, h0, depth, height;  // the box of dx that the tile can reach
  const T* columns;
  Tensor<T, Exec> dx;

  /// The output index that reads input i through kernel index k; -1 if there is none.
  KOKKOS_FUNCTION Index output_of(int s, Index i, Index k) const {
    const Index scaled = i - p.offset[s] - k * p.dilation[s];
    if (scaled < 0) return -1;
    const Index o = p.stride[s] == 1 ? scaled : scaled / p.stride[s];
    return o < p.output[s] && o * p.stride[s] == scaled ? o : -1;
  }
  KOKKOS_FUNCTION void operator()(Index i) const {
    const Index iw = i % p.input[2];
    i /= p.input[2];
    const Index ih = h0 + i % height;
    i /= height;
    const Index id = d0 + i % depth, n = n0 + i / depth;
    T* const to = &dx(n, id, ih, iw, 0);
    const auto step = static_cast<Index>(dx.stride(4));
    for (Index kd = 0; kd < p.kernel[0]; ++kd) {
      const Index od = output_of(0, id, kd);
      if (od < 0) continue;
      for (Index kh = 0; kh < p.kernel[1]; ++kh) {
        const Index oh = output_of(1, ih, kh);
        if (oh < 0) continue;
        const Index row = ((n * p.output[0] + od) * p.output[1] + oh) * p.output[2];
        for (Index kw = 0; kw < p.kernel[2]; ++kw) {
          const Index ow = output_of(2, iw, kw), pixel = row + ow;
          if (ow < 0 || pixel < tile.begin || pixel >= tile.end) continue;
          const Index window = ((pixel - tile.begin) * p.kernel[0] + kd) * p.kernel[1] + kh;
          add_channels(columns + (window * p.kernel[2] + kw) * p.channels, to, step, p.channels);
        }
      }
    }
  }
};

/// Filters flipped, as (kernel, filters, channels): one row of channels per index.
template <class T>
struct TurnFilters {
  ConvolutionProblem p;
  const T* from;
  T* to;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index taps = p.kernel[0] * p.kernel[1] * p.kernel[2], tap = i / p.filters, f = i % p.filters;
    const Index opposite = taps - 1 - tap;
    copy_channels(from + (f * taps + opposite) * p.channels, 1, to + i * p.channels, 1, p.channels);
  }
};

/// The problem whose forward pass with flipped filters is backward-data of `p`. @pre p.stride is 1
static ConvolutionProblem flipped(const ConvolutionProblem& p) {
  ConvolutionProblem t = p;
  std::swap(t.channels, t.filters);
  std::swap(t.input, t.output);
  for (std::size_t s = 0; s < 3; ++s) t.offset[s] = -p.offset[s] - (p.kernel[s] - 1) * p.dilation[s];
  return t;
}

/// Pixels of a tile to or from a dense matrix.
template <class T, class Exec, bool gather>
struct MovePixels {
  ConvolutionProblem p;
  Index begin;
  Tensor<std::conditional_t<gather, const T, T>, Exec> tensor;
  T* matrix;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index pixel = begin + i;
    const Index w = pixel % p.output[2];
    pixel /= p.output[2];
    const Index h = pixel % p.output[1];
    pixel /= p.output[1];
    const Index d = pixel % p.output[0], n = pixel / p.output[0];
    auto* const at = &tensor(n, d, h, w, 0);
    const auto step = static_cast<Index>(tensor.stride(4));
    if constexpr (gather) {
      copy_channels(at, step, matrix + i * p.filters, 1, p.filters);
    } else {
      copy_channels(matrix + i * p.filters, 1, at, step, p.filters);
    }
  }
};

template <class T, class Exec>
struct StartWithBias {
  Index filters;
  Array<const T, Exec> bias;
  T* matrix;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    for (Index f = 0; f < filters; ++f) matrix[i * filters + f] = bias(f);
  }
};

/// The sum of dy over all pixels, one team per filter.
template <class T, class Exec>
void sum_pixels(const Exec& exec, const Tensor<const T, Exec>& dy, const Array<T, Exec>& sums) {
  const Rows rows = rows_of(dy);
  using Team = Kokkos::TeamPolicy<Exec>;
  Kokkos::parallel_for(
      "aloni::nn::convolution_backward_bias", with_scratch(Team(exec, static_cast<int>(rows.channels), Kokkos::AUTO)),
      KOKKOS_LAMBDA(const typename Team::member_type& team) {
        const Index f = team.league_rank(), width = rows.width;
        double sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(team, rows.rows() * width),
            [&](const Index i, double& s) {
              Index n, d, h;
              rows.row(i / width, n, d, h);
              s += static_cast<double>(dy(n, d, h, i % width, f));
            },
            sum);
        Kokkos::single(Kokkos::PerTeam(team), [&] { sums(f) = static_cast<T>(sum); });
      });
}

static Index window_values(const ConvolutionProblem& p) { return p.kernel[0] * p.kernel[1] * p.kernel[2] * p.channels; }
static Index output_pixels(const ConvolutionProblem& p) { return p.samples * p.output[0] * p.output[1] * p.output[2]; }

template <class T, class Exec>
class KokkosKernelsConvolution final : public LocalConvolution<T, Exec> {
 public:
  KokkosKernelsConvolution(const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes, bool flips)
      : LocalConvolution<T, Exec>(problem, passes),
        p_(problem),
        flipped_(flipped(p_)),
        flips_(flips && passes.backward_data && pays_flipping(p_)) {
    auto memory = [&](const std::string& label, Index size) {
      return Memory(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, label), static_cast<std::size_t>(size));
    };
    auto room = [&](const ConvolutionProblem& p) { return tile_pixels(p) * (window_values(p) + p.filters); };
    const bool plain = passes.forward || passes.backward_filter || !flips_;
    tile_ = memory("aloni::nn::convolution_tile", std::max(plain ? room(p_) : 0, flips_ ? room(flipped_) : 0));
    if (flips_) turned_filters_ = memory("aloni::nn::convolution_turned_filters", filter_values(p_));
  }

  std::string implementation(ConvolutionPass pass) const override {
    return flips_ && pass == ConvolutionPass::backward_data ? "kokkos_kernels gemm of flipped filters"
                                                            : "kokkos_kernels gemm";
  }
  std::size_t workspace_bytes() const override { return (tile_.size() + turned_filters_.size()) * sizeof(T); }

 private:
  using Memory = Kokkos::View<T*, typename Exec::memory_space>;

  static Index filter_values(const ConvolutionProblem& p) { return p.filters * window_values(p); }

  /// With flipped filters, the pass runs over the pixels of dx instead of dy, windows have filters instead of channels,
  /// and filters are copied. On one core of a Zen 4 with 3 × 3 filters they save half of the time with 16 channels and
  /// a tenth with 64.
  static bool pays_flipping(const ConvolutionProblem& p) {
    const Index pixels = output_pixels(flipped(p));
    return p.stride == std::array<Index, 3>{1, 1, 1} && 5 * pixels <= 6 * output_pixels(p) &&
           p.filters <= 8 * p.channels && 4 * p.filters <= pixels &&
           static_cast<std::size_t>(filter_values(p)) * sizeof(T) <= workspace_limit / 2;
  }

  /// On a host, tiles stay in the second-level cache between filling and multiplying.
  Index tile_pixels(const ConvolutionProblem& p) const {
    const std::size_t target =
        runs_on_host<Exec> ? std::size_t{1} << 20
                           : workspace_limit - (flips_ ? static_cast<std::size_t>(filter_values(p_)) * sizeof(T) : 0);
    const Index per_pixel = std::max<Index>(1, window_values(p) + p.filters);
    return std::clamp<Index>(static_cast<Index>(target / sizeof(T)) / per_pixel, 1,
                             std::max<Index>(1, output_pixels(p)));
  }

  template <class Body>
  void for_each_tile(const ConvolutionProblem& p, const Body& body) const {
    const Index pixels = output_pixels(p), step = tile_pixels(p);
    for (Index begin = 0; begin < pixels; begin += step) body(Tile{begin, std::min(begin + step, pixels)});
  }

  void gather(const Exec& exec, const ConvolutionProblem& p, const Tensor<const T, Exec>& x, Tile tile) const {
    using Gather = GatherColumns<T, Exec>;
    Kokkos::parallel_for("aloni::nn::convolution_gather_columns",
                         Range<Exec>(exec, 0, Gather::indices(p, tile.end - tile.begin)),
                         Gather{p, tile.begin, x, tile_.data(), p.dilation[2] == 1 && has_contiguous_rows(x)});
  }

  template <class U = const T>
  MatrixRef<U> columns(const ConvolutionProblem& p, Tile tile) const {
    return {tile_.data(), tile.end - tile.begin, window_values(p), window_values(p)};
  }
  T* pixels(const ConvolutionProblem& p) const { return tile_.data() + tile_pixels(p) * window_values(p); }
  MatrixRef<const T> filter_matrix(const T* w) const { return {w, p_.filters, window_values(p_), window_values(p_)}; }

  /// A tile of dy as a matrix: in place when dense.
  MatrixRef<const T> pixel_matrix(const Exec& exec, const Tensor<const T, Exec>& dy, Tile tile) const {
    const Index count = tile.end - tile.begin;
    if (views::is_dense(dy)) return {dy.data() + tile.begin * p_.filters, count, p_.filters, p_.filters};
    Kokkos::parallel_for("aloni::nn::convolution_pack_pixels", Range<Exec>(exec, 0, count),
                         MovePixels<T, Exec, true>{p_, tile.begin, dy, pixels(p_)});
    return {pixels(p_), count, p_.filters, p_.filters};
  }

  /// y = the windows of x × op(filters) + bias
  void convolve(const Exec& exec, const ConvolutionProblem& p, const Tensor<const T, Exec>& x, Transpose op,
                const MatrixRef<const T>& filters, const Array<const T, Exec>& bias, const Tensor<T, Exec>& y) const {
    const bool in_place = views::is_dense(y), has_bias = bias.extent(0) > 0;
    for_each_tile(p, [&](Tile tile) {
      const Index count = tile.end - tile.begin;
      gather(exec, p, x, tile);
      const MatrixRef<T> out{in_place ? y.data() + tile.begin * p.filters : pixels(p), count, p.filters, p.filters};
      if (has_bias) {
        Kokkos::parallel_for("aloni::nn::convolution_bias", Range<Exec>(exec, 0, count),
                             StartWithBias<T, Exec>{p.filters, bias, out.data});
      }
      gemm<T>(exec, Transpose::no, op, T(1), columns(p, tile), filters, has_bias ? T(1) : T(0), out);
      if (!in_place) {
        Kokkos::parallel_for("aloni::nn::convolution_unpack_pixels", Range<Exec>(exec, 0, count),
                             MovePixels<T, Exec, false>{p, tile.begin, y, pixels(p)});
      }
    });
  }

  void run_forward(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& w,
                   const Array<const T, Exec>& bias, const Tensor<T, Exec>& y) override {
    convolve(exec, p_, x, Transpose::yes, filter_matrix(w.data()), bias, y);
  }

  void run_backward_data(const Exec& exec, const Tensor<const T, Exec>& dy, const Tensor<const T, Exec>& w,
                         const Tensor<T, Exec>& dx) override {
    if (flips_) {
      turn_filters(exec, w.data());
      convolve(exec, flipped_, dy, Transpose::no,
               {turned_filters_.data(), window_values(flipped_), p_.channels, p_.channels}, {}, dx);
      return;
    }
    fill<T, Exec>(exec, T(0), dx);
    for_each_tile(p_, [&](Tile tile) {
      gemm<T>(exec, Transpose::no, Transpose::no, T(1), pixel_matrix(exec, dy, tile), filter_matrix(w.data()), T(0),
              columns<T>(p_, tile));
      add_columns(exec, tile, dx);
    });
  }

  void turn_filters(const Exec& exec, const T* w) {
    if (this->filters_version() != 0 && this->filters_version() == turned_version_) return;
    turned_version_ = this->filters_version();
    Kokkos::parallel_for("aloni::nn::convolution_turn_filters", Range<Exec>(exec, 0, window_values(flipped_)),
                         TurnFilters<T>{p_, w, turned_filters_.data()});
  }

  void add_columns(const Exec& exec, Tile tile, const Tensor<T, Exec>& dx) const {
    const WindowStart first = window_of(p_, tile.begin), last = window_of(p_, tile.end - 1);
    Index d0 = 0, d1 = p_.input[0], h0 = 0, h1 = p_.input[1];
    if (first.n == last.n) {  // within one sample, a tile reaches a few slices; within one slice, a few rows
      d0 = std::clamp<Index>(first.d, 0, p_.input[0]);
      d1 = std::clamp<Index>(last.d + (p_.kernel[0] - 1) * p_.dilation[0] + 1, d0, p_.input[0]);
      if (first.d == last.d) {
        h0 = std::clamp<Index>(first.h, 0, p_.input[1]);
        h1 = std::clamp<Index>(last.h + (p_.kernel[1] - 1) * p_.dilation[1] + 1, h0, p_.input[1]);
      }
    }
    const Index work = (last.n - first.n + 1) * (d1 - d0) * (h1 - h0) * p_.input[2];
    if (work == 0) return;
    Kokkos::parallel_for("aloni::nn::convolution_add_columns", Range<Exec>(exec, 0, work),
                         AddColumns<T, Exec>{p_, tile, first.n, d0, h0, d1 - d0, h1 - h0, tile_.data(), dx});
  }

  void run_backward_filter(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& dy,
                           const Tensor<T, Exec>& dw, const Array<T, Exec>& db) override {
    if (output_pixels(p_) == 0) fill<T, Exec>(exec, T(0), dw);
    for_each_tile(p_, [&](Tile tile) {
      gather(exec, p_, x, tile);
      gemm<T>(exec, Transpose::yes, Transpose::no, T(1), pixel_matrix(exec, dy, tile), columns(p_, tile),
              tile.begin == 0 ? T(0) : T(1), MatrixRef<T>{dw.data(), p_.filters, window_values(p_), window_values(p_)});
    });
    if (db.extent(0) > 0) sum_pixels(exec, dy, db);
  }

  const ConvolutionProblem p_, flipped_;
  const bool flips_;
  std::uint64_t turned_version_ = 0;
  Memory tile_;  // windows of a tile, then its pixels of the other tensor if this is not dense
  Memory turned_filters_;
};

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_kokkos_kernels_convolution(const ConvolutionProblem& problem,
                                                                           const Exec& exec, ConvolutionPasses passes) {
  // The channels of a group are short pieces of x, y and their gradients. Gathering windows of them takes longer than
  // flipping saves.
  const bool flips = problem.groups == 1;
  auto group = std::make_unique<KokkosKernelsConvolution<T, Exec>>(one_group(problem), exec, passes, flips);
  if (problem.groups == 1) return group;
  return std::make_unique<GroupByGroup<T, Exec>>(problem, passes, std::move(group));
}

#define INSTANTIATE(T, Exec)                                                                    \
  template std::unique_ptr<LocalConvolution<T, Exec>> make_kokkos_kernels_convolution<T, Exec>( \
      const ConvolutionProblem&, const Exec&, ConvolutionPasses);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
