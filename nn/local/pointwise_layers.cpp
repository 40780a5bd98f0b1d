#include <aloni/nn/local/pointwise_layers.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/choose_by_sign.hpp>
#include <aloni/nn/local/detail/elementwise.hpp>

#include <type_traits>
#include <variant>

namespace aloni::nn::local {

namespace detail {

/// The function of a pointwise layer for numbers of type P, made from the layer: value(x) is y; gradient(v, dy) is dx,
/// where v is x or y. The general case is for layers that are not pointwise.
template <class Layer, class P>
struct Function;

template <class P>
struct Function<nn::Relu, P> {
  explicit Function(const nn::Relu&) {}
  KOKKOS_FUNCTION P value(P x) const { return unless_negative(x); }
  KOKKOS_FUNCTION P gradient(P y, P dy) const { return if_positive(y, dy); }
};

template <class P>
struct Function<nn::LeakyRelu, P> {
  P slope;
  explicit Function(const nn::LeakyRelu& layer) : slope(static_cast<P>(layer.slope)) {}
  KOKKOS_FUNCTION P value(P x) const { return x > 0 ? x : slope * x; }
  KOKKOS_FUNCTION P gradient(P y, P dy) const { return y > 0 ? dy : slope * dy; }
};

template <class P>
struct Function<nn::Sigmoid, P> {
  explicit Function(const nn::Sigmoid&) {}
  KOKKOS_FUNCTION P value(P x) const { return 1 / (1 + Kokkos::exp(-x)); }  // exp may be infinite: then 0
  KOKKOS_FUNCTION P gradient(P y, P dy) const { return dy * y * (1 - y); }
};

template <class P>
struct Function<nn::Tanh, P> {
  explicit Function(const nn::Tanh&) {}
  KOKKOS_FUNCTION P value(P x) const { return Kokkos::tanh(x); }
  KOKKOS_FUNCTION P gradient(P y, P dy) const { return dy * (1 - y * y); }
};

template <class P>
struct Function<nn::Silu, P> {
  explicit Function(const nn::Silu&) {}
  KOKKOS_FUNCTION P value(P x) const { return x / (1 + Kokkos::exp(-x)); }
  KOKKOS_FUNCTION P gradient(P x, P dy) const {
    const P s = 1 / (1 + Kokkos::exp(-x));
    return dy * s * (1 + x * (1 - s));
  }
};

template <class P>
struct Function<nn::Gelu, P> {
  explicit Function(const nn::Gelu&) {}
  // 1 + erf(z) = erfc(-z) loses no digits where erf(z) is near -1.
  KOKKOS_FUNCTION static P probability(P x) { return P(0.5) * Kokkos::erfc(x * P(-0.70710678118654752440)); }
  KOKKOS_FUNCTION P value(P x) const { return x * probability(x); }
  KOKKOS_FUNCTION P gradient(P x, P dy) const {
    const P density = P(0.39894228040143267794) * Kokkos::exp(P(-0.5) * x * x);
    return dy * (probability(x) + x * density);
  }
};

template <class Layer, class T>
struct PointwiseForward {
  using P = parameter_type_t<T>;
  Function<Layer, P> f;
  KOKKOS_FUNCTION T operator()(T x) const { return static_cast<T>(f.value(static_cast<P>(x))); }
};

template <class Layer, class T>
struct PointwiseBackward {
  using P = parameter_type_t<T>;
  Function<Layer, P> f;
  KOKKOS_FUNCTION T operator()(T value, T dy) const {
    return static_cast<T>(f.gradient(static_cast<P>(value), static_cast<P>(dy)));
  }
};

template <class Layer>
inline constexpr bool is_pointwise = requires {
  sizeof(Function<Layer, float>);
};

[[noreturn]] inline void refuse_layer(const char* operation, const Operation& layer) {
  throw InvalidArgument(operation, "layer", kind(layer), "a pointwise layer, with a function in pointwise_layers.cpp");
}

}  // namespace detail

template <class T, class Exec>
void pointwise_forward(const Exec& exec, const Operation& layer, InTensor<T, Exec> x, Tensor<T, Exec> y) {
  constexpr auto operation = "aloni::nn::local::pointwise_forward";
  detail::check_same_extents(operation, "x", x, y);
  std::visit(
      [&](const auto& op) {
        using Layer = std::decay_t<decltype(op)>;
        if constexpr (detail::is_pointwise<Layer>) {
          const detail::PointwiseForward<Layer, T> f{detail::Function<Layer, parameter_type_t<T>>(op)};
          detail::elementwise(exec, "aloni::nn::pointwise_forward", f, y, x);
        } else {
          detail::refuse_layer(operation, layer);
        }
      },
      layer);
}

template <class T, class Exec>
void pointwise_backward(const Exec& exec, const Operation& layer, InTensor<T, Exec> value, InTensor<T, Exec> dy,
                        Tensor<T, Exec> dx) {
  constexpr auto operation = "aloni::nn::local::pointwise_backward";
  detail::check_same_extents(operation, "value", value, dx);
  detail::check_same_extents(operation, "dy", dy, dx);
  std::visit(
      [&](const auto& op) {
        using Layer = std::decay_t<decltype(op)>;
        if constexpr (detail::is_pointwise<Layer>) {
          const detail::PointwiseBackward<Layer, T> f{detail::Function<Layer, parameter_type_t<T>>(op)};
          detail::elementwise(exec, "aloni::nn::pointwise_backward", f, dx, value, dy);
        } else {
          detail::refuse_layer(operation, layer);
        }
      },
      layer);
}

#define INSTANTIATE(T, Exec)                                                                                     \
  template void pointwise_forward<T, Exec>(const Exec&, const Operation&, InTensor<T, Exec>, Tensor<T, Exec>);   \
  template void pointwise_backward<T, Exec>(const Exec&, const Operation&, InTensor<T, Exec>, InTensor<T, Exec>, \
                                            Tensor<T, Exec>);
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
