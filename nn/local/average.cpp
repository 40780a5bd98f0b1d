#include <aloni/nn/local/average.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/flat.hpp>

namespace aloni::nn::local {

namespace detail {

template <class T>
struct WeightedSum {
  T keep, factor;
  const T* values;
  T* sum;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    // The product with 0 would keep NaN and infinity of the old sum.
    sum[i] = keep == T(0) ? factor * values[i] : keep * sum[i] + factor * values[i];
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
  weighted_sum_step<T, Exec>(exec, decay, 1 - decay, values, average);
}

template <class T, class Exec>
void weighted_sum_step(const Exec& exec, double keep, double factor, InArray<T, Exec> values, OutArray<T, Exec> sum) {
  const auto count = static_cast<Index>(sum.extent(0));
  detail::check_extent("aloni::nn::local::weighted_sum_step", "values", values, count);
  const detail::WeightedSum<T> kernel{static_cast<T>(keep), static_cast<T>(factor), values.data(), sum.data()};
  detail::for_each_flat(exec, "aloni::nn::weighted_sum_step", count, kernel);
}

template <class T, class Exec>
void exchange(const Exec& exec, OutArray<T, Exec> a, OutArray<T, Exec> b) {
  const auto count = static_cast<Index>(a.extent(0));
  detail::check_extent("aloni::nn::local::exchange", "b", b, count);
  detail::for_each_flat(exec, "aloni::nn::exchange", count, detail::Exchange<T>{a.data(), b.data()});
}

#define INSTANTIATE(T, Exec)                                                                                  \
  template void average_step<T, Exec>(const Exec&, double, InArray<T, Exec>, OutArray<T, Exec>);              \
  template void weighted_sum_step<T, Exec>(const Exec&, double, double, InArray<T, Exec>, OutArray<T, Exec>); \
  template void exchange<T, Exec>(const Exec&, OutArray<T, Exec>, OutArray<T, Exec>);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
