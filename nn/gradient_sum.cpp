#include <aloni/nn/gradient_sum.hpp>

#include <aloni/nn/local/average.hpp>
#include <aloni/nn/local/detail/activations.hpp>

#include <utility>

namespace aloni::nn {

template <class T, class Exec>
GradientSum<T, Exec>::GradientSum(const Exec& exec, const std::vector<Index>& lengths) {
  for (const Index length : lengths)
    sums_.emplace_back(Kokkos::view_alloc(exec, "aloni::nn::gradient_sum"), static_cast<std::size_t>(length));
}

template <class T, class Exec>
void GradientSum<T, Exec>::run(const Exec& exec, const GradientRange& part, const Flat& gradients) const {
  const Flat& sum = sums_[part.segment];
  const bool first = earlier_ == 0;
  const auto samples = static_cast<double>(batch_.samples), all = static_cast<double>(earlier_ + batch_.samples);
  // `weight`: of the values of one sample. `mean`: of all samples, otherwise values are counted.
  const auto add = [&](Index begin, Index end, double weight, bool mean) {
    if (begin == end) return;
    const auto range = std::make_pair(begin, end);
    const Flat mine = Kokkos::subview(gradients, range), theirs = Kokkos::subview(sum, range);
    const double number = mean ? samples : 1, divisor = mean ? all : 1;
    if (!batch_.last) {
      local::weighted_sum_step<T, Exec>(exec, first ? 0 : 1, number * weight, mine, theirs);
    } else if (!first) {
      local::weighted_sum_step<T, Exec>(exec, number * weight / divisor, 1 / divisor, theirs, mine);
    } else if (weight != 1) {
      local::weighted_sum_step<T, Exec>(exec, weight, 0, mine, mine);
    }
  };
  const Index end = part.first + part.elements, tail = end - (part.has_tail ? 2 : 0);
  add(part.first, tail, 1, true);
  if (!part.has_tail) return;
  add(tail, tail + 1, batch_.loss_factor, true);
  add(tail + 1, end, 1, false);
}

template <class T, class Exec>
Index GradientSum<T, Exec>::bytes() const {
  std::size_t elements = 0;
  for (const Flat& sum : sums_) elements += sum.size();
  return static_cast<Index>(elements * sizeof(T));
}

#define INSTANTIATE(T, Exec) template class GradientSum<T, Exec>;
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
