#include <aloni/core/comm/shared_view.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/parameters.hpp>
#include <aloni/nn/tensor.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <cmath>
#include <string>
#include <tuple>
#include <variant>

namespace aloni::nn {

template <class T, class Exec>
Parameters<T, Exec>::Parameters(const Queue<Exec>& queue, const NetworkDescription& network, std::uint64_t seed)
    : descriptions_(parameters_of(network)) {
  Index total = 0;
  for (const ParameterDescription& d : descriptions_) {
    offsets_.push_back(total);
    total += d.extents.size();
  }
  const Exec& exec = queue.space();
  const auto length = static_cast<std::size_t>(total);
  values_ = Flat(Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "aloni::nn::parameters"), length);
  gradients_ = Flat(Kokkos::view_alloc(exec, "aloni::nn::gradients"), length + tail);
  momenta_ = Flat(Kokkos::view_alloc(exec, "aloni::nn::momenta"), length);

  auto initial = Kokkos::create_mirror_view(Kokkos::WithoutInitializing, values_);
  for (std::size_t p = 0; p < descriptions_.size(); ++p) {
    const ParameterDescription& d = descriptions_[p];
    const bool is_gamma = d.name.ends_with(".gamma"), is_beta = d.name.ends_with(".beta");
    const double bound = 1.0 / std::sqrt(static_cast<double>(d.fan_in));
    for (Index i = 0; i < d.extents.size(); ++i) {
      const double u =
          is_gamma || is_beta ? 0.0 : 2.0 * random::uniform<double>(seed, p, static_cast<std::uint64_t>(i)) - 1.0;
      initial(offsets_[p] + i) = static_cast<T>(is_gamma ? 1.0 : bound * u);
    }
  }
  Kokkos::deep_copy(exec, values_, initial);

  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (!std::holds_alternative<BatchNorm>(network.layers[l].operation)) continue;
    const int layer = static_cast<int>(l);
    const auto channels = static_cast<std::size_t>(descriptions_[find(layer, 0)].extents.size());
    RunningStatistics<Mem> s{layer, {}, {}};
    s.mean = Kokkos::View<double*, Mem>(Kokkos::view_alloc(exec, "aloni::nn::running_mean"), channels);
    s.variance = Kokkos::View<double*, Mem>(Kokkos::view_alloc(exec, "aloni::nn::running_variance"), channels);
    Kokkos::deep_copy(exec, s.variance, 1.0);
    statistics_.push_back(s);
  }
  queue.fence("aloni::nn::Parameters: the host's initial values are released");
}

template <class T, class Exec>
Parameters<T, Exec>::Parameters(const comm::Communicator& comm, const Queue<Exec>& queue,
                                const NetworkDescription& network, std::uint64_t seed)
    : Parameters(queue, network, seed) {
  std::tie(gradients_, gradient_memory_) =
      comm::allocate_shared<T>(comm, queue.space(), "aloni::nn::gradients", gradients_.extent(0));
  queue.fence("aloni::nn::Parameters: gradients are zero");
}

template <class T, class Exec>
int Parameters<T, Exec>::find(int layer, int k) const {
  for (std::size_t i = 0; i < descriptions_.size(); ++i) {
    if (descriptions_[i].layer == layer) return static_cast<int>(i) + k;
  }
  throw InvalidArgument("aloni::nn::Parameters::find", "layer", std::to_string(layer), "a layer that has parameters");
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Parameters<T, Exec>::tensor(const Flat& flat, int i) const {
  return views::LocalView<T, Mem>(flat.data() + offsets_[i], detail::dense_layout(descriptions_.at(i).extents.values));
}

template <class T, class Exec>
Kokkos::View<T*, typename Exec::memory_space> Parameters<T, Exec>::vector(const Flat& flat, int i) const {
  const Index n = descriptions_.at(i).extents.size();
  return Kokkos::subview(flat, Kokkos::make_pair(offsets_[i], offsets_[i] + n));
}

template <class T, class Exec>
const RunningStatistics<typename Exec::memory_space>& Parameters<T, Exec>::running_statistics(int layer) const {
  for (const auto& s : statistics_) {
    if (s.layer == layer) return s;
  }
  throw InvalidArgument("aloni::nn::Parameters::running_statistics", "layer", std::to_string(layer),
                        "a batch normalisation layer");
}

template <class T, class Exec>
void Parameters<T, Exec>::sgd(const Queue<Exec>& queue, const SgdOptions& options) const {
  local::sgd_step<T, Exec>(queue.space(), {options.learning_rate, options.momentum, options.weight_decay},
                           Kokkos::subview(gradients_, Kokkos::make_pair(Index{0}, size())), values_, momenta_);
}

#define INSTANTIATE(T, Exec) template class Parameters<T, Exec>;
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
