#include <aloni/nn/local/loss.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/sums.hpp>

namespace aloni::nn::local {

namespace detail {

/// One index is one pixel.
template <class T, class Exec>
struct SoftmaxCrossEntropy : Sums<2> {
  Rows pixels;  // of the labels: one channel
  Tensor<const T, Exec> logits;
  Tensor<const int, Exec> labels;
  double scale, smoothing;
  Tensor<T, Exec> dlogits;
  bool wants_gradient;

  SoftmaxCrossEntropy(const Tensor<const T, Exec>& z, const Tensor<const int, Exec>& l, double s, double smooth,
                      const Tensor<T, Exec>& dz)
      : pixels(rows_of(l)),
        logits(z),
        labels(l),
        scale(s),
        smoothing(smooth),
        dlogits(dz),
        wants_gradient(dz.size() > 0) {}

  KOKKOS_FUNCTION void operator()(const Index i, double sums[]) const {
    Index n, d, h, w, one;
    pixels.element(i, n, d, h, w, one);
    const Index classes = static_cast<Index>(logits.extent(4));
    auto z = [&](Index c) { return static_cast<double>(logits(n, d, h, w, c)); };
    const Index label = labels(n, d, h, w, 0);
    const bool valid = label >= 0 && label < classes;
    Index best = 0;
    for (Index c = 1; c < classes; ++c)
      if (z(c) > z(best)) best = c;
    const double largest = z(best);
    double total = 0;
    for (Index c = 0; c < classes; ++c) total += Kokkos::exp(z(c) - largest);
    const double log_total = Kokkos::log(total);
    const double nan = Kokkos::Experimental::quiet_NaN_v<double>;
    double below = valid ? largest - z(label) : nan;  // the mean of largest - z by the target
    const double other = smoothing / static_cast<double>(classes);
    if (smoothing > 0) {
      double all = 0;
      for (Index c = 0; c < classes; ++c) all += largest - z(c);
      below = (1 - smoothing) * below + other * all;
    }
    sums[0] += log_total + below;
    sums[1] += valid && best == label ? 1.0 : 0.0;
    if (!wants_gradient) return;
    for (Index c = 0; c < classes; ++c) {
      const double softmax = Kokkos::exp(z(c) - largest) / total;
      dlogits(n, d, h, w, c) =
          static_cast<T>(valid ? scale * (softmax - ((c == label ? 1 - smoothing : 0.0) + other)) : nan);
    }
  }
};

struct BinaryCrossEntropy {
  double loss, gradient;
  bool right;
  KOKKOS_FUNCTION BinaryCrossEntropy(double z, double t) {
    const double e = Kokkos::exp(-Kokkos::abs(z));  // never overflows
    loss = (z > 0 ? z : 0.0) - z * t + Kokkos::log1p(e);
    gradient = (z >= 0 ? 1.0 / (1.0 + e) : e / (1.0 + e)) - t;
    right = (z > 0) == (t > 0.5);
  }
};
struct SquaredError {
  double loss, gradient;
  bool right = false;
  KOKKOS_FUNCTION SquaredError(double y, double t) : loss((y - t) * (y - t)), gradient(2 * (y - t)) {}
};

/// A loss that is a sum over elements.
template <class Element, class T, class Exec>
struct ElementLoss : Sums<2> {
  Rows rows;
  Tensor<const T, Exec> outputs, targets;
  double scale;
  Tensor<T, Exec> gradient;
  bool wants_gradient;

  ElementLoss(const Tensor<const T, Exec>& y, const Tensor<const T, Exec>& t, double s, const Tensor<T, Exec>& dy)
      : rows(rows_of(y)), outputs(y), targets(t), scale(s), gradient(dy), wants_gradient(dy.size() > 0) {}

  KOKKOS_FUNCTION void operator()(const Index i, double sums[]) const {
    Index n, d, h, w, c;
    rows.element(i, n, d, h, w, c);
    const Element e(static_cast<double>(outputs(n, d, h, w, c)), static_cast<double>(targets(n, d, h, w, c)));
    sums[0] += e.loss;
    sums[1] += e.right ? 1.0 : 0.0;
    if (wants_gradient) gradient(n, d, h, w, c) = static_cast<T>(scale * e.gradient);
  }
};

template <class Element, class T, class Exec>
void element_loss(const Exec& exec, const char* operation, const char* label, const Tensor<const T, Exec>& outputs,
                  const Tensor<const T, Exec>& targets, double scale, const Tensor<T, Exec>& gradient,
                  const Array<double, Exec>& result) {
  check_same_extents(operation, "targets", targets, outputs);
  if (gradient.size() > 0) check_same_extents(operation, "gradient", gradient, outputs);
  check_extent(operation, "result", result, 2);
  Kokkos::parallel_reduce(label, Range<Exec>(exec, 0, rows_of(outputs).elements()),
                          ElementLoss<Element, T, Exec>(outputs, targets, scale, gradient), result);
}

KOKKOS_INLINE_FUNCTION double sigmoid(double z) { return 1 / (1 + Kokkos::exp(-z)); }

template <class T, class Exec>
struct DiceSums : Sums<4> {
  Rows rows;
  Tensor<const T, Exec> logits, targets;

  DiceSums(const Tensor<const T, Exec>& z, const Tensor<const T, Exec>& t) : rows(rows_of(z)), logits(z), targets(t) {}

  KOKKOS_FUNCTION void operator()(const Index i, double sums[]) const {
    Index n, d, h, w, c;
    rows.element(i, n, d, h, w, c);
    const double z = static_cast<double>(logits(n, d, h, w, c)), t = static_cast<double>(targets(n, d, h, w, c));
    const double p = sigmoid(z);
    sums[0] += p * t;
    sums[1] += p * p;
    sums[2] += t * t;
    sums[3] += (z > 0) == (t > 0.5) ? 1.0 : 0.0;
  }
};

template <class T, class Exec>
struct DiceGradient {
  Rows rows;
  Tensor<const T, Exec> logits, targets;
  Array<const double, Exec> sums;
  double scale;
  Tensor<T, Exec> dlogits;

  KOKKOS_FUNCTION void element(Index n, Index d, Index h, Index w, Index c) const {
    const double p = sigmoid(static_cast<double>(logits(n, d, h, w, c)));
    const double t = static_cast<double>(targets(n, d, h, w, c)), squares = sums(1) + sums(2);
    const double by_p = squares > 0 ? 2 * (2 * sums(0) / squares * p - t) / squares : 0.0 * squares;  // keeps NaN
    dlogits(n, d, h, w, c) = static_cast<T>(scale * by_p * p * (1 - p));
  }
};

template <class Exec>
struct DiceResult {
  double share;
  Array<const double, Exec> sums;
  Array<double, Exec> result;

  KOKKOS_FUNCTION void operator()(const Index) const {
    const double squares = sums(1) + sums(2);
    result(0) = share * (squares > 0 ? 1 - 2 * sums(0) / squares : 0.0 * squares);
    result(1) = share * sums(3);
  }
};

}  // namespace detail

template <class T, class Exec>
void softmax_cross_entropy(const Exec& exec, InTensor<T, Exec> logits, InArray<int, Exec> labels, double scale,
                           Tensor<T, Exec> dlogits, OutArray<double, Exec> result, double smoothing) {
  constexpr auto operation = "aloni::nn::local::softmax_cross_entropy";
  const Index samples = static_cast<Index>(logits.extent(0));
  detail::check(logits.extent(1) == 1 && logits.extent(2) == 1 && logits.extent(3) == 1 && logits.extent(4) >= 1,
                operation, "logits", detail::extents_text(logits), "Nx1x1x1xC with at least one class");
  detail::check_extent(operation, "labels", labels, samples);
  if (dlogits.size() > 0) detail::check_same_extents(operation, "dlogits", dlogits, logits);
  detail::check_extent(operation, "result", result, 2);
  const Tensor<const int, Exec> per_pixel = dense_tensor<const int, Exec>(labels.data(), samples, 1, 1, 1, 1);
  Kokkos::parallel_reduce("aloni::nn::softmax_cross_entropy", detail::Range<Exec>(exec, 0, samples),
                          detail::SoftmaxCrossEntropy<T, Exec>(logits, per_pixel, scale, smoothing, dlogits), result);
}

template <class T, class Exec>
void pixel_cross_entropy(const Exec& exec, InTensor<T, Exec> logits, InTensor<int, Exec> labels, double scale,
                         Tensor<T, Exec> dlogits, OutArray<double, Exec> result, double smoothing) {
  constexpr auto operation = "aloni::nn::local::pixel_cross_entropy";
  const detail::Rows rows = detail::rows_of(logits);
  detail::check(rows.channels >= 1, operation, "logits", detail::extents_text(logits), "at least one class");
  detail::check_extents(operation, "labels", labels, {rows.samples, rows.depth, rows.height, rows.width, 1});
  if (dlogits.size() > 0) detail::check_same_extents(operation, "dlogits", dlogits, logits);
  detail::check_extent(operation, "result", result, 2);
  Kokkos::parallel_reduce("aloni::nn::pixel_cross_entropy", detail::Range<Exec>(exec, 0, rows.rows() * rows.width),
                          detail::SoftmaxCrossEntropy<T, Exec>(logits, labels, scale, smoothing, dlogits), result);
}

template <class T, class Exec>
void binary_cross_entropy_with_logits(const Exec& exec, InTensor<T, Exec> logits, InTensor<T, Exec> targets,
                                      double scale, Tensor<T, Exec> dlogits, OutArray<double, Exec> result) {
  detail::element_loss<detail::BinaryCrossEntropy, T, Exec>(exec, "aloni::nn::local::binary_cross_entropy_with_logits",
                                                            "aloni::nn::binary_cross_entropy", logits, targets, scale,
                                                            dlogits, result);
}

template <class T, class Exec>
void mean_squared_error(const Exec& exec, InTensor<T, Exec> outputs, InTensor<T, Exec> targets, double scale,
                        Tensor<T, Exec> gradient, OutArray<double, Exec> result) {
  detail::element_loss<detail::SquaredError, T, Exec>(exec, "aloni::nn::local::mean_squared_error",
                                                      "aloni::nn::mean_squared_error", outputs, targets, scale,
                                                      gradient, result);
}

template <class T, class Exec>
void dice_sums(const Exec& exec, InTensor<T, Exec> logits, InTensor<T, Exec> targets, OutArray<double, Exec> sums) {
  constexpr auto operation = "aloni::nn::local::dice_sums";
  detail::check_same_extents(operation, "targets", targets, logits);
  detail::check_extent(operation, "sums", sums, 4);
  Kokkos::parallel_reduce("aloni::nn::dice_sums", detail::Range<Exec>(exec, 0, detail::rows_of(logits).elements()),
                          detail::DiceSums<T, Exec>(logits, targets), sums);
}

template <class T, class Exec>
void dice_gradient(const Exec& exec, InTensor<T, Exec> logits, InTensor<T, Exec> targets, InArray<double, Exec> sums,
                   double scale, Tensor<T, Exec> dlogits) {
  constexpr auto operation = "aloni::nn::local::dice_gradient";
  detail::check_same_extents(operation, "logits", logits, dlogits);
  detail::check_same_extents(operation, "targets", targets, dlogits);
  detail::check_extent(operation, "sums", sums, 4);
  detail::for_each_element(
      exec, "aloni::nn::dice_gradient",
      detail::DiceGradient<T, Exec>{detail::rows_of(dlogits), logits, targets, sums, scale, dlogits});
}

template <class Exec>
void dice_loss(const Exec& exec, double share, InArray<double, Exec> sums, OutArray<double, Exec> result) {
  detail::check_extent("aloni::nn::local::dice_loss", "sums", sums, 4);
  detail::check_extent("aloni::nn::local::dice_loss", "result", result, 2);
  Kokkos::parallel_for("aloni::nn::dice_loss", detail::Range<Exec>(exec, 0, 1),
                       detail::DiceResult<Exec>{share, sums, result});
}

#define INSTANTIATE(T, Exec)                                                                                         \
  template void softmax_cross_entropy<T, Exec>(const Exec&, InTensor<T, Exec>, InArray<int, Exec>, double,           \
                                               Tensor<T, Exec>, OutArray<double, Exec>, double);                     \
  template void pixel_cross_entropy<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<int, Exec>, double,            \
                                             Tensor<T, Exec>, OutArray<double, Exec>, double);                       \
  template void binary_cross_entropy_with_logits<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<T, Exec>, double, \
                                                          Tensor<T, Exec>, OutArray<double, Exec>);                  \
  template void mean_squared_error<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<T, Exec>, double,               \
                                            Tensor<T, Exec>, OutArray<double, Exec>);                                \
  template void dice_sums<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<T, Exec>, OutArray<double, Exec>);       \
  template void dice_gradient<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<T, Exec>, InArray<double, Exec>,     \
                                       double, Tensor<T, Exec>);
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

#define INSTANTIATE(Exec) \
  template void dice_loss<Exec>(const Exec&, double, InArray<double, Exec>, OutArray<double, Exec>);
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
