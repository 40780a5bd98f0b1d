#include <aloni/nn/run/average_statistics.hpp>

#include <aloni/views/detail/instantiate.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace aloni::nn::detail {

using views::Box;
using views::Dim;

template <class T, class Exec>
void average_statistics(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkPlan& plan,
                        const Parameters<T, Exec>& parameters) {
  for (const auto& s : parameters.all_running_statistics()) {
    const std::size_t channels = s.mean.extent(0);
    const Box own = plan.layers[static_cast<std::size_t>(s.layer)].output.owned(comm.rank());
    std::vector<double> values(3 * channels);  // sums of means and variances, and the number of owners
    auto mean = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, s.mean);
    auto variance = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, s.variance);
    for (std::size_t c = 0; c < channels; ++c) {
      const auto channel = static_cast<Index>(c);
      if (own.empty() || channel < own.lower(Dim::channel) || channel >= own.upper(Dim::channel)) continue;
      values[c] = mean(c);
      values[channels + c] = variance(c);
      values[2 * channels + c] = 1;
    }
    comm.all_reduce(std::span<double>(values), comm::Reduction::sum);
    for (std::size_t c = 0; c < channels; ++c) {
      const double owners = values[2 * channels + c];
      if (owners == 0) continue;
      mean(c) = values[c] / owners;
      variance(c) = values[channels + c] / owners;
    }
    Kokkos::deep_copy(queue.space(), s.mean, mean);
    Kokkos::deep_copy(queue.space(), s.variance, variance);
    queue.fence("aloni::nn::synchronise_statistics: the host's values are released");
  }
}

#define INSTANTIATE(T, Exec)                                                                                   \
  template void average_statistics<T, Exec>(const comm::Communicator&, const Queue<Exec>&, const NetworkPlan&, \
                                            const Parameters<T, Exec>&);
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::detail
