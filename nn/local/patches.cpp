#include <aloni/nn/local/patches.hpp>

#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>

namespace aloni::nn::local {

namespace detail {

template <class T, class Exec>
struct CopyPatches {
  ConvolutionProblem p;
  Tensor<const T, Exec> x;
  MatrixRef<parameter_type_t<T>> rows;
  Index first;
  bool ones;

  /// Input index of the first kernel element in each dimension, by the number of an output pixel, and the sample.
  struct Place {
    Index n, d, h, w;
  };
  KOKKOS_FUNCTION Place place(Index o) const {
    Place at{};
    at.w = o % p.output[2] * p.stride[2] + p.offset[2];
    o /= p.output[2];
    at.h = o % p.output[1] * p.stride[1] + p.offset[1];
    o /= p.output[1];
    at.d = o % p.output[0] * p.stride[0] + p.offset[0];
    at.n = o / p.output[0];
    return at;
  }
  /// The channels of one element of the kernel.
  KOKKOS_FUNCTION void tap(const Place& at, const Index kd, const Index kh, const Index kw,
                           parameter_type_t<T>* const to) const {
    using To = parameter_type_t<T>;
    const Index d = at.d + kd * p.dilation[0], h = at.h + kh * p.dilation[1], w = at.w + kw * p.dilation[2];
    if (d < 0 || d >= p.input[0] || h < 0 || h >= p.input[1] || w < 0 || w >= p.input[2]) {
      for (Index c = 0; c < p.channels; ++c) to[c] = To(0);
    } else {
      for (Index c = 0; c < p.channels; ++c) to[c] = static_cast<To>(x(at.n, d, h, w, c));
    }
  }
  KOKKOS_FUNCTION void one(const Index row) const {
    if (ones) rows.data[row * rows.stride + rows.columns - 1] = parameter_type_t<T>(1);
  }
  /// A row on a host, whose place is then computed once; an element of the kernel in a row on a device.
  KOKKOS_FUNCTION void operator()(const Index i) const {
    if constexpr (runs_on_host<Exec>) {
      const Place at = place(first + i);
      parameter_type_t<T>* to = rows.data + i * rows.stride;
      for (Index kd = 0; kd < p.kernel[0]; ++kd)
        for (Index kh = 0; kh < p.kernel[1]; ++kh)
          for (Index kw = 0; kw < p.kernel[2]; ++kw, to += p.channels) tap(at, kd, kh, kw, to);
      one(i);
    } else {
      const Index taps = p.kernel[0] * p.kernel[1] * p.kernel[2], row = i / taps, k = i % taps;
      tap(place(first + row), k / (p.kernel[2] * p.kernel[1]), k / p.kernel[2] % p.kernel[1], k % p.kernel[2],
          rows.data + row * rows.stride + k * p.channels);
      if (k == 0) one(row);
    }
  }
};

}  // namespace detail

template <class T, class Exec>
void copy_patches(const Exec& exec, const ConvolutionProblem& p, InTensor<T, Exec> x, bool ones, Index first,
                  const MatrixRef<parameter_type_t<T>>& rows) {
  constexpr auto operation = "aloni::nn::local::copy_patches";
  validate(p);
  const Index taps = p.kernel[0] * p.kernel[1] * p.kernel[2], columns = taps * p.channels + (ones ? 1 : 0);
  detail::check_extents(operation, "x", x, {p.samples, p.input[0], p.input[1], p.input[2], p.channels});
  detail::check(p.groups == 1, operation, "groups", std::to_string(p.groups), "1");
  detail::check(rows.columns == columns, operation, "columns", std::to_string(rows.columns),
                "the weights of a filter, and one column of ones if they are wanted");
  detail::check(first >= 0 && first + rows.rows <= p.samples * p.output[0] * p.output[1] * p.output[2], operation,
                "rows", std::to_string(first) + " to " + std::to_string(first + rows.rows),
                "output pixels of the problem");
  if (rows.rows == 0) return;
  Kokkos::parallel_for("aloni::nn::copy_patches",
                       detail::Range<Exec>(exec, 0, detail::runs_on_host<Exec> ? rows.rows : rows.rows * taps),
                       detail::CopyPatches<T, Exec>{p, x, rows, first, ones});
}

#define INSTANTIATE(T, Exec)                                                                                  \
  template void copy_patches<T, Exec>(const Exec&, const ConvolutionProblem&, InTensor<T, Exec>, bool, Index, \
                                      const MatrixRef<parameter_type_t<T>>&);
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
