#include <aloni/nn/local/loss.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>

namespace aloni::nn::local {

namespace detail {

/// Sums of the loss and of right predictions. They are reduced into a view, so no call waits.
template <class T, class Exec>
struct SoftmaxCrossEntropy {
  using value_type = double[];
  using size_type = Index;
  unsigned value_count = 2;
  Tensor<const T, Exec> logits;
  Array<const int, Exec> labels;
  double scale;
  Tensor<T, Exec> dlogits;
  bool wants_gradient;

  KOKKOS_FUNCTION void operator()(const Index n, double sums[]) const {
    const Index classes = static_cast<Index>(logits.extent(4));
    auto z = [&](Index c) { return static_cast<double>(logits(n, 0, 0, 0, c)); };
    const Index label = labels(n);
    const bool valid = label >= 0 && label < classes;
    Index best = 0;
    for (Index c = 1; c < classes; ++c)
      if (z(c) > z(best)) best = c;
    const double largest = z(best);
    double total = 0;
    for (Index c = 0; c < classes; ++c) total += Kokkos::exp(z(c) - largest);
    const double log_total = Kokkos::log(total);
    const double nan = Kokkos::Experimental::quiet_NaN_v<double>;
    sums[0] += valid ? log_total + (largest - z(label)) : nan;
    sums[1] += valid && best == label ? 1.0 : 0.0;
    if (!wants_gradient) return;
    for (Index c = 0; c < classes; ++c) {
      const double softmax = Kokkos::exp(z(c) - largest) / total;
      dlogits(n, 0, 0, 0, c) = static_cast<T>(valid ? scale * (softmax - (c == label ? 1.0 : 0.0)) : nan);
    }
  }
  KOKKOS_FUNCTION void join(double into[], const double from[]) const {
    into[0] += from[0];
    into[1] += from[1];
  }
  KOKKOS_FUNCTION void init(double sums[]) const { sums[0] = sums[1] = 0; }
};

template <class T, class Exec>
struct BinaryCrossEntropy {
  using value_type = double[];
  using size_type = Index;
  unsigned value_count = 2;
  Rows rows;
  Tensor<const T, Exec> logits, targets;
  double scale;
  Tensor<T, Exec> dlogits;
  bool wants_gradient;

  KOKKOS_FUNCTION void operator()(const Index i, double sums[]) const {
    Index n, d, h, w, c;
    rows.element(i, n, d, h, w, c);
    const double z = static_cast<double>(logits(n, d, h, w, c)), t = static_cast<double>(targets(n, d, h, w, c));
    const double e = Kokkos::exp(-Kokkos::abs(z));  // never overflows
    sums[0] += (z > 0 ? z : 0.0) - z * t + Kokkos::log1p(e);
    sums[1] += (z > 0) == (t > 0.5) ? 1.0 : 0.0;
    if (!wants_gradient) return;
    const double sigmoid = z >= 0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
    dlogits(n, d, h, w, c) = static_cast<T>(scale * (sigmoid - t));
  }
  KOKKOS_FUNCTION void join(double into[], const double from[]) const {
    into[0] += from[0];
    into[1] += from[1];
  }
  KOKKOS_FUNCTION void init(double sums[]) const { sums[0] = sums[1] = 0; }
};

}  // namespace detail

template <class T, class Exec>
void softmax_cross_entropy(const Exec& exec, InTensor<T, Exec> logits, InArray<int, Exec> labels, double scale,
                           Tensor<T, Exec> dlogits, OutArray<double, Exec> result) {
  constexpr auto operation = "aloni::nn::local::softmax_cross_entropy";
  const Index samples = static_cast<Index>(logits.extent(0));
  detail::check(logits.extent(1) == 1 && logits.extent(2) == 1 && logits.extent(3) == 1 && logits.extent(4) >= 1,
                operation, "logits", detail::extents_text(logits), "Nx1x1x1xC with at least one class");
  detail::check_extent(operation, "labels", labels, samples);
  if (dlogits.size() > 0) detail::check_same_extents(operation, "dlogits", dlogits, logits);
  detail::check_extent(operation, "result", result, 2);
  Kokkos::parallel_reduce("aloni::nn::softmax_cross_entropy", detail::Range<Exec>(exec, 0, samples),
                          detail::SoftmaxCrossEntropy<T, Exec>{2, logits, labels, scale, dlogits, dlogits.size() > 0},
                          result);
}

template <class T, class Exec>
void binary_cross_entropy_with_logits(const Exec& exec, InTensor<T, Exec> logits, InTensor<T, Exec> targets,
                                      double scale, Tensor<T, Exec> dlogits, OutArray<double, Exec> result) {
  constexpr auto operation = "aloni::nn::local::binary_cross_entropy_with_logits";
  detail::check_same_extents(operation, "targets", targets, logits);
  if (dlogits.size() > 0) detail::check_same_extents(operation, "dlogits", dlogits, logits);
  detail::check_extent(operation, "result", result, 2);
  const detail::Rows rows = detail::rows_of(logits);
  Kokkos::parallel_reduce(
      "aloni::nn::binary_cross_entropy", detail::Range<Exec>(exec, 0, rows.elements()),
      detail::BinaryCrossEntropy<T, Exec>{2, rows, logits, targets, scale, dlogits, dlogits.size() > 0}, result);
}

#define INSTANTIATE(T, Exec)                                                                                         \
  template void softmax_cross_entropy<T, Exec>(const Exec&, InTensor<T, Exec>, InArray<int, Exec>, double,           \
                                               Tensor<T, Exec>, OutArray<double, Exec>);                             \
  template void binary_cross_entropy_with_logits<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<T, Exec>, double, \
                                                          Tensor<T, Exec>, OutArray<double, Exec>);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE, comm::bfloat16)
#undef INSTANTIATE

}  // namespace aloni::nn::local
