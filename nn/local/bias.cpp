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
  Array<const parameter_type_t<T>, Exec> bias;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    Index n, d, h, w, c;
    if constexpr (runs_on_host<Exec>) {
      rows.row(i, n, d, h);
      for (w = 0; w < rows.width; ++w)
        for (c = 0; c < rows.channels; ++c) add(y(n, d, h, w, c), bias(c));
    } else {
      rows.element(i, n, d, h, w, c);
      add(y(n, d, h, w, c), bias(c));
    }
  }
  KOKKOS_FUNCTION static void add(T& to, parameter_type_t<T> value) {
    to = static_cast<T>(static_cast<parameter_type_t<T>>(to) + value);
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
void add_bias(const Exec& exec, InArray<parameter_type_t<T>, Exec> bias, Tensor<T, Exec> y) {
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
void BiasGradient<T, Exec>::operator()(const Exec& exec, InTensor<T, Exec> dy, OutArray<parameter_type_t<T>, Exec> db) {
  reduction_.statistics(exec, dy, sums_);
  detail::check_extent("aloni::nn::local::BiasGradient", "db", db, static_cast<Index>(sums_.extent(0)) / 2);
  Kokkos::parallel_for("aloni::nn::bias_gradient", detail::Range<Exec>(exec, 0, static_cast<Index>(db.extent(0))),
                       detail::RoundSums<parameter_type_t<T>, Exec>{sums_, db});
}

#define INSTANTIATE(T, Exec)                                                                         \
  template void add_bias<T, Exec>(const Exec&, InArray<parameter_type_t<T>, Exec>, Tensor<T, Exec>); \
  template class BiasGradient<T, Exec>;
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
INSTANTIATE(comm::bfloat16, Kokkos::DefaultHostExecutionSpace)
#undef INSTANTIATE

}  // namespace aloni::nn::local
