#include <aloni/nn/local/batch_norm.hpp>

#include <aloni/nn/local/channel_sums.hpp>
#include <aloni/nn/local/detail/batch_norm_kernels.hpp>
#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>

#include <utility>

namespace aloni::nn::local {

namespace detail {

/// Whether the caller gave an optional tensor. One without elements adds nothing.
template <class View>
bool is_given(const View& tensor) {
  return tensor.data() != nullptr && tensor.size() > 0;
}

template <class Exec>
struct Finish {
  Index count, channels, known_channels;
  BatchNormStatistics parameters;
  Array<const double, Exec> sums, known;
  Array<double, Exec> mean, inv_std, running_mean, running_variance, all;
  bool running;
  KOKKOS_FUNCTION void operator()(const Index c) const {
    const bool is_known = c < known_channels;
    const Index others = channels - known_channels, own = c - known_channels;
    const double sum = is_known ? known(c) : sums(own);
    const double squares = is_known ? known(known_channels + c) : sums(others + own);
    if (known_channels > 0) {
      all(c) = sum;
      all(channels + c) = squares;
    }
    const double n = static_cast<double>(count);
    const double m = sum / n;
    const double variance = Kokkos::fmax(0.0, squares / n - m * m);
    mean(c) = m;
    inv_std(c) = 1.0 / Kokkos::sqrt(variance + parameters.epsilon);
    if (!running) return;
    const double unbiased = count > 1 ? variance * n / (n - 1) : variance;
    running_mean(c) += parameters.momentum * (m - running_mean(c));
    running_variance(c) += parameters.momentum * (unbiased - running_variance(c));
  }
};

template <class Exec>
struct Inverse {
  double epsilon;
  Array<const double, Exec> variance;
  Array<double, Exec> inv_std;
  KOKKOS_FUNCTION void operator()(const Index c) const { inv_std(c) = 1.0 / Kokkos::sqrt(variance(c) + epsilon); }
};

}  // namespace detail

template <class T, class Exec>
BatchNormReduction<T, Exec>::BatchNormReduction(const Exec& exec, Index samples, Index depth, Index height,
                                                Index channels)
    : BatchNormReduction(
          samples, depth, height, channels,
          Kokkos::View<double*, typename Exec::memory_space>(
              Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::batch_norm_partial_sums"),
              static_cast<std::size_t>(partial_sums(samples * depth * height, channels, detail::runs_on_host<Exec>)))) {
}

template <class T, class Exec>
BatchNormReduction<T, Exec>::BatchNormReduction(Index samples, Index depth, Index height, Index channels,
                                                Kokkos::View<double*, typename Exec::memory_space> partial)
    : max_rows_(samples * depth * height), channels_(channels), partial_(std::move(partial)) {
  detail::check_extent("aloni::nn::local::BatchNormReduction", "partial", partial_,
                       partial_sums(max_rows_, channels, detail::runs_on_host<Exec>));
}

template <class T, class Exec>
void BatchNormReduction<T, Exec>::statistics(const Exec& exec, InTensor<T, Exec> x, OutArray<double, Exec> sums) {
  constexpr auto operation = "aloni::nn::local::BatchNormReduction::statistics";
  const detail::Rows rows = detail::rows_of(x);
  detail::check(rows.rows() <= max_rows_ && rows.channels == channels_, operation, "x", detail::extents_text(x),
                "the channels and at most the rows given to the constructor");
  detail::check_extent(operation, "sums", sums, 2 * channels_);
  detail::add_batch_norm_sums<false, false, T, Exec>(exec, "aloni::nn::batch_norm_statistics", {}, x, {}, partial_,
                                                     sums);
}

template <class T, class Exec>
void BatchNormReduction<T, Exec>::gradients(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                                            InArray<double, Exec> mean, InArray<double, Exec> inv_std,
                                            OutArray<double, Exec> sums, Rectified relu) {
  constexpr auto operation = "aloni::nn::local::BatchNormReduction::gradients";
  const detail::Rows rows = detail::rows_of(x);
  detail::check(rows.rows() <= max_rows_ && rows.channels == channels_, operation, "x", detail::extents_text(x),
                "the channels and at most the rows given to the constructor");
  detail::check_same_extents(operation, "dy", dy, x);
  detail::check_extent(operation, "mean", mean, channels_);
  detail::check_extent(operation, "inv_std", inv_std, channels_);
  detail::check_extent(operation, "sums", sums, 2 * channels_);
  const detail::ChannelArrays<T, Exec> channels{mean, inv_std, relu.gamma, relu.beta};
  constexpr auto label = "aloni::nn::batch_norm_gradients";
  if (relu.gamma.extent(0) == 0)
    return detail::add_batch_norm_sums<true, false, T, Exec>(exec, label, channels, x, dy, partial_, sums);
  detail::check_extent(operation, "gamma", relu.gamma, channels_);
  detail::check_extent(operation, "beta", relu.beta, channels_);
  detail::add_batch_norm_sums<true, true, T, Exec>(exec, label, channels, x, dy, partial_, sums);
}

template <class Exec>
void batch_norm_finish(const Exec& exec, Index count, BatchNormStatistics parameters, InArray<double, Exec> sums,
                       OutArray<double, Exec> mean, OutArray<double, Exec> inv_std, OutArray<double, Exec> running_mean,
                       OutArray<double, Exec> running_variance, InArray<double, Exec> known, Array<double, Exec> all) {
  constexpr auto operation = "aloni::nn::local::batch_norm_finish";
  const Index channels = static_cast<Index>(mean.extent(0));
  detail::check(count > 0, operation, "count", std::to_string(count), "at least one element per channel");
  const Index known_channels = static_cast<Index>(known.extent(0)) / 2;
  detail::check(known_channels <= channels, operation, "known", std::to_string(known.extent(0)),
                "two sums for at most each channel");
  detail::check_extent(operation, "sums", sums, 2 * (channels - known_channels));
  if (known_channels > 0) detail::check_extent(operation, "all", all, 2 * channels);
  detail::check_extent(operation, "inv_std", inv_std, channels);
  const bool running = running_mean.extent(0) > 0;
  if (running) {
    detail::check_extent(operation, "running_mean", running_mean, channels);
    detail::check_extent(operation, "running_variance", running_variance, channels);
  }
  Kokkos::parallel_for("aloni::nn::batch_norm_finish", detail::Range<Exec>(exec, 0, channels),
                       detail::Finish<Exec>{count, channels, known_channels, parameters, sums, known, mean, inv_std,
                                            running_mean, running_variance, all, running});
}

template <class Exec>
void batch_norm_inverse(const Exec& exec, double epsilon, InArray<double, Exec> running_variance,
                        OutArray<double, Exec> inv_std) {
  const Index channels = static_cast<Index>(inv_std.extent(0));
  detail::check_extent("aloni::nn::local::batch_norm_inverse", "running_variance", running_variance, channels);
  Kokkos::parallel_for("aloni::nn::batch_norm_inverse", detail::Range<Exec>(exec, 0, channels),
                       detail::Inverse<Exec>{epsilon, running_variance, inv_std});
}

template <class T, class Exec>
void batch_norm_forward(const Exec& exec, InTensor<T, Exec> x, InArray<double, Exec> mean,
                        InArray<double, Exec> inv_std, InArray<parameter_type_t<T>, Exec> gamma,
                        InArray<parameter_type_t<T>, Exec> beta, Tensor<T, Exec> y, bool relu,
                        InTensor<T, Exec> summand) {
  constexpr auto operation = "aloni::nn::local::batch_norm_forward";
  const detail::Rows rows = detail::rows_of(y);
  detail::check_same_extents(operation, "x", x, y);
  detail::check_extent(operation, "mean", mean, rows.channels);
  detail::check_extent(operation, "inv_std", inv_std, rows.channels);
  detail::check_extent(operation, "gamma", gamma, rows.channels);
  detail::check_extent(operation, "beta", beta, rows.channels);
  using Real = parameter_type_t<T>;
  const detail::ChannelArrays<T, Exec> channels{mean, inv_std, gamma, beta};
  constexpr auto label = "aloni::nn::batch_norm_forward";
  const auto run = [&]<class Function>(const Function&) {
    detail::for_each_normalised<Function, T, Exec>(exec, label, channels, x, summand, y);
  };
  if (!detail::is_given(summand))
    return relu ? run(detail::BatchNormValue<Real, true>()) : run(detail::BatchNormValue<Real, false>());
  detail::check_same_extents(operation, "summand", summand, y);
  relu ? run(detail::BatchNormSum<Real, true>()) : run(detail::BatchNormSum<Real, false>());
}

template <class T, class Exec>
void batch_norm_parameter_gradients(const Exec& exec, InArray<double, Exec> sums, Array<T, Exec> dgamma,
                                    OutArray<T, Exec> dbeta) {
  const Index channels = static_cast<Index>(dgamma.extent(0));
  detail::check_extent("aloni::nn::local::batch_norm_parameter_gradients", "sums", sums, 2 * channels);
  detail::check_extent("aloni::nn::local::batch_norm_parameter_gradients", "dbeta", dbeta, channels);
  Kokkos::parallel_for("aloni::nn::batch_norm_parameter_gradients", detail::Range<Exec>(exec, 0, channels),
                       detail::ParameterGradients<T, Exec>{1, channels, sums, dgamma, dbeta});
}

template <class T, class Exec>
void batch_norm_backward(const Exec& exec, Index count, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                         InArray<double, Exec> mean, InArray<double, Exec> inv_std,
                         InArray<parameter_type_t<T>, Exec> gamma, InArray<double, Exec> sums, Tensor<T, Exec> dx,
                         InArray<parameter_type_t<T>, Exec> beta_of_relu, InTensor<T, Exec> summand) {
  constexpr auto operation = "aloni::nn::local::batch_norm_backward";
  const detail::Rows rows = detail::rows_of(dx);
  detail::check(count > 0, operation, "count", std::to_string(count), "at least one element per channel");
  detail::check_same_extents(operation, "x", x, dx);
  detail::check_same_extents(operation, "dy", dy, dx);
  detail::check_extent(operation, "mean", mean, rows.channels);
  detail::check_extent(operation, "inv_std", inv_std, rows.channels);
  detail::check_extent(operation, "gamma", gamma, rows.channels);
  detail::check_extent(operation, "sums", sums, 2 * rows.channels);
  using Real = parameter_type_t<T>;
  const detail::ChannelArrays<T, Exec> channels{mean,         inv_std, gamma,
                                                beta_of_relu, sums,    1 / static_cast<double>(count)};
  const bool adds = detail::is_given(summand);
  if (adds) detail::check_same_extents(operation, "summand", summand, dx);
  const auto run = [&]<class Function>(const Function&) {
    detail::for_each_normalised<Function, T, Exec>(exec, "aloni::nn::batch_norm_backward", channels, x, dy, dx,
                                                   summand);
  };
  if (beta_of_relu.extent(0) == 0)
    return adds ? run(detail::BatchNormGradient<Real, false, true>()) : run(detail::BatchNormGradient<Real, false>());
  detail::check_extent(operation, "beta", beta_of_relu, rows.channels);
  adds ? run(detail::BatchNormGradient<Real, true, true>()) : run(detail::BatchNormGradient<Real, true>());
}

#define INSTANTIATE(Exec)                                                                                       \
  template void batch_norm_finish<Exec>(const Exec&, Index, BatchNormStatistics, InArray<double, Exec>,         \
                                        OutArray<double, Exec>, OutArray<double, Exec>, OutArray<double, Exec>, \
                                        OutArray<double, Exec>, InArray<double, Exec>, Array<double, Exec>);    \
  template void batch_norm_inverse<Exec>(const Exec&, double, InArray<double, Exec>, OutArray<double, Exec>);
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

#define INSTANTIATE(T, Exec)                                                                                \
  template void batch_norm_parameter_gradients<T, Exec>(const Exec&, InArray<double, Exec>, Array<T, Exec>, \
                                                        OutArray<T, Exec>);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

#define INSTANTIATE(T, Exec)                                                                            \
  template class BatchNormReduction<T, Exec>;                                                           \
  template void batch_norm_forward<T, Exec>(const Exec&, InTensor<T, Exec>, InArray<double, Exec>,      \
                                            InArray<double, Exec>, InArray<parameter_type_t<T>, Exec>,  \
                                            InArray<parameter_type_t<T>, Exec>, Tensor<T, Exec>, bool,  \
                                            InTensor<T, Exec>);                                         \
  template void batch_norm_backward<T, Exec>(const Exec&, Index, InTensor<T, Exec>, InTensor<T, Exec>,  \
                                             InArray<double, Exec>, InArray<double, Exec>,              \
                                             InArray<parameter_type_t<T>, Exec>, InArray<double, Exec>, \
                                             Tensor<T, Exec>, InArray<parameter_type_t<T>, Exec>, InTensor<T, Exec>);
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
