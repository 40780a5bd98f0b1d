#include <aloni/nn/local/detail/convolution_backends.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/group_by_group.hpp>
#include <aloni/nn/local/gemm.hpp>
#include <aloni/nn/local/pointwise.hpp>

#include <algorithm>

// Convolution as matrix multiplication on tiles. A tile is a run of output pixels (over samples, depth, height and width);
// its matrix `columns` (pixels × kernel · channels) holds each pixel's window, and exists for one tile at a time:
//   forward          y(tile)   = columns Wᵀ + bias
//   backward-filter  dW       += dy(tile)ᵀ columns
//   backward-data    columns   = dy(tile) W, then each element of dx gathers what belongs to it
// Groups are multiplied one after the other. The tile, not the tensor, bounds the workspace; gathering instead of scattering keeps the order of sums fixed.

namespace aloni::nn::local::detail {

struct Tile {
  Index begin, end;  // output pixels, counted over samples, depth, height, width
};

/// Where an output pixel's window starts.
struct Window {
  Index n, d, h, w;
};
KOKKOS_INLINE_FUNCTION Window window_of(const ConvolutionProblem& p, Index pixel) {
  const Index ow = pixel % p.output[2];
  pixel /= p.output[2];
  const Index oh = pixel % p.output[1];
  pixel /= p.output[1];
  return {pixel / p.output[0], pixel % p.output[0] * p.stride[0] + p.offset[0], oh * p.stride[1] + p.offset[1],
          ow * p.stride[2] + p.offset[2]};
}

/// The channels of one pixel, to or from dense memory. Contiguous ones, as they mostly are, in a loop that compilers make vectors of.
template <class T>
KOKKOS_INLINE_FUNCTION void copy_channels(const T* __restrict__ from, Index step, T* __restrict__ to, Index channels) {
  if (step == 1) {
    for (Index c = 0; c < channels; ++c) to[c] = from[c];
  } else {
    for (Index c = 0; c < channels; ++c) to[c] = from[c * step];
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

/// One row of a window (fixed pixel, kernel depth and height) per index: kernel width × channels.
template <class T, class Exec>
struct GatherColumns {
  ConvolutionProblem p;
  Index begin;
  Tensor<const T, Exec> x;
  T* columns;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index rows = p.kernel[0] * p.kernel[1], row = i % rows;
    const Window from = window_of(p, begin + i / rows);
    const Index d = from.d + row / p.kernel[1] * p.dilation[0], h = from.h + row % p.kernel[1] * p.dilation[1];
    const bool inside = d >= 0 && d < p.input[0] && h >= 0 && h < p.input[1];
    T* out = columns + i * p.kernel[2] * p.channels;
    for (Index kw = 0; kw < p.kernel[2]; ++kw, out += p.channels) {
      const Index w = from.w + kw * p.dilation[2];
      if (inside && w >= 0 && w < p.input[2]) {
        copy_channels(&x(from.n, d, h, w, 0), static_cast<Index>(x.stride(4)), out, p.channels);
      } else {
        for (Index c = 0; c < p.channels; ++c) out[c] = T(0);
      }
    }
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

  /// The output index that reads input i through kernel index k; -1 when there is none.
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
    for (Index f = 0; f < p.filters; ++f) {
      if constexpr (gather) {
        matrix[i * p.filters + f] = tensor(n, d, h, w, f);
      } else {
        tensor(n, d, h, w, f) = matrix[i * p.filters + f];
      }
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
      "aloni::nn::convolution_backward_bias", Team(exec, static_cast<int>(rows.channels), Kokkos::AUTO),
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

template <class T, class Exec>
class KokkosKernelsConvolution final : public LocalConvolution<T, Exec> {
 public:
  KokkosKernelsConvolution(const ConvolutionProblem& problem, const Exec& exec, ConvolutionPasses passes)
      : LocalConvolution<T, Exec>(problem, passes),
        p_(problem),
        values_(p_.kernel[0] * p_.kernel[1] * p_.kernel[2] * p_.channels),
        pixels_(p_.samples * p_.output[0] * p_.output[1] * p_.output[2]) {
    // On a host, tiles stay in the second-level cache between filling and multiplying.
    const std::size_t target = runs_on_host<Exec> ? std::size_t{1} << 20 : workspace_limit;
    const Index per_pixel = std::max<Index>(1, values_ + p_.filters);
    tile_pixels_ =
        std::clamp<Index>(static_cast<Index>(target / sizeof(T)) / per_pixel, 1, std::max<Index>(1, pixels_));
    columns_ = Memory(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::convolution_columns"),
                      static_cast<std::size_t>(tile_pixels_ * values_));
    matrix_ = Memory(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::convolution_pixels"),
                     static_cast<std::size_t>(tile_pixels_ * p_.filters));
  }

  std::string implementation(ConvolutionPass) const override { return "kokkos_kernels gemm"; }
  std::size_t workspace_bytes() const override { return (columns_.size() + matrix_.size()) * sizeof(T); }

 private:
  using Memory = Kokkos::View<T*, typename Exec::memory_space>;

  template <class Body>
  void for_each_tile(const Body& body) const {
    for (Index begin = 0; begin < pixels_; begin += tile_pixels_)
      body(Tile{begin, std::min(begin + tile_pixels_, pixels_)});
  }

  void gather(const Exec& exec, const Tensor<const T, Exec>& x, Tile tile) const {
    Kokkos::parallel_for("aloni::nn::convolution_gather_columns",
                         Range<Exec>(exec, 0, (tile.end - tile.begin) * p_.kernel[0] * p_.kernel[1]),
                         GatherColumns<T, Exec>{p_, tile.begin, x, columns_.data()});
  }

  MatrixRef<T> columns(Tile tile) const { return {columns_.data(), tile.end - tile.begin, values_, values_}; }
  MatrixRef<const T> filter_matrix(const T* w) const { return {w, p_.filters, values_, values_}; }

  /// A tile of dy as a matrix: in place when dense.
  MatrixRef<const T> pixel_matrix(const Exec& exec, const Tensor<const T, Exec>& dy, Tile tile) const {
    const Index count = tile.end - tile.begin;
    if (views::is_dense(dy)) return {dy.data() + tile.begin * p_.filters, count, p_.filters, p_.filters};
    Kokkos::parallel_for("aloni::nn::convolution_pack_pixels", Range<Exec>(exec, 0, count),
                         MovePixels<T, Exec, true>{p_, tile.begin, dy, matrix_.data()});
    return {matrix_.data(), count, p_.filters, p_.filters};
  }

  void run_forward(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& w,
                   const Array<const T, Exec>& bias, const Tensor<T, Exec>& y) override {
    const bool in_place = views::is_dense(y);
    for_each_tile([&](Tile tile) {
      const Index count = tile.end - tile.begin;
      gather(exec, x, tile);
      const MatrixRef<T> out{in_place ? y.data() + tile.begin * p_.filters : matrix_.data(), count, p_.filters,
                             p_.filters};
      const bool has_bias = bias.extent(0) > 0;
      if (has_bias) {
        Kokkos::parallel_for("aloni::nn::convolution_bias", Range<Exec>(exec, 0, count),
                             StartWithBias<T, Exec>{p_.filters, bias, out.data});
      }
      const auto in = columns(tile);
      gemm<T>(exec, Transpose::no, Transpose::yes, T(1), {in.data, in.rows, in.columns, in.stride},
              filter_matrix(w.data()), has_bias ? T(1) : T(0), out);
      if (!in_place) {
        Kokkos::parallel_for("aloni::nn::convolution_unpack_pixels", Range<Exec>(exec, 0, count),
                             MovePixels<T, Exec, false>{p_, tile.begin, y, matrix_.data()});
      }
    });
  }

  void run_backward_data(const Exec& exec, const Tensor<const T, Exec>& dy, const Tensor<const T, Exec>& w,
                         const Tensor<T, Exec>& dx) override {
    fill<T, Exec>(exec, T(0), dx);
    for_each_tile([&](Tile tile) {
      gemm<T>(exec, Transpose::no, Transpose::no, T(1), pixel_matrix(exec, dy, tile), filter_matrix(w.data()), T(0),
              columns(tile));
      add_columns(exec, tile, dx);
    });
  }

  void add_columns(const Exec& exec, Tile tile, const Tensor<T, Exec>& dx) const {
    const Window first = window_of(p_, tile.begin), last = window_of(p_, tile.end - 1);
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
                         AddColumns<T, Exec>{p_, tile, first.n, d0, h0, d1 - d0, h1 - h0, columns_.data(), dx});
  }

  void run_backward_filter(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& dy,
                           const Tensor<T, Exec>& dw, const Array<T, Exec>& db) override {
    if (pixels_ == 0) fill<T, Exec>(exec, T(0), dw);
    for_each_tile([&](Tile tile) {
      gather(exec, x, tile);
      const auto in = columns(tile);
      gemm<T>(exec, Transpose::yes, Transpose::no, T(1), pixel_matrix(exec, dy, tile),
              {in.data, in.rows, in.columns, in.stride}, tile.begin == 0 ? T(0) : T(1),
              MatrixRef<T>{dw.data(), p_.filters, values_, values_});
    });
    if (db.extent(0) > 0) sum_pixels(exec, dy, db);
  }

  const ConvolutionProblem p_;
  const Index values_, pixels_;
  Index tile_pixels_;
  Memory columns_, matrix_;
};

template <class T, class Exec>
std::unique_ptr<LocalConvolution<T, Exec>> make_kokkos_kernels_convolution(const ConvolutionProblem& problem,
                                                                           const Exec& exec, ConvolutionPasses passes) {
  auto group = std::make_unique<KokkosKernelsConvolution<T, Exec>>(one_group(problem), exec, passes);
  if (problem.groups == 1) return group;
  return std::make_unique<GroupByGroup<T, Exec>>(problem, passes, std::move(group));
}

#define INSTANTIATE(T, Exec)                                                                    \
  template std::unique_ptr<LocalConvolution<T, Exec>> make_kokkos_kernels_convolution<T, Exec>( \
      const ConvolutionProblem&, const Exec&, ConvolutionPasses);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local::detail
