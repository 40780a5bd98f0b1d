#include <aloni/nn/gradient_sum.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/local/average.hpp>
#include <aloni/nn/local/detail/activations.hpp>

#include <cstddef>
#include <utility>

namespace aloni::nn {

template <class T, class Exec>
GradientSum<T, Exec>::GradientSum(const Queue<Exec>& queue, const Parameters<T, Exec>& parameters)
    : parameters_(parameters), tail_("aloni::nn::sums", Parameters<T, Exec>::tail) {
  for (const auto& segment : parameters.segments())
    sums_.emplace_back(Kokkos::view_alloc(queue.space(), "aloni::nn::gradient_sum", Kokkos::WithoutInitializing),
                       segment.gradients.extent(0));
}

template <class T, class Exec>
void GradientSum<T, Exec>::step(const Exec& exec, double keep, const Factors& factors, const Flat& from, const Flat& to,
                                bool has_tail) const {
  const auto part = [&](std::size_t first, std::size_t last, double factor) {
    const auto range = std::make_pair(first, last);
    local::weighted_sum_step<T, Exec>(exec, keep, factor, Kokkos::subview(from, range), Kokkos::subview(to, range));
  };
  const std::size_t all = from.extent(0);
  if (!has_tail) return part(0, all, factors.gradients);
  static_assert(Parameters<T, Exec>::tail == 2);
  part(0, all - 2, factors.gradients);
  part(all - 2, all - 1, factors.loss);
  part(all - 1, all, factors.correct);
}

// The sum of losses is divided by all samples as the gradients are. Correct predictions are counted.
template <class T, class Exec>
void GradientSum<T, Exec>::add(const Exec& exec, Index samples, double loss_factor) {
  const double keep = samples_ == 0 ? 0 : 1, weight = static_cast<double>(samples);
  for (std::size_t s = 0; s < sums_.size(); ++s)
    step(exec, keep, {weight, weight * loss_factor, 1}, parameters_.segments()[s].gradients, sums_[s], s == 0);
  samples_ += samples;
}

template <class T, class Exec>
void GradientSum<T, Exec>::finish(const Exec& exec) {
  if (samples_ == 0)
    throw InvalidArgument("aloni::nn::GradientSum::finish", "number of samples", "0", "a call of add() before");
  const double mean = 1 / static_cast<double>(samples_);
  for (std::size_t s = 0; s < sums_.size(); ++s)
    step(exec, 0, {mean, mean, 1}, sums_[s], parameters_.segments()[s].gradients, s == 0);
  samples_ = 0;
}

template <class T, class Exec>
StepResult GradientSum<T, Exec>::result(const Queue<Exec>& queue) const {
  const Flat& gradients = parameters_.gradients();
  const auto end = static_cast<Index>(gradients.extent(0));
  Kokkos::deep_copy(queue.space(), tail_,
                    Kokkos::subview(gradients, std::make_pair(end - Parameters<T, Exec>::tail, end)));
  queue.fence("aloni::nn::GradientSum::result: the loss is needed on the host");
  return {static_cast<double>(tail_(0)), static_cast<Index>(static_cast<double>(tail_(1)) + 0.5)};
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
