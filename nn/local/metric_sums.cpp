#include <aloni/nn/local/metric_sums.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>
#include <aloni/nn/local/detail/sums.hpp>

namespace aloni::nn::local {

namespace detail {

/// One index is one sample.
template <class T, class Exec>
struct TopMatches : Sums<1> {
  Tensor<const T, Exec> logits;
  Array<const int, Exec> labels;
  int top;

  TopMatches(const Tensor<const T, Exec>& z, const Array<const int, Exec>& l, int t) : logits(z), labels(l), top(t) {}

  KOKKOS_FUNCTION void operator()(const Index n, double sums[]) const {
    const Index classes = static_cast<Index>(logits.extent(4)), label = labels(n);
    if (label < 0 || label >= classes) return;
    const auto z = [&](Index c) { return static_cast<double>(logits(n, 0, 0, 0, c)); };
    const double own = z(label);
    int larger = 0;
    for (Index c = 0; c < classes; ++c) larger += z(c) > own || (z(c) == own && c < label) ? 1 : 0;
    sums[0] += larger < top ? 1 : 0;
  }
};

/// One index is one row of pixels. Neighbours mostly have one prediction and one label, so the counts of a run of them
/// are added at once. Sums of integers do not depend on their order.
template <class T, class Exec>
struct ClassOverlaps {
  Rows rows;
  Tensor<const T, Exec> logits;
  Tensor<const int, Exec> labels;
  Array<double, Exec> sums;

  KOKKOS_FUNCTION void add(Index predicted, Index label, Index pixels) const {
    const auto count = static_cast<double>(pixels);
    const bool valid = label >= 0 && label < rows.channels;
    if (predicted == label) Kokkos::atomic_add(&sums(2 * label), count);
    Kokkos::atomic_add(&sums(2 * predicted + 1), count);
    if (predicted != label && valid) Kokkos::atomic_add(&sums(2 * label + 1), count);
  }
  KOKKOS_FUNCTION void operator()(const Index row) const {
    Index n, d, h, before = 0, before_label = 0, pixels = 0;
    rows.row(row, n, d, h);
    for (Index w = 0; w < rows.width; ++w) {
      Index best = 0;
      for (Index c = 1; c < rows.channels; ++c)
        if (static_cast<double>(logits(n, d, h, w, c)) > static_cast<double>(logits(n, d, h, w, best))) best = c;
      const Index label = labels(n, d, h, w, 0);
      if (pixels > 0 && (best != before || label != before_label)) {
        add(before, before_label, pixels);
        pixels = 0;
      }
      before = best;
      before_label = label;
      ++pixels;
    }
    if (pixels > 0) add(before, before_label, pixels);
  }
};

struct ForegroundOverlap {
  static constexpr int count = 2;
  KOKKOS_FUNCTION static void add(double z, double t, double sums[]) {
    const bool predicted = z > 0, wanted = t > 0.5;
    sums[0] += predicted && wanted ? 1 : 0;
    sums[1] += predicted || wanted ? 1 : 0;
  }
};
struct AbsoluteError {
  static constexpr int count = 1;
  KOKKOS_FUNCTION static void add(double y, double t, double sums[]) { sums[0] += Kokkos::abs(y - t); }
};

/// Metric::add of each element.
template <class Metric, class T, class Exec>
struct ElementSums : Sums<Metric::count> {
  Rows rows;
  Tensor<const T, Exec> outputs, targets;

  ElementSums(const Tensor<const T, Exec>& y, const Tensor<const T, Exec>& t)
      : rows(rows_of(y)), outputs(y), targets(t) {}

  KOKKOS_FUNCTION void operator()(const Index i, double sums[]) const {
    Index n, d, h, w, c;
    rows.element(i, n, d, h, w, c);
    Metric::add(static_cast<double>(outputs(n, d, h, w, c)), static_cast<double>(targets(n, d, h, w, c)), sums);
  }
};

template <class Metric, class T, class Exec>
void element_sums(const Exec& exec, const char* operation, const char* label, const Tensor<const T, Exec>& outputs,
                  const Tensor<const T, Exec>& targets, const Array<double, Exec>& sums) {
  check_same_extents(operation, "targets", targets, outputs);
  check_extent(operation, "sums", sums, Metric::count);
  Kokkos::parallel_reduce(label, Range<Exec>(exec, 0, rows_of(outputs).elements()),
                          ElementSums<Metric, T, Exec>(outputs, targets), sums);
}

}  // namespace detail

template <class T, class Exec>
void top_matches(const Exec& exec, InTensor<T, Exec> logits, InArray<int, Exec> labels, int top,
                 OutArray<double, Exec> sums) {
  constexpr auto operation = "aloni::nn::local::top_matches";
  const Index samples = static_cast<Index>(logits.extent(0));
  detail::check(logits.extent(1) == 1 && logits.extent(2) == 1 && logits.extent(3) == 1, operation, "logits",
                detail::extents_text(logits), "Nx1x1x1xC");
  detail::check_extent(operation, "labels", labels, samples);
  detail::check_extent(operation, "sums", sums, 1);
  Kokkos::parallel_reduce("aloni::nn::top_matches", detail::Range<Exec>(exec, 0, samples),
                          detail::TopMatches<T, Exec>(logits, labels, top), sums);
}

template <class T, class Exec>
void class_overlaps(const Exec& exec, InTensor<T, Exec> logits, InTensor<int, Exec> labels,
                    OutArray<double, Exec> sums) {
  constexpr auto operation = "aloni::nn::local::class_overlaps";
  const detail::Rows rows = detail::rows_of(logits);
  detail::check_extents(operation, "labels", labels, {rows.samples, rows.depth, rows.height, rows.width, 1});
  detail::check_extent(operation, "sums", sums, 2 * rows.channels);
  Kokkos::deep_copy(exec, sums, 0.0);
  Kokkos::parallel_for("aloni::nn::class_overlaps", detail::Range<Exec>(exec, 0, rows.rows()),
                       detail::ClassOverlaps<T, Exec>{rows, logits, labels, sums});
}

template <class T, class Exec>
void foreground_overlap(const Exec& exec, InTensor<T, Exec> logits, InTensor<T, Exec> targets,
                        OutArray<double, Exec> sums) {
  detail::element_sums<detail::ForegroundOverlap, T, Exec>(exec, "aloni::nn::local::foreground_overlap",
                                                           "aloni::nn::foreground_overlap", logits, targets, sums);
}

template <class T, class Exec>
void absolute_errors(const Exec& exec, InTensor<T, Exec> outputs, InTensor<T, Exec> targets,
                     OutArray<double, Exec> sums) {
  detail::element_sums<detail::AbsoluteError, T, Exec>(exec, "aloni::nn::local::absolute_errors",
                                                       "aloni::nn::absolute_errors", outputs, targets, sums);
}

#define INSTANTIATE(T, Exec)                                                                                           \
  template void top_matches<T, Exec>(const Exec&, InTensor<T, Exec>, InArray<int, Exec>, int, OutArray<double, Exec>); \
  template void class_overlaps<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<int, Exec>, OutArray<double, Exec>);  \
  template void foreground_overlap<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<T, Exec>,                         \
                                            OutArray<double, Exec>);                                                   \
  template void absolute_errors<T, Exec>(const Exec&, InTensor<T, Exec>, InTensor<T, Exec>, OutArray<double, Exec>);
ALONI_INSTANTIATE_LAYERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
