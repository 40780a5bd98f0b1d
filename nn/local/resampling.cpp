#include <aloni/nn/local/resampling.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/window_kernels.hpp>

#include <type_traits>

namespace aloni::nn::local {

namespace detail {

/// Windows and weights of a range map, in local indices. The adaptive rule takes means, the others weights.
/// @pre validate(p), and adaptive is whether the rule is this one
template <bool adaptive>
struct MappedWindows {
  using Share = double;
  ResamplingProblem p;

  KOKKOS_FUNCTION Interval inputs(int s, Index o) const {
    const Interval w = p.map[s].window(p.output_lower[s] + o);
    return {w.lo - p.input_lower[s], w.hi - p.input_lower[s]};
  }
  KOKKOS_FUNCTION Interval outputs(int s, Index i) const {
    const Interval r = p.map[s].output_range(p.input_lower[s] + i, p.input_lower[s] + i + 1);
    const Index lo = r.lo - p.output_lower[s], hi = r.hi - p.output_lower[s];
    return {lo > 0 ? lo : 0, hi < p.output[s] ? hi : p.output[s]};
  }
  KOKKOS_FUNCTION Index extent(int s, Index o) const { return length(inputs(s, o)); }
  KOKKOS_FUNCTION Index position(int s, Index o, Index i) const { return i - inputs(s, o).lo; }

  KOKKOS_FUNCTION double weight(int s, Index o, Index i) const {
    return adaptive ? 1.0 : p.map[s].weight(p.output_lower[s] + o, p.input_lower[s] + i);
  }
  KOKKOS_FUNCTION Index divisor(const Window& inputs) const { return adaptive ? inputs.elements() : 1; }

  /// d y(o) / d x(i), the factor of one dimension.
  KOKKOS_FUNCTION Share share(int s, Index o, Index i) const {
    return adaptive ? 1.0 / static_cast<double>(extent(s, o)) : weight(s, o, i);
  }
  KOKKOS_FUNCTION static double part(Share share, double dy) { return share * dy; }
};

/// f(windows) with the windows of the problem's rule.
template <class F>
void with_windows(const ResamplingProblem& p, const F& f) {
  if (p.map[0].rule == halo::RangeRule::adaptive) {
    f(MappedWindows<true>{p});
  } else {
    f(MappedWindows<false>{p});
  }
}

inline void check_adaptive(const char* operation, const ResamplingProblem& p) {
  check(p.map[0].rule == halo::RangeRule::adaptive, operation, "problem", to_string(p), "the adaptive rule");
}

}  // namespace detail

template <class T, class Exec>
void adaptive_max_pool_forward(const Exec& exec, const ResamplingProblem& p, InTensor<T, Exec> x, Tensor<T, Exec> y,
                               OutTensor<std::int32_t, Exec> argmax) {
  constexpr auto operation = "aloni::nn::local::adaptive_max_pool_forward";
  detail::check_boxes(operation, p, "x", x, "y", y);
  detail::check_adaptive(operation, p);
  const bool wants_argmax = argmax.data() != nullptr && argmax.size() > 0;
  if (wants_argmax) detail::check_same_extents(operation, "argmax", argmax, y);
  const auto kernel = [&]<bool dense>(std::bool_constant<dense>) {
    return detail::MaxForward<detail::MappedWindows<true>, T, Exec, dense>{{p}, x, y, argmax, wants_argmax};
  };
  detail::gather_channels(exec, "aloni::nn::adaptive_max_pool_forward", kernel, y, x, argmax);
}

template <class T, class Exec>
void adaptive_max_pool_backward(const Exec& exec, const ResamplingProblem& p, InTensor<T, Exec> dy,
                                InTensor<std::int32_t, Exec> argmax, Tensor<T, Exec> dx) {
  constexpr auto operation = "aloni::nn::local::adaptive_max_pool_backward";
  detail::check_boxes(operation, p, "dx", dx, "dy", dy);
  detail::check_adaptive(operation, p);
  detail::check_same_extents(operation, "argmax", argmax, dy);
  const auto kernel = [&]<bool dense>(std::bool_constant<dense>) {
    return detail::MaxBackward<detail::MappedWindows<true>, T, Exec, dense>{{p}, dy, argmax, dx};
  };
  detail::gather_channels(exec, "aloni::nn::adaptive_max_pool_backward", kernel, dx, dy, argmax);
}

template <class T, class Exec>
void resample_forward(const Exec& exec, const ResamplingProblem& p, InTensor<T, Exec> x, Tensor<T, Exec> y) {
  detail::check_boxes("aloni::nn::local::resample_forward", p, "x", x, "y", y);
  detail::with_windows(p, [&](const auto& windows) {
    const auto kernel = [&]<bool dense>(std::bool_constant<dense>) {
      return detail::MeanForward<std::decay_t<decltype(windows)>, T, Exec, dense>{windows, x, y};
    };
    detail::gather_channels(exec, "aloni::nn::resample_forward", kernel, y, x);
  });
}

template <class T, class Exec>
void resample_backward(const Exec& exec, const ResamplingProblem& p, InTensor<T, Exec> dy, Tensor<T, Exec> dx) {
  detail::check_boxes("aloni::nn::local::resample_backward", p, "dx", dx, "dy", dy);
  detail::with_windows(p, [&](const auto& windows) {
    const auto kernel = [&]<bool dense>(std::bool_constant<dense>) {
      return detail::MeanBackward<std::decay_t<decltype(windows)>, T, Exec, dense>{windows, dy, dx};
    };
    detail::gather_channels(exec, "aloni::nn::resample_backward", kernel, dx, dy);
  });
}

#define INSTANTIATE(T, Exec)                                                                                          \
  template void adaptive_max_pool_forward<T, Exec>(const Exec&, const ResamplingProblem&, InTensor<T, Exec>,          \
                                                   Tensor<T, Exec>, OutTensor<std::int32_t, Exec>);                   \
  template void adaptive_max_pool_backward<T, Exec>(const Exec&, const ResamplingProblem&, InTensor<T, Exec>,         \
                                                    InTensor<std::int32_t, Exec>, Tensor<T, Exec>);                   \
  template void resample_forward<T, Exec>(const Exec&, const ResamplingProblem&, InTensor<T, Exec>, Tensor<T, Exec>); \
  template void resample_backward<T, Exec>(const Exec&, const ResamplingProblem&, InTensor<T, Exec>, Tensor<T, Exec>);
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
