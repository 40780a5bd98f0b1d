#include <aloni/nn/local/bias.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>

#include <string>

namespace aloni::nn::local {

namespace detail {

template <class T, class Exec>
struct AddBias {
  Rows rows;
  Tensor<T, Exec> y;
  Array<const parameter_type_t<T>, Exec> bias;
  KOKKOS_FUNCTION void element(Index n, Index d, Index h, Index w, Index c) const {
    T& to = y(n, d, h, w, c);
    to = static_cast<T>(static_cast<parameter_type_t<T>>(to) + bias(c));
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
  detail::for_each_element(exec, "aloni::nn::add_bias", detail::AddBias<T, Exec>{detail::rows_of(y), y, bias});
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
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
