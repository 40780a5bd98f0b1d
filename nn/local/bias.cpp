#include <aloni/nn/local/bias.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>

#include <string>

namespace aloni::nn::local {

namespace detail {

/// One row, a run of pixels, on a host; one element on a device.
template <class T, class Exec>
struct AddBias {
  Rows rows;
  Tensor<T, Exec> y;
  Array<const T, Exec> bias;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, d, h, w, c;
    if constexpr (runs_on_host<Exec>) {
      rows.row(i, n, d, h);
      for (w = 0; w < rows.width; ++w)
        for (c = 0; c < rows.channels; ++c) y(n, d, h, w, c) += bias(c);
    } else {
      rows.element(i, n, d, h, w, c);
      y(n, d, h, w, c) += bias(c);
    }
  }
};

template <class T, class Exec>
struct RoundSums {
  Array<const double, Exec> sums;
  Array<T, Exec> db;
  KOKKOS_FUNCTION void operator()(const Index c) const { db(c) = static_cast<T>(sums(c)); }
};

}  // namespace detail

template <class T, class Exec>
void add_bias(const Exec& exec, InArray<T, Exec> bias, Tensor<T, Exec> y) {
  detail::check_extent("aloni::nn::local::add_bias", "bias", bias, static_cast<Index>(y.extent(4)));
  const detail::Rows rows = detail::rows_of(y);
  Kokkos::parallel_for(
      "aloni::nn::add_bias",
      detail::Range<Exec>(exec, 0, detail::runs_on_host<Exec> && rows.elements() > 0 ? rows.rows() : rows.elements()),
      detail::AddBias<T, Exec>{rows, y, bias});
}

template <class T, class Exec>
BiasGradient<T, Exec>::BiasGradient(const Exec& exec, Index samples, Index depth, Index height, Index channels)
    : reduction_(exec, samples, depth, height, channels),
      sums_(Kokkos::view_alloc(exec, "aloni::nn::bias_gradient_sums"), static_cast<std::size_t>(2 * channels)) {}

template <class T, class Exec>
void BiasGradient<T, Exec>::operator()(const Exec& exec, InTensor<T, Exec> dy, OutArray<T, Exec> db) {
  reduction_.statistics(exec, dy, sums_);
  detail::check_extent("aloni::nn::local::BiasGradient", "db", db, static_cast<Index>(sums_.extent(0)) / 2);
  Kokkos::parallel_for("aloni::nn::bias_gradient", detail::Range<Exec>(exec, 0, static_cast<Index>(db.extent(0))),
                       detail::RoundSums<T, Exec>{sums_, db});
}

using Device = Kokkos::DefaultExecutionSpace;
template void add_bias<float, Device>(const Device&, InArray<float, Device>, Tensor<float, Device>);
template void add_bias<double, Device>(const Device&, InArray<double, Device>, Tensor<double, Device>);
template class BiasGradient<float, Device>;
template class BiasGradient<double, Device>;

}  // namespace aloni::nn::local
