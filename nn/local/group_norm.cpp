#include <aloni/nn/local/group_norm.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/normalisation.hpp>

#include <string>

namespace aloni::nn::local {

namespace detail {

/// Adds the two sums of the channels of each sample over the channels of each group, weighted by gamma if there is one.
/// A group without channels in this tensor gets zeros.
template <class T, class Exec>
struct AddChannels {
  Index samples, channels;
  ChannelGroups groups;
  Array<const double, Exec> channel_sums;
  Array<const parameter_type_t<T>, Exec> gamma;
  Array<double, Exec> sums;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index n = i / groups.groups, g = i % groups.groups;
    const Index begin = Kokkos::max<Index>(0, g * groups.channels - groups.first);
    const Index end = Kokkos::min<Index>(channels, (g + 1) * groups.channels - groups.first);
    const bool weighted = gamma.extent(0) > 0;
    double first = 0, second = 0;
    for (Index c = begin; c < end; ++c) {
      const double weight = weighted ? static_cast<double>(gamma(c)) : 1.0;
      first += weight * channel_sums(2 * n * channels + c);
      second += weight * channel_sums((2 * n + 1) * channels + c);
    }
    sums(i) = first;
    sums(samples * groups.groups + i) = second;
  }
};

/// The group of a channel of a sample, by their index.
KOKKOS_INLINE_FUNCTION Index group_of(const ChannelGroups& groups, Index channels, Index i) {
  return i / channels * groups.groups + (groups.first + i % channels) / groups.channels;
}

/// Copies the mean and deviation of a group to each of its channels, so loops over elements need no division by the
/// group size.
template <class Exec>
struct FinishGroups {
  Index samples, channels;
  ChannelGroups groups;
  double count, epsilon;
  Array<const double, Exec> sums;
  Array<double, Exec> mean, inv_std;
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index group = group_of(groups, channels, i);
    const double m = sums(group) / count;
    const double variance = Kokkos::fmax(0.0, sums(samples * groups.groups + group) / count - m * m);
    mean(i) = m;
    inv_std(i) = 1.0 / Kokkos::sqrt(variance + epsilon);
  }
};

template <class Exec>
struct GroupMeans {
  Index samples, channels;
  ChannelGroups groups;
  double inverse_count;
  Array<const double, Exec> sums;
  Array<double, Exec> means;  ///< of gamma·dy for each sample's channels, then of gamma·dy·x̂
  KOKKOS_FUNCTION void operator()(const Index i) const {
    const Index group = group_of(groups, channels, i);
    means(i) = sums(group) * inverse_count;
    means(samples * channels + i) = sums(samples * groups.groups + group) * inverse_count;
  }
};

template <class T, class Exec>
struct GroupGradient {
  Rows rows;
  Tensor<const T, Exec> x, dy;
  Array<const double, Exec> mean, inv_std, means;
  Array<const parameter_type_t<T>, Exec> gamma;
  Tensor<T, Exec> dx;
  KOKKOS_FUNCTION void element(Index n, Index d, Index h, Index w, Index c) const {
    const Index s = n * rows.channels + c;
    const double normal = (static_cast<double>(x(n, d, h, w, c)) - mean(s)) * inv_std(s);
    const double share = means(s) + normal * means(rows.samples * rows.channels + s);
    dx(n, d, h, w, c) =
        static_cast<T>(inv_std(s) * (static_cast<double>(gamma(c)) * static_cast<double>(dy(n, d, h, w, c)) - share));
  }
};

inline ChannelGroups whole_groups(Index channels, Index groups) {
  check(groups > 0 && channels % groups == 0, "aloni::nn::local::LocalGroupNorm", "groups", std::to_string(groups),
        "a divisor of the channels");
  return {groups, channels / groups, 0};
}

}  // namespace detail

template <class T, class Exec>
LocalGroupNorm<T, Exec>::LocalGroupNorm(const Exec& exec, const std::array<Index, 5>& extents, Index groups)
    : LocalGroupNorm(exec, extents, detail::whole_groups(extents[4], groups)) {}

template <class T, class Exec>
LocalGroupNorm<T, Exec>::LocalGroupNorm(const Exec& exec, const std::array<Index, 5>& extents,
                                        const ChannelGroups& groups)
    : extents_(extents), groups_(groups) {
  detail::check(groups.first >= 0 && groups.first + extents[4] <= groups.groups * groups.channels,
                "aloni::nn::local::LocalGroupNorm", "first channel", std::to_string(groups.first),
                "a channel of the groups, with all channels of the tensor behind it");
  const Index shares = detail::shares_of(extents[0], extents[1] * extents[2]).total(), each = extents[0] * extents[4];
  const auto doubles = [&](const std::string& label, Index size) {
    return Doubles(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, label), static_cast<std::size_t>(size));
  };
  partial_ = doubles("aloni::nn::group_norm_partial_sums", shares * 2 * extents[4]);
  channel_sums_ = doubles("aloni::nn::group_norm_channel_sums", 2 * each);
  mean_ = doubles("aloni::nn::group_norm_mean", each);
  inv_std_ = doubles("aloni::nn::group_norm_inv_std", each);
  group_means_ = doubles("aloni::nn::group_norm_means", 2 * each);
}

template <class T, class Exec>
void LocalGroupNorm<T, Exec>::statistics(const Exec& exec, InTensor<T, Exec> x, OutArray<double, Exec> sums) {
  constexpr auto operation = "aloni::nn::local::LocalGroupNorm::statistics";
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extent(operation, "sums", sums, this->sums());
  const detail::Rows rows = detail::rows_of(x);
  detail::reduce_channels<T, Exec, false>(exec, "aloni::nn::group_norm_statistics", rows,
                                          detail::shares_of(rows.samples, rows.depth * rows.height),
                                          detail::PerChannel{}, x, {}, {}, {}, partial_, channel_sums_);
  Kokkos::parallel_for("aloni::nn::group_norm_add_channels",
                       detail::Range<Exec>(exec, 0, rows.samples * groups_.groups),
                       detail::AddChannels<T, Exec>{rows.samples, rows.channels, groups_, channel_sums_, {}, sums});
}

template <class T, class Exec>
void LocalGroupNorm<T, Exec>::finish(const Exec& exec, Index count, double epsilon, InArray<double, Exec> sums) {
  constexpr auto operation = "aloni::nn::local::LocalGroupNorm::finish";
  detail::check(count > 0, operation, "count", std::to_string(count), "at least one element per group");
  detail::check_extent(operation, "sums", sums, this->sums());
  const Index samples = extents_[0], channels = extents_[4];
  Kokkos::parallel_for("aloni::nn::group_norm_finish", detail::Range<Exec>(exec, 0, samples * channels),
                       detail::FinishGroups<Exec>{samples, channels, groups_, static_cast<double>(count), epsilon, sums,
                                                  mean_, inv_std_});
}

template <class T, class Exec>
void LocalGroupNorm<T, Exec>::forward(const Exec& exec, InTensor<T, Exec> x, InArray<parameter_type_t<T>, Exec> gamma,
                                      InArray<parameter_type_t<T>, Exec> beta, OutTensor<T, Exec> y) const {
  constexpr auto operation = "aloni::nn::local::LocalGroupNorm::forward";
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extent(operation, "gamma", gamma, extents_[4]);
  detail::check_extent(operation, "beta", beta, extents_[4]);
  detail::check_extents(operation, "y", y, extents_);
  detail::for_each_element(
      exec, "aloni::nn::group_norm_forward",
      detail::Normalise<T, Exec>{detail::rows_of(y), {extents_[4]}, x, mean_, inv_std_, gamma, beta, y});
}

template <class T, class Exec>
void LocalGroupNorm<T, Exec>::gradients(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                                        InArray<parameter_type_t<T>, Exec> gamma, OutArray<double, Exec> sums) {
  constexpr auto operation = "aloni::nn::local::LocalGroupNorm::gradients";
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extents(operation, "dy", dy, extents_);
  detail::check_extent(operation, "gamma", gamma, extents_[4]);
  detail::check_extent(operation, "sums", sums, this->sums());
  const detail::Rows rows = detail::rows_of(x);
  detail::reduce_channels<T, Exec, true>(
      exec, "aloni::nn::group_norm_gradients", rows, detail::shares_of(rows.samples, rows.depth * rows.height),
      detail::PerChannel{rows.channels}, x, dy, mean_, inv_std_, partial_, channel_sums_);
  Kokkos::parallel_for("aloni::nn::group_norm_add_channels",
                       detail::Range<Exec>(exec, 0, rows.samples * groups_.groups),
                       detail::AddChannels<T, Exec>{rows.samples, rows.channels, groups_, channel_sums_, gamma, sums});
}

template <class T, class Exec>
void LocalGroupNorm<T, Exec>::parameter_gradients(const Exec& exec, OutArray<parameter_type_t<T>, Exec> dgamma,
                                                  OutArray<parameter_type_t<T>, Exec> dbeta) const {
  constexpr auto operation = "aloni::nn::local::LocalGroupNorm::parameter_gradients";
  detail::check_extent(operation, "dgamma", dgamma, extents_[4]);
  detail::check_extent(operation, "dbeta", dbeta, extents_[4]);
  Kokkos::parallel_for(
      "aloni::nn::group_norm_parameter_gradients", detail::Range<Exec>(exec, 0, extents_[4]),
      detail::ParameterGradients<parameter_type_t<T>, Exec>{extents_[0], extents_[4], channel_sums_, dgamma, dbeta});
}

template <class T, class Exec>
void LocalGroupNorm<T, Exec>::backward(const Exec& exec, Index count, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                                       InArray<parameter_type_t<T>, Exec> gamma, InArray<double, Exec> sums,
                                       OutTensor<T, Exec> dx) {
  constexpr auto operation = "aloni::nn::local::LocalGroupNorm::backward";
  detail::check(count > 0, operation, "count", std::to_string(count), "at least one element per group");
  detail::check_extents(operation, "x", x, extents_);
  detail::check_extents(operation, "dy", dy, extents_);
  detail::check_extent(operation, "gamma", gamma, extents_[4]);
  detail::check_extent(operation, "sums", sums, this->sums());
  detail::check_extents(operation, "dx", dx, extents_);
  const Index samples = extents_[0], channels = extents_[4];
  Kokkos::parallel_for(
      "aloni::nn::group_norm_means", detail::Range<Exec>(exec, 0, samples * channels),
      detail::GroupMeans<Exec>{samples, channels, groups_, 1.0 / static_cast<double>(count), sums, group_means_});
  detail::for_each_element(
      exec, "aloni::nn::group_norm_backward",
      detail::GroupGradient<T, Exec>{detail::rows_of(dx), x, dy, mean_, inv_std_, group_means_, gamma, dx});
}

#define INSTANTIATE(T, Exec) template class LocalGroupNorm<T, Exec>;
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
