#include <aloni/nn/parameters.hpp>

#include <aloni/core/comm/shared_view.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/tensor.hpp>
#include <aloni/views/detail/instantiate.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <tuple>
#include <variant>

namespace aloni::nn {

using views::Box;
using views::Extents;

namespace {

/// Calls f(position in a dense tensor over `a`, position in a dense tensor over `b`) for each index of `part`. @pre a
/// and b contain part
template <class F>
void for_each_position(const Box& a, const Box& b, const Box& part, const F& f) {
  const auto a_extents = views::extents_of(a).values, b_extents = views::extents_of(b).values;
  std::array<Index, 5> i{};
  for (i[0] = part.lo[0]; i[0] < part.hi[0]; ++i[0])
    for (i[1] = part.lo[1]; i[1] < part.hi[1]; ++i[1])
      for (i[2] = part.lo[2]; i[2] < part.hi[2]; ++i[2])
        for (i[3] = part.lo[3]; i[3] < part.hi[3]; ++i[3])
          for (i[4] = part.lo[4]; i[4] < part.hi[4]; ++i[4]) {
            Index in_a = 0, in_b = 0;
            for (std::size_t d = 0; d < 5; ++d) {
              in_a = in_a * a_extents[d] + i[d] - a.lo[d];
              in_b = in_b * b_extents[d] + i[d] - b.lo[d];
            }
            f(in_a, in_b);
          }
}

}  // namespace

template <class T, class Exec>
Parameters<T, Exec>::Parameters(const Queue<Exec>& queue, const NetworkDescription& network, std::uint64_t seed)
    : descriptions_(parameters_of(network)), places_(descriptions_.size()) {
  lay_out(nullptr, queue);
  initialise(queue, network, seed);
}

template <class T, class Exec>
Parameters<T, Exec>::Parameters(const comm::Communicator& comm, const Queue<Exec>& queue,
                                const NetworkDescription& network, std::uint64_t seed)
    : descriptions_(parameters_of(network)), places_(descriptions_.size()) {
  lay_out(&comm, queue);
  initialise(queue, network, seed);
}

template <class T, class Exec>
Parameters<T, Exec>::Parameters(const comm::Communicator& comm, const Queue<Exec>& queue,
                                const NetworkDescription& network, const std::vector<LayerSplit>& splits,
                                std::uint64_t seed)
    : comm_(comm), descriptions_(parameters_of(network)), places_(descriptions_.size()) {
  const NetworkPlan plan = plan_network(network, splits, comm.size(), 1);
  for (std::size_t i = 0; i < descriptions_.size(); ++i) {
    const bool is_weight = i == 0 || descriptions_[i - 1].layer != descriptions_[i].layer;
    const LayerPlan& layer = plan.layers[static_cast<std::size_t>(descriptions_[i].layer)];
    if (!is_weight || !layer.convolution || layer.convolution->blocks() == 1) continue;
    places_[i].blocks = {layer.convolution->channel_blocks, layer.convolution->filter_blocks};
    for (const ConvolutionPart& part : layer.convolution->parts(comm.rank()))
      places_[i].own.push_back(layer.convolution->weights_of(part, descriptions_[i].extents));
  }
  lay_out(&comm, queue);
  initialise(queue, network, seed);
}

template <class T, class Exec>
void Parameters<T, Exec>::lay_out(const comm::Communicator* comm, const Queue<Exec>& queue) {
  std::vector<int> blocks{1};
  for (const Place& place : places_) blocks.push_back(place.blocks.count());
  std::ranges::sort(blocks);
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  std::vector<Index> lengths(blocks.size(), 0);
  Index first = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    const Extents& extents = descriptions_[i].extents;
    if (place.blocks.count() == 1) place.own = {views::whole(extents)};
    for (const Box& box : place.own) place.kept = hull(place.kept, box);
    place.segment = static_cast<std::size_t>(std::ranges::find(blocks, place.blocks.count()) - blocks.begin());
    place.offset = lengths[place.segment];
    place.first = first;
    first += extents.size();
    // Each tensor has a distinct address, even if it is empty.
    lengths[place.segment] += std::max<Index>(1, place.kept.size());
  }
  const Exec& exec = queue.space();
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    const auto length = static_cast<std::size_t>(lengths[s]), with_tail = length + (s == 0 ? tail : 0);
    Segment segment{
        .blocks = blocks[s], .sum = {}, .values = {}, .momenta = {}, .gradients = {}, .gradient_memory = {}};
    if (s > 0) segment.sum = comm->split(comm->rank() % blocks[s], comm->rank());
    segment.values = Flat(Kokkos::view_alloc(exec, "aloni::nn::parameters"), length);
    segment.momenta = Flat(Kokkos::view_alloc(exec, "aloni::nn::momenta"), length);
    if (comm != nullptr) {
      std::tie(segment.gradients, segment.gradient_memory) =
          comm::allocate_shared<T>(s == 0 ? *comm : *segment.sum, exec, "aloni::nn::gradients", with_tail);
    } else {
      segment.gradients = Flat(Kokkos::view_alloc(exec, "aloni::nn::gradients"), with_tail);
    }
    segments_.push_back(std::move(segment));
  }
  queue.fence("aloni::nn::Parameters: memory is zero before the host writes to it");
}

template <class T, class Exec>
void Parameters<T, Exec>::initialise(const Queue<Exec>& queue, const NetworkDescription& network, std::uint64_t seed) {
  const Exec& exec = queue.space();
  std::vector<typename Flat::HostMirror> initial;
  for (const Segment& segment : segments_) initial.push_back(Kokkos::create_mirror_view(segment.values));
  for (std::size_t p = 0; p < descriptions_.size(); ++p) {
    const ParameterDescription& d = descriptions_[p];
    const Place& place = places_[p];
    const bool is_gamma = d.name.ends_with(".gamma"), is_beta = d.name.ends_with(".beta");
    const double bound = 1.0 / std::sqrt(static_cast<double>(d.fan_in));
    for_each_position(views::whole(d.extents), place.kept, place.kept, [&](Index whole, Index kept) {
      const double u =
          is_gamma || is_beta ? 0.0 : 2.0 * random::uniform<double>(seed, p, static_cast<std::uint64_t>(whole)) - 1.0;
      initial[place.segment](place.offset + kept) = static_cast<T>(is_gamma ? 1.0 : bound * u);
    });
  }
  for (std::size_t s = 0; s < segments_.size(); ++s) Kokkos::deep_copy(exec, segments_[s].values, initial[s]);

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
int Parameters<T, Exec>::find(int layer, int k) const {
  for (std::size_t i = 0; i < descriptions_.size(); ++i) {
    if (descriptions_[i].layer == layer) return static_cast<int>(i) + k;
  }
  throw InvalidArgument("aloni::nn::Parameters::find", "layer", std::to_string(layer), "a layer that has parameters");
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Parameters<T, Exec>::tensor(const Flat& flat, int i) const {
  const Place& place = places_.at(i);
  return views::LocalView<T, Mem>(flat.data() + place.offset,
                                  detail::dense_layout(views::extents_of(place.kept).values));
}

template <class T, class Exec>
Kokkos::View<T*, typename Exec::memory_space> Parameters<T, Exec>::vector(const Flat& flat, int i) const {
  const Place& place = places_.at(i);
  return Kokkos::subview(flat, Kokkos::make_pair(place.offset, place.offset + place.kept.size()));
}

template <class T, class Exec>
Index Parameters<T, Exec>::count() const {
  return places_.empty() ? 0 : places_.back().first + descriptions_.back().extents.size();
}

template <class T, class Exec>
auto Parameters<T, Exec>::gather(const Queue<Exec>& queue, Flat Segment::*what) const -> HostFlat {
  std::vector<typename Flat::HostMirror> hosts;
  for (const Segment& segment : segments_) {
    hosts.push_back(Kokkos::create_mirror_view(segment.*what));
    Kokkos::deep_copy(queue.space(), hosts.back(), segment.*what);
  }
  queue.fence("aloni::nn::Parameters::gather: the values are on the host");
  const HostFlat all("aloni::nn::gathered_parameters", static_cast<std::size_t>(count()));
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    const Box whole = views::whole(descriptions_[i].extents);
    const bool is_split = place.blocks.count() > 1;
    // One of the ranks that keep the same block contributes it; the others add zeros.
    if (!is_split || comm_->rank() < place.blocks.count()) {
      for (const Box& box : place.own) {
        for_each_position(whole, place.kept, box, [&](Index at, Index kept) {
          all(place.first + at) = hosts[place.segment](place.offset + kept);
        });
      }
    }
    if (is_split)
      comm_->all_reduce(std::span<T>(all.data() + place.first, static_cast<std::size_t>(whole.size())),
                        comm::Reduction::sum);
  }
  return all;
}

template <class T, class Exec>
void Parameters<T, Exec>::scatter_values(const Queue<Exec>& queue, const HostFlat& all) const {
  if (static_cast<Index>(all.extent(0)) != count()) {
    throw InvalidArgument("aloni::nn::Parameters::scatter_values", "extent of the values",
                          std::to_string(all.extent(0)), std::to_string(count()) + ", the elements of all tensors");
  }
  queue.fence("aloni::nn::Parameters::scatter_values: no kernel reads the old values");
  std::vector<typename Flat::HostMirror> hosts;
  for (const Segment& segment : segments_) hosts.push_back(Kokkos::create_mirror_view(segment.values));
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const Place& place = places_[i];
    for_each_position(views::whole(descriptions_[i].extents), place.kept, place.kept, [&](Index whole, Index kept) {
      hosts[place.segment](place.offset + kept) = all(place.first + whole);
    });
  }
  for (std::size_t s = 0; s < segments_.size(); ++s) Kokkos::deep_copy(queue.space(), segments_[s].values, hosts[s]);
  queue.fence("aloni::nn::Parameters::scatter_values: the host's values are released");
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
  for (const Segment& s : segments_) {
    const auto gradients = Kokkos::subview(s.gradients, Kokkos::make_pair(std::size_t{0}, s.values.extent(0)));
    local::sgd_step<T, Exec>(queue.space(), {options.learning_rate, options.momentum, options.weight_decay}, gradients,
                             s.values, s.momenta);
  }
}

#define INSTANTIATE(T, Exec) template class Parameters<T, Exec>;
ALONI_INSTANTIATE_FOR_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
