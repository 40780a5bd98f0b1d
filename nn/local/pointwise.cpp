#include <aloni/nn/local/pointwise.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/elementwise.hpp>

namespace aloni::nn::local {

namespace detail {

struct Copy {
  template <class T>
  KOKKOS_FUNCTION T operator()(T x) const {
    return x;
  }
};
struct Add {
  template <class T>
  KOKKOS_FUNCTION T operator()(T a, T b) const {
    return a + b;
  }
};
template <class T>
struct Fill {
  T value;
  KOKKOS_FUNCTION T operator()() const { return value; }
};

/// op(i) for each i: one index is a block of a flat array on a host, an element on a device.
template <class Exec, class Op>
void for_each_flat(const Exec& exec, const char* label, Index elements, const Op& op) {
  if (elements == 0) return;
  if constexpr (runs_on_host<Exec>) {
    constexpr Index block = 4096;
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, (elements + block - 1) / block), [=](const Index b) {
      const Index end = (b + 1) * block < elements ? (b + 1) * block : elements;
#pragma GCC ivdep
      for (Index i = b * block; i < end; ++i) op(i);
    });
  } else {
    Kokkos::parallel_for(label, Range<Exec>(exec, 0, elements), op);
  }
}

template <class T>
struct Scale {
  T factor;
  T* values;
  KOKKOS_FUNCTION void operator()(const Index i) const { values[i] *= factor; }
};
template <class T>
struct PlainSgd {
  T rate, decay;
  const T* gradient;
  T* weights;
  KOKKOS_FUNCTION void operator()(const Index i) const { weights[i] -= rate * (gradient[i] + decay * weights[i]); }
};
template <class T>
struct MomentumSgd {
  T rate, momentum, decay;
  const T* gradient;
  T *weights, *velocity;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const T v = momentum * velocity[i] + (gradient[i] + decay * weights[i]);
    velocity[i] = v;
    weights[i] -= rate * v;
  }
};

}  // namespace detail

template <class T, class Exec>
void copy(const Exec& exec, InTensor<T, Exec> from, Tensor<T, Exec> to) {
  detail::check_same_extents("aloni::nn::local::copy", "from", from, to);
  detail::elementwise(exec, "aloni::nn::copy", detail::Copy{}, to, from);
}

template <class T, class Exec>
void add(const Exec& exec, InTensor<T, Exec> a, InTensor<T, Exec> b, Tensor<T, Exec> sum) {
  detail::check_same_extents("aloni::nn::local::add", "a", a, sum);
  detail::check_same_extents("aloni::nn::local::add", "b", b, sum);
  detail::elementwise(exec, "aloni::nn::add", detail::Add{}, sum, a, b);
}

template <class T, class Exec>
void fill(const Exec& exec, std::type_identity_t<T> value, Tensor<T, Exec> to) {
  detail::elementwise(exec, "aloni::nn::fill", detail::Fill<T>{value}, to);
}

template <class To, class From, class Exec>
void convert(const Exec& exec, InTensor<From, Exec> from, Tensor<To, Exec> to) {
  detail::check_same_extents("aloni::nn::local::convert", "from", from, to);
  detail::elementwise<Exec, detail::Convert<To>, To, From>(exec, "aloni::nn::convert", {}, to, from);
}

template <class T, class Exec>
void scale(const Exec& exec, std::type_identity_t<T> factor, Array<T, Exec> values) {
  detail::for_each_flat(exec, "aloni::nn::scale", static_cast<Index>(values.extent(0)),
                        detail::Scale<T>{factor, values.data()});
}

template <class T, class Exec>
void sgd_step(const Exec& exec, const SgdParameters& parameters, InArray<T, Exec> gradient, Array<T, Exec> weights,
              OutArray<T, Exec> velocity) {
  const Index count = static_cast<Index>(weights.extent(0));
  detail::check_extent("aloni::nn::local::sgd_step", "gradient", gradient, count);
  const T rate = static_cast<T>(parameters.learning_rate), decay = static_cast<T>(parameters.weight_decay);
  if (parameters.momentum == 0 && velocity.extent(0) == 0) {
    detail::for_each_flat(exec, "aloni::nn::sgd_step", count,
                          detail::PlainSgd<T>{rate, decay, gradient.data(), weights.data()});
    return;
  }
  detail::check_extent("aloni::nn::local::sgd_step", "velocity", velocity, count);
  detail::for_each_flat(exec, "aloni::nn::sgd_step", count,
                        detail::MomentumSgd<T>{rate, static_cast<T>(parameters.momentum), decay, gradient.data(),
                                               weights.data(), velocity.data()});
}

#define INSTANTIATE(T, Exec)                                                                      \
  template void copy<T, Exec>(const Exec&, InTensor<T, Exec>, Tensor<T, Exec>);                   \
  template void add<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<T, Exec>, Tensor<T, Exec>); \
  template void fill<T, Exec>(const Exec&, T, Tensor<T, Exec>);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE, comm::bfloat16)
#undef INSTANTIATE

using Host = Kokkos::DefaultHostExecutionSpace;
template void convert<comm::bfloat16, float, Host>(const Host&, InTensor<float, Host>, Tensor<comm::bfloat16, Host>);
template void convert<float, comm::bfloat16, Host>(const Host&, InTensor<comm::bfloat16, Host>, Tensor<float, Host>);

#define INSTANTIATE(T, Exec)                                                                           \
  template void convert<T, T, Exec>(const Exec&, InTensor<T, Exec>, Tensor<T, Exec>);                  \
  template void scale<T, Exec>(const Exec&, T, Array<T, Exec>);                                        \
  template void sgd_step<T, Exec>(const Exec&, const SgdParameters&, InArray<T, Exec>, Array<T, Exec>, \
                                  OutArray<T, Exec>);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
