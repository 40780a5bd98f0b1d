#include <aloni/nn/local/pointwise.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/elementwise.hpp>
#include <aloni/nn/local/detail/flat.hpp>

#include <cmath>

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

template <class T>
struct Scale {
  T factor;
  T* values;
  KOKKOS_FUNCTION void operator()(const Index i) const { values[i] *= factor; }
};
/// Gradients times a factor in memory.
template <class T>
struct ScaledGradient {
  const T* values;
  const double* factor;
  KOKKOS_FUNCTION T operator[](const Index i) const { return static_cast<T>(*factor) * values[i]; }
};
struct UnlessNegative {
  const double* factor;
  KOKKOS_FUNCTION bool operator()() const { return !(*factor < 0); }
};
/// Calls run(gradients, runs), with the factor or as they are: an update without one costs as much as before.
template <class T, class Factor, class Run>
void with_factor(const char* operation, const T* gradient, const Factor& factor, const Run& run) {
  check_extent_or_none(operation, "factor", factor, 1);
  if (factor.extent(0) == 0) return run(gradient, Always{});
  run(ScaledGradient<T>{gradient, factor.data()}, UnlessNegative{factor.data()});
}

template <class T, class Gradient>
struct PlainSgd {
  T rate, decay;
  Gradient gradient;
  T* weights;
  KOKKOS_FUNCTION void operator()(const Index i) const { weights[i] -= rate * (gradient[i] + decay * weights[i]); }
};
template <class T, class Gradient>
struct MomentumSgd {
  T rate, momentum, decay;
  Gradient gradient;
  T *weights, *velocity;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const T v = momentum * velocity[i] + (gradient[i] + decay * weights[i]);
    velocity[i] = v;
    weights[i] -= rate * v;
  }
};
template <class T, class Gradient>
struct NesterovSgd {
  T rate, momentum, decay;
  Gradient gradient;
  T *weights, *velocity;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const T d = gradient[i] + decay * weights[i];
    const T v = momentum * velocity[i] + d;
    velocity[i] = v;
    weights[i] -= rate * (d + momentum * v);
  }
};
/// `rate`: learning rate / (1 - beta1^t). `correction`: 1 / (1 - beta2^t). Of the two decays one is 0.
template <class T, class Gradient>
struct Adam {
  T rate, correction, epsilon, beta1, rest1, beta2, rest2, l2, decoupled;
  Gradient gradient;
  T *weights, *first, *second;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const T w = weights[i], g = gradient[i] + l2 * w;
    const T m = beta1 * first[i] + rest1 * g;
    const T v = beta2 * second[i] + rest2 * (g * g);
    first[i] = m;
    second[i] = v;
    weights[i] = w - (rate * m / (Kokkos::sqrt(v * correction) + epsilon) + decoupled * w);
  }
};
/// One index is a block of elements on a host, and one element on a device. Both look their tensor up by bisection.
template <class T, class Gradient, class Runs, class Exec>
struct Lars {
  static constexpr Index block = runs_on_host<Exec> ? 4096 : 1;
  T momentum;
  double learning_rate, decay;
  Gradient gradient;
  T *weights, *velocity;
  Index elements;
  TensorsOfNorms<Exec> tensors;
  Array<const double, Exec> rates;
  Runs runs;

  KOKKOS_FUNCTION void operator()(const Index b) const {
    if (!runs()) return;
    Index i = b * block;
    const Index end = i + block < elements ? i + block : elements;
    const auto count = static_cast<Index>(tensors.extent(0));
    Index t = 0, high = count;
    while (high - t > 1) {
      const Index middle = (t + high) / 2;
      (tensors(middle).begin <= i ? t : high) = middle;
    }
    for (; i < end; ++t) {
      const Index next = t + 1 < count && tensors(t + 1).begin < end ? tensors(t + 1).begin : end;
      const T rate = static_cast<T>(learning_rate * rates(t));
      const T d = tensors(t).is_weight ? static_cast<T>(decay) : T(0);
#pragma GCC ivdep
      for (Index k = i; k < next; ++k) {
        const T v = momentum * velocity[k] + rate * (gradient[k] + d * weights[k]);
        velocity[k] = v;
        weights[k] -= v;
      }
      i = next;
    }
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
              OutArray<T, Exec> velocity, InArray<double, Exec> factor) {
  constexpr auto operation = "aloni::nn::local::sgd_step";
  const Index count = static_cast<Index>(weights.extent(0));
  detail::check_extent(operation, "gradient", gradient, count);
  const T rate = static_cast<T>(parameters.learning_rate), decay = static_cast<T>(parameters.weight_decay);
  const T momentum = static_cast<T>(parameters.momentum);
  const bool is_plain = parameters.momentum == 0 && velocity.extent(0) == 0;
  if (!is_plain) detail::check_extent(operation, "velocity", velocity, count);
  detail::with_factor<T>(operation, gradient.data(), factor, [&]<class G>(const G& g, const auto& runs) {
    const auto run = [&](const auto& rule) { detail::for_each_flat(exec, "aloni::nn::sgd_step", count, rule, runs); };
    if (is_plain) return run(detail::PlainSgd<T, G>{rate, decay, g, weights.data()});
    if (parameters.nesterov)
      return run(detail::NesterovSgd<T, G>{rate, momentum, decay, g, weights.data(), velocity.data()});
    run(detail::MomentumSgd<T, G>{rate, momentum, decay, g, weights.data(), velocity.data()});
  });
}

template <class T, class Exec>
void adam_step(const Exec& exec, const AdamOptions& options, std::int64_t step, InArray<T, Exec> gradient,
               Array<T, Exec> weights, OutArray<T, Exec> first_moment, OutArray<T, Exec> second_moment,
               InArray<double, Exec> factor) {
  constexpr auto operation = "aloni::nn::local::adam_step";
  const Index count = static_cast<Index>(weights.extent(0));
  detail::check_extent(operation, "gradient", gradient, count);
  detail::check_extent(operation, "first_moment", first_moment, count);
  detail::check_extent(operation, "second_moment", second_moment, count);
  const auto t = static_cast<double>(step);
  const bool is_l2 = options.decay == WeightDecay::l2;
  detail::with_factor<T>(operation, gradient.data(), factor, [&]<class G>(const G& g, const auto& runs) {
    detail::for_each_flat(
        exec, "aloni::nn::adam_step", count,
        detail::Adam<T, G>{.rate = static_cast<T>(options.learning_rate / (1 - std::pow(options.beta1, t))),
                           .correction = static_cast<T>(1 / (1 - std::pow(options.beta2, t))),
                           .epsilon = static_cast<T>(options.epsilon),
                           .beta1 = static_cast<T>(options.beta1),
                           .rest1 = static_cast<T>(1 - options.beta1),
                           .beta2 = static_cast<T>(options.beta2),
                           .rest2 = static_cast<T>(1 - options.beta2),
                           .l2 = static_cast<T>(is_l2 ? options.weight_decay : 0),
                           .decoupled = static_cast<T>(is_l2 ? 0 : options.learning_rate * options.weight_decay),
                           .gradient = g,
                           .weights = weights.data(),
                           .first = first_moment.data(),
                           .second = second_moment.data()},
        runs);
  });
}

template <class T, class Exec>
void lars_step(const Exec& exec, const LarsOptions& options, InArray<T, Exec> gradient, Array<T, Exec> weights,
               OutArray<T, Exec> velocity, std::type_identity_t<TensorsOfNorms<Exec>> tensors,
               InArray<double, Exec> rates, InArray<double, Exec> factor) {
  constexpr auto operation = "aloni::nn::local::lars_step";
  const Index count = static_cast<Index>(weights.extent(0));
  detail::check_extent(operation, "gradient", gradient, count);
  detail::check_extent(operation, "velocity", velocity, count);
  detail::check_extent(operation, "rates", rates, static_cast<Index>(tensors.extent(0)));
  if (count == 0) return;
  detail::with_factor<T>(operation, gradient.data(), factor, [&]<class G, class R>(const G& g, const R& runs) {
    using Rule = detail::Lars<T, G, R, Exec>;
    const Rule rule{static_cast<T>(options.momentum),
                    options.learning_rate,
                    options.weight_decay,
                    g,
                    weights.data(),
                    velocity.data(),
                    count,
                    tensors,
                    rates,
                    runs};
    Kokkos::parallel_for("aloni::nn::lars_step", detail::Range<Exec>(exec, 0, (count + Rule::block - 1) / Rule::block),
                         rule);
  });
}

#define INSTANTIATE(T, Exec)                                                                      \
  template void copy<T, Exec>(const Exec&, InTensor<T, Exec>, Tensor<T, Exec>);                   \
  template void add<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<T, Exec>, Tensor<T, Exec>); \
  template void fill<T, Exec>(const Exec&, T, Tensor<T, Exec>);
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

#define INSTANTIATE(Narrow, Exec)                                                                       \
  template void convert<Narrow, float, Exec>(const Exec&, InTensor<float, Exec>, Tensor<Narrow, Exec>); \
  template void convert<float, Narrow, Exec>(const Exec&, InTensor<Narrow, Exec>, Tensor<float, Exec>);
ALONI_INSTANTIATE_16_BIT(INSTANTIATE)
#undef INSTANTIATE

#define INSTANTIATE(T, Exec)                                                                                        \
  template void convert<T, T, Exec>(const Exec&, InTensor<T, Exec>, Tensor<T, Exec>);                               \
  template void scale<T, Exec>(const Exec&, T, Array<T, Exec>);                                                     \
  template void sgd_step<T, Exec>(const Exec&, const SgdParameters&, InArray<T, Exec>, Array<T, Exec>,              \
                                  OutArray<T, Exec>, InArray<double, Exec>);                                        \
  template void adam_step<T, Exec>(const Exec&, const AdamOptions&, std::int64_t, InArray<T, Exec>, Array<T, Exec>, \
                                   OutArray<T, Exec>, OutArray<T, Exec>, InArray<double, Exec>);                    \
  template void lars_step<T, Exec>(const Exec&, const LarsOptions&, InArray<T, Exec>, Array<T, Exec>,               \
                                   OutArray<T, Exec>, std::type_identity_t<TensorsOfNorms<Exec>>,                   \
                                   InArray<double, Exec>, InArray<double, Exec>);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
