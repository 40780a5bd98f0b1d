#include <aloni/nn/checkpoint/archive_parameters.hpp>

#include <aloni/nn/local/detail/activations.hpp>

#include <Kokkos_Core.hpp>

#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace aloni::nn::checkpoint {

namespace {

template <class T>
constexpr ElementType type_of = std::is_same_v<T, double> ? ElementType::float64 : ElementType::float32;

/// A copy on the host, or the View itself if it lies there.
template <class Exec, class View>
auto on_host(const Queue<Exec>& queue, const View& view) {
  auto host = Kokkos::create_mirror_view(view);
  Kokkos::deep_copy(queue.space(), host, view);
  return host;
}

template <class View>
std::byte* bytes_at(const View& host, Index position) {
  return reinterpret_cast<std::byte*>(host.data() + position);
}

/// A vector that all ranks keep.
template <class Exec, class View>
void archive_vector(Archive& archive, const Queue<Exec>& queue, const std::string& name, const View& view) {
  const auto host = on_host(queue, view);
  queue.fence("aloni::nn::checkpoint: the statistics are on the host");
  const views::Extents extents{{1, 1, 1, 1, static_cast<Index>(view.extent(0))}};
  archive.tensor({name, ElementType::float64, extents, views::whole(extents), {views::whole(extents)}},
                 bytes_at(host, 0));
  archive.keep(std::make_shared<decltype(host)>(host));
  if (!archive.loads()) return;
  Kokkos::deep_copy(queue.space(), view, host);
  queue.fence("aloni::nn::checkpoint: the host's statistics are released");
}

}  // namespace

template <class T, class Exec>
void archive_flats(Archive& archive, const Queue<Exec>& queue, const Parameters<T, Exec>& parameters,
                   const std::vector<typename Parameters<T, Exec>::Flat>& flats, const std::string& suffix) {
  const ParameterLayout& layout = parameters.layout();
  std::vector<typename Parameters<T, Exec>::Flat::HostMirror> hosts;
  for (const auto& flat : flats) hosts.push_back(on_host(queue, flat));
  queue.fence("aloni::nn::checkpoint: the parameters are on the host");
  for (std::size_t i = 0; i < layout.places.size(); ++i) {
    const ParameterDescription& d = layout.descriptions[i];
    const ParameterPlace& place = layout.places[i];
    archive.tensor({d.name + suffix, type_of<T>, d.extents, place.kept, place.own, place.blocks.count()},
                   bytes_at(hosts[place.segment], place.offset));
  }
  archive.keep(std::make_shared<decltype(hosts)>(hosts));
  if (!archive.loads()) return;
  for (std::size_t s = 0; s < flats.size(); ++s) Kokkos::deep_copy(queue.space(), flats[s], hosts[s]);
  queue.fence("aloni::nn::checkpoint: the host's parameters are released");
}

template <class T, class Exec>
void archive_weights(Archive& archive, const Queue<Exec>& queue, const NetworkDescription& network,
                     const Parameters<T, Exec>& parameters) {
  std::vector<typename Parameters<T, Exec>::Flat> flats;
  for (const auto& segment : parameters.segments()) flats.push_back(segment.values);
  archive_flats(archive, queue, parameters, flats, "");
  if (archive.loads()) parameters.values_changed();
  for (const auto& statistics : parameters.all_running_statistics()) {
    const std::string& layer = network.layers.at(static_cast<std::size_t>(statistics.layer)).name;
    archive_vector(archive, queue, layer + ".running_mean", statistics.mean);
    archive_vector(archive, queue, layer + ".running_variance", statistics.variance);
  }
}

template <class T, class Exec>
void archive_parameters(Archive& archive, const Queue<Exec>& queue, const NetworkDescription& network,
                        const Parameters<T, Exec>& parameters) {
  archive_weights(archive, queue, network, parameters);
  if (!parameters.trains()) return;
  const auto& states = properties_of(parameters.optimiser()).states;
  for (std::size_t k = 0; k < states.size(); ++k) {
    std::vector<typename Parameters<T, Exec>::Flat> flats;
    for (const auto& segment : parameters.segments()) flats.push_back(segment.states.at(k));
    archive_flats(archive, queue, parameters, flats, "." + std::string(states[k]));
  }
}

#define INSTANTIATE(T, Exec)                                                                                        \
  template void archive_flats<T, Exec>(Archive&, const Queue<Exec>&, const Parameters<T, Exec>&,                    \
                                       const std::vector<typename Parameters<T, Exec>::Flat>&, const std::string&); \
  template void archive_weights<T, Exec>(Archive&, const Queue<Exec>&, const NetworkDescription&,                   \
                                         const Parameters<T, Exec>&);                                               \
  template void archive_parameters<T, Exec>(Archive&, const Queue<Exec>&, const NetworkDescription&,                \
                                            const Parameters<T, Exec>&);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::checkpoint
