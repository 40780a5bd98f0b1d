#include <aloni/nn/weight_average.hpp>

#include <aloni/nn/local/average.hpp>
#include <aloni/nn/local/detail/activations.hpp>

#include <cstddef>

namespace aloni::nn {

template <class T, class Exec>
WeightAverage<T, Exec>::WeightAverage(const Queue<Exec>& queue, const Parameters<T, Exec>& parameters,
                                      const Averaging& averaging)
    : parameters_(parameters), averaging_(averaging) {
  check(averaging, "aloni::nn::WeightAverage");
  for (const auto& segment : parameters.segments()) {
    averages_.emplace_back(Kokkos::view_alloc(queue.space(), "aloni::nn::weight_average", Kokkos::WithoutInitializing),
                           segment.values.extent(0));
    Kokkos::deep_copy(queue.space(), averages_.back(), segment.values);
  }
}

template <class T, class Exec>
void WeightAverage<T, Exec>::add(const Exec& exec, std::int64_t update) const {
  const double decay = decay_of(averaging_, update);
  for (std::size_t s = 0; s < averages_.size(); ++s)
    local::average_step<T, Exec>(exec, decay, parameters_.segments()[s].values, averages_[s]);
}

template <class T, class Exec>
void WeightAverage<T, Exec>::exchange(const Queue<Exec>& queue) const {
  parameters_.values_changed();
  for (std::size_t s = 0; s < averages_.size(); ++s)
    local::exchange<T, Exec>(queue.space(), parameters_.segments()[s].values, averages_[s]);
}

template <class T, class Exec>
auto WeightAverage<T, Exec>::gather(const Queue<Exec>& queue) const -> HostFlat {
  exchange(queue);
  const HostFlat all = parameters_.gather_values(queue);
  exchange(queue);
  return all;
}

template <class T, class Exec>
void WeightAverage<T, Exec>::scatter(const Queue<Exec>& queue, const HostFlat& all) const {
  exchange(queue);
  try {
    parameters_.scatter_values(queue, all);
  } catch (...) {
    exchange(queue);
    throw;
  }
  exchange(queue);
}

template <class T, class Exec>
Index WeightAverage<T, Exec>::bytes() const {
  std::size_t elements = 0;
  for (const Flat& flat : averages_) elements += flat.size();
  return static_cast<Index>(elements * sizeof(T));
}

#define INSTANTIATE(T, Exec) template class WeightAverage<T, Exec>;
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
