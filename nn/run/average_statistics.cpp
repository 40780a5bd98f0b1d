#include <aloni/nn/run/average_statistics.hpp>

#include <aloni/core/comm/view_all_reduce.hpp>
#include <aloni/nn/local/detail/activations.hpp>

#include <cstddef>
#include <utility>

namespace aloni::nn::detail {

using views::Box;
using views::Dim;

namespace {

/// Means of the channels that a rank owns; the others keep their values.
template <class Mem>
struct Divide {
  Kokkos::View<const double*, Mem> sums, owners;
  Kokkos::View<double*, Mem> means;
  KOKKOS_FUNCTION void operator()(const Index c) const {
    if (owners(c) > 0) means(c) = sums(c) / owners(c);
  }
};

}  // namespace

template <class T, class Exec>
void average_statistics(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkPlan& plan,
                        const Parameters<T, Exec>& parameters) {
  using Mem = typename Exec::memory_space;
  const auto& statistics = parameters.all_running_statistics();
  const Exec& exec = queue.space();
  std::size_t elements = 0;
  for (const auto& s : statistics) elements += 3 * s.mean.extent(0);
  // Of each layer: sums of means, sums of variances, and the number of owners, channel by channel.
  Kokkos::View<double*, Mem> sums(Kokkos::view_alloc(exec, "aloni::nn::statistics"), elements);
  const auto part = [&](std::size_t first, std::size_t length) {
    return Kokkos::subview(sums, std::pair{first, first + length});
  };
  std::size_t first = 0;
  for (const auto& s : statistics) {
    const std::size_t channels = s.mean.extent(0);
    const Box own = plan.layers[static_cast<std::size_t>(s.layer)].output.owned(comm.rank());
    if (!own.empty()) {
      const auto lower = static_cast<std::size_t>(own.lower(Dim::channel)),
                 upper = static_cast<std::size_t>(own.upper(Dim::channel));
      const std::pair range{lower, upper};
      Kokkos::deep_copy(exec, part(first + lower, upper - lower), Kokkos::subview(s.mean, range));
      Kokkos::deep_copy(exec, part(first + channels + lower, upper - lower), Kokkos::subview(s.variance, range));
      Kokkos::deep_copy(exec, part(first + 2 * channels + lower, upper - lower), 1.0);
    }
    first += 3 * channels;
  }
  comm::ViewAllReduce<double, Exec>(comm, queue, sums, {}, false).run(queue);
  first = 0;
  for (const auto& s : statistics) {
    const std::size_t channels = s.mean.extent(0);
    const auto owners = part(first + 2 * channels, channels);
    const Kokkos::RangePolicy<Exec, Kokkos::IndexType<Index>> all(exec, 0, static_cast<Index>(channels));
    Kokkos::parallel_for("aloni::nn::average_means", all, Divide<Mem>{part(first, channels), owners, s.mean});
    Kokkos::parallel_for("aloni::nn::average_variances", all,
                         Divide<Mem>{part(first + channels, channels), owners, s.variance});
    first += 3 * channels;
  }
  queue.fence("aloni::nn::synchronise_statistics: the sums are released");
}

#define INSTANTIATE(T, Exec)                                                                                   \
  template void average_statistics<T, Exec>(const comm::Communicator&, const Queue<Exec>&, const NetworkPlan&, \
                                            const Parameters<T, Exec>&);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::detail
