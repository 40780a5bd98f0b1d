#include <aloni/nn/local/average.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/flat.hpp>

namespace aloni::nn::local {

namespace detail {

template <class T>
struct Average {
  T decay, rest;
  const T* values;
  T* average;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    // A factor 0 would keep NaN and infinity of the old average.
    average[i] = decay == T(0) ? values[i] : decay * average[i] + rest * values[i];
  }
};
template <class T>
struct Exchange {
  T *a, *b;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const T other = a[i];
    a[i] = b[i];
    b[i] = other;
  }
};

}  // namespace detail

template <class T, class Exec>
void average_step(const Exec& exec, double decay, InArray<T, Exec> values, OutArray<T, Exec> average) {
  const auto count = static_cast<Index>(average.extent(0));
  detail::check_extent("aloni::nn::local::average_step", "values", values, count);
  const detail::Average<T> kernel{static_cast<T>(decay), static_cast<T>(1 - decay), values.data(), average.data()};
  detail::for_each_flat(exec, "aloni::nn::average_step", count, kernel);
}

template <class T, class Exec>
void exchange(const Exec& exec, OutArray<T, Exec> a, OutArray<T, Exec> b) {
  const auto count = static_cast<Index>(a.extent(0));
  detail::check_extent("aloni::nn::local::exchange", "b", b, count);
  detail::for_each_flat(exec, "aloni::nn::exchange", count, detail::Exchange<T>{a.data(), b.data()});
}

#define INSTANTIATE(T, Exec)                                                                     \
  template void average_step<T, Exec>(const Exec&, double, InArray<T, Exec>, OutArray<T, Exec>); \
  template void exchange<T, Exec>(const Exec&, OutArray<T, Exec>, OutArray<T, Exec>);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
