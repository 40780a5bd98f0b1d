#include <aloni/nn/weights_file.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/nn/checkpoint/archive_parameters.hpp>
#include <aloni/nn/detail/weights_loader.hpp>
#include <aloni/nn/local/detail/activations.hpp>
#include <aloni/nn/safetensors.hpp>

#include <Kokkos_Core.hpp>

#include <span>
#include <type_traits>
#include <vector>

namespace aloni::nn {

template <class T, class Exec>
void write_weights(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
                   const Parameters<T, Exec>& parameters, const std::string& path) {
  const auto values = parameters.gather_values(queue);
  std::vector<NamedTensor> tensors;
  const auto add = [&](const std::string& name, ElementType type, const views::Extents& e, const auto* data) {
    const std::span elements(data, static_cast<std::size_t>(e.size()));
    tensors.push_back({name, type, {e.values.begin(), e.values.end()}, std::as_bytes(elements)});
  };
  Index first = 0;
  for (const ParameterDescription& d : parameters.descriptions()) {
    add(d.name, std::is_same_v<T, double> ? ElementType::float64 : ElementType::float32, d.extents,
        values.data() + first);
    first += d.extents.size();
  }
  using Statistics = Kokkos::View<double*, typename Exec::memory_space>;
  std::vector<typename Statistics::HostMirror> statistics;  // until the file is written
  const auto add_statistics = [&](const std::string& name, const Statistics& view) {
    statistics.push_back(Kokkos::create_mirror_view(view));
    Kokkos::deep_copy(queue.space(), statistics.back(), view);
    add(name, ElementType::float64, {{1, 1, 1, 1, static_cast<Index>(view.extent(0))}}, statistics.back().data());
  };
  for (const auto& s : parameters.all_running_statistics()) {
    const std::string& layer = network.layers.at(static_cast<std::size_t>(s.layer)).name;
    add_statistics(layer + ".running_mean", s.mean);
    add_statistics(layer + ".running_variance", s.variance);
  }
  queue.fence("aloni::nn::write_weights: the statistics are on the host");
  comm::collectively(comm, "aloni::nn::write_weights", [&] {
    if (comm.rank() == 0) write_safetensors(io::real_file_system(), path, tensors, {{"format", "aloni"}});
  });
}

template <class T, class Exec>
void read_weights(const Queue<Exec>& queue, const NetworkDescription& network, const Parameters<T, Exec>& parameters,
                  const std::string& path) {
  const Safetensors file(io::real_file_system(), path);
  detail::WeightsLoader loader(file);
  checkpoint::archive_weights(loader, queue, network, parameters);
  loader.check_all_read();
}

#define INSTANTIATE(T, Exec)                                                                                     \
  template void write_weights<T, Exec>(const comm::Communicator&, const Queue<Exec>&, const NetworkDescription&, \
                                       const Parameters<T, Exec>&, const std::string&);                          \
  template void read_weights<T, Exec>(const Queue<Exec>&, const NetworkDescription&, const Parameters<T, Exec>&, \
                                      const std::string&);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
