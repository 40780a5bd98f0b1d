#include <aloni/nn/parameters.hpp>

#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/shared_view.hpp>
#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/random.hpp>
#include <aloni/nn/local/detail/activations.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/operation.hpp>
#include <aloni/nn/tensor.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <span>
#include <string>
#include <string_view>
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
Parameters<T, Exec>::Parameters(const Queue<Exec>& queue, const NetworkDescription& network, std::uint64_t seed,
                                ParameterUse use, OptimiserKind optimiser, const UpdateOptions& update_options)
    : layout_(lay_out_parameters(network)), use_(use), optimiser_(optimiser), update_options_(update_options) {
  allocate(nullptr, queue, 0);
  initialise(queue, network, seed);
}

template <class T, class Exec>
Parameters<T, Exec>::Parameters(const comm::Communicator& comm, const Queue<Exec>& queue,
                                const NetworkDescription& network, std::uint64_t seed, ParameterUse use,
                                OptimiserKind optimiser, const UpdateOptions& update_options)
    : layout_(lay_out_parameters(network)), use_(use), optimiser_(optimiser), update_options_(update_options) {
  allocate(&comm, queue, 0);
  initialise(queue, network, seed);
}

template <class T, class Exec>
Parameters<T, Exec>::Parameters(const comm::Communicator& comm, const Queue<Exec>& queue,
                                const NetworkDescription& network, const std::vector<LayerSplit>& splits,
                                std::uint64_t seed, ParameterUse use, OptimiserKind optimiser,
                                const UpdateOptions& update_options)
    : comm_(comm),
      layout_(lay_out_parameters(network, plan_network(network, splits, comm.size(), 1), comm.rank())),
      use_(use),
      optimiser_(optimiser),
      update_options_(update_options) {
  allocate(&comm, queue, comm.rank());
  initialise(queue, network, seed);
}

template <class T, class Exec>
void Parameters<T, Exec>::allocate(const comm::Communicator* comm, const Queue<Exec>& queue, int rank) {
  check(update_options_, "aloni::nn::Parameters");
  const std::vector<int>& blocks = layout_.blocks;
  const std::vector<Index>& lengths = layout_.lengths;
  const Exec& exec = queue.space();
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    const auto length = static_cast<std::size_t>(lengths[s]), with_tail = length + (s == 0 ? tail : 0);
    Segment segment{.blocks = blocks[s], .sum = {}, .values = {}, .states = {}, .gradients = {}, .gradient_memory = {}};
    if (s > 0) segment.sum = comm->split(comm->rank() % blocks[s], comm->rank());
    segment.values = Flat(Kokkos::view_alloc(exec, "aloni::nn::parameters"), length);
    for (const std::string_view state : properties_of(optimiser_).states)
      if (trains()) segment.states.emplace_back(Kokkos::view_alloc(exec, "aloni::nn::" + std::string(state)), length);
    if (!trains()) {
      // no gradients
    } else if (comm != nullptr) {
      std::tie(segment.gradients, segment.gradient_memory) =
          comm::allocate_shared<T>(s == 0 ? *comm : *segment.sum, exec, "aloni::nn::gradients", with_tail);
    } else {
      segment.gradients = Flat(Kokkos::view_alloc(exec, "aloni::nn::gradients"), with_tail);
    }
    segments_.push_back(std::move(segment));
  }
  if (trains() && uses_norms(optimiser_, update_options_))
    norms_.emplace(queue, layout_, rank, optimiser_, update_options_);
  if (use_ == ParameterUse::accumulation) {
    std::vector<Index> with_tails = lengths;
    with_tails.front() += tail;
    gradient_sum_ = std::make_shared<GradientSum<T, Exec>>(exec, with_tails);
  }
  if (update_options_.loss_scaling) loss_scale_->value = update_options_.loss_scaling->initial;
  queue.fence("aloni::nn::Parameters: memory is zero before the host writes to it");
}

template <class T, class Exec>
void Parameters<T, Exec>::initialise(const Queue<Exec>& queue, const NetworkDescription& network, std::uint64_t seed) {
  const Exec& exec = queue.space();
  std::vector<typename Flat::HostMirror> initial;
  for (const Segment& segment : segments_) initial.push_back(Kokkos::create_mirror_view(segment.values));
  for (std::size_t p = 0; p < layout_.descriptions.size(); ++p) {
    const ParameterDescription& d = layout_.descriptions[p];
    const ParameterPlace& place = layout_.places[p];
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
    if (!properties_of(network.layers[l].operation).has_running_statistics) continue;
    const int layer = static_cast<int>(l);
    const auto channels = static_cast<std::size_t>(layout_.descriptions[find(layer, 0)].extents.size());
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
  return layout_.find(layer, k);
}

template <class T, class Exec>
views::LocalView<T, typename Exec::memory_space> Parameters<T, Exec>::tensor(const Flat& flat, int i) const {
  const ParameterPlace& place = layout_.places.at(i);
  return views::LocalView<T, Mem>(flat.data() + place.offset,
                                  detail::dense_layout(views::extents_of(place.kept).values));
}

template <class T, class Exec>
Kokkos::View<T*, typename Exec::memory_space> Parameters<T, Exec>::vector(const Flat& flat, int i) const {
  const ParameterPlace& place = layout_.places.at(i);
  return Kokkos::subview(flat, Kokkos::make_pair(place.offset, place.offset + place.kept.size()));
}

template <class T, class Exec>
Index Parameters<T, Exec>::count() const {
  return layout_.places.empty() ? 0 : layout_.places.back().first + layout_.descriptions.back().extents.size();
}

template <class T, class Exec>
void Parameters<T, Exec>::check_announced(const Queue<Exec>& queue, const std::string& operation) const {
  std::uint32_t checksum = 0;
  for (const Segment& segment : segments_) {
    const auto host = Kokkos::create_mirror_view(segment.values);
    Kokkos::deep_copy(queue.space(), host, segment.values);
    queue.fence("aloni::nn::Parameters::check_announced: the values are on the host");
    checksum = checksum * 31 + comm::detail::crc32c(host.data(), host.size() * sizeof(T));
  }
  if (writes_->checked_version == version() && writes_->checksum != checksum) {
    throw InvalidArgument(operation, "values of the parameters", "changed without values_changed()",
                          "Parameters::values_changed() after each write, or ParameterWrites::at_any_time");
  }
  writes_->checked_version = version();
  writes_->checksum = checksum;
}

template <class T, class Exec>
Index Parameters<T, Exec>::bytes() const {
  std::size_t elements = 0;
  for (const Segment& s : segments_) {
    elements += s.values.size() + s.gradients.size();
    for (const Flat& state : s.states) elements += state.size();
  }
  std::size_t bytes = elements * sizeof(T) + static_cast<std::size_t>(norms_ ? norms_->bytes() : 0);
  if (gradient_sum_) bytes += static_cast<std::size_t>(gradient_sum_->bytes());
  for (const auto& s : statistics_) bytes += (s.mean.size() + s.variance.size()) * sizeof(double);
  return static_cast<Index>(bytes);
}

template <class T, class Exec>
auto Parameters<T, Exec>::values_of_segments() const -> std::vector<Flat> {
  std::vector<Flat> flats;
  for (const Segment& s : segments_) flats.push_back(s.values);
  return flats;
}

template <class T, class Exec>
auto Parameters<T, Exec>::states_of_segments(int k) const -> std::vector<Flat> {
  std::vector<Flat> flats;
  for (const Segment& s : segments_) flats.push_back(s.states.at(static_cast<std::size_t>(k)));
  return flats;
}

template <class T, class Exec>
auto Parameters<T, Exec>::gather_values(const Queue<Exec>& queue) const -> HostFlat {
  return gather(queue, values_of_segments());
}

template <class T, class Exec>
auto Parameters<T, Exec>::gather_gradients(const Queue<Exec>& queue) const -> HostFlat {
  std::vector<Flat> flats;
  for (const Segment& s : segments_) flats.push_back(s.gradients);
  return gather(queue, flats);
}

template <class T, class Exec>
auto Parameters<T, Exec>::gather_state(const Queue<Exec>& queue, int k) const -> HostFlat {
  return gather(queue, states_of_segments(k));
}

template <class T, class Exec>
auto Parameters<T, Exec>::gather(const Queue<Exec>& queue, const std::vector<Flat>& flats) const -> HostFlat {
  std::vector<typename Flat::HostMirror> hosts;
  for (const Flat& flat : flats) {
    hosts.push_back(Kokkos::create_mirror_view(flat));
    Kokkos::deep_copy(queue.space(), hosts.back(), flat);
  }
  queue.fence("aloni::nn::Parameters::gather: the values are on the host");
  const HostFlat all("aloni::nn::gathered_parameters", static_cast<std::size_t>(count()));
  for (std::size_t i = 0; i < layout_.places.size(); ++i) {
    const ParameterPlace& place = layout_.places[i];
    const Box whole = views::whole(layout_.descriptions[i].extents);
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
  values_changed();
  scatter(queue, "aloni::nn::Parameters::scatter_values", values_of_segments(), all);
}

template <class T, class Exec>
void Parameters<T, Exec>::scatter_state(const Queue<Exec>& queue, int k, const HostFlat& all) const {
  scatter(queue, "aloni::nn::Parameters::scatter_state", states_of_segments(k), all);
}

template <class T, class Exec>
void Parameters<T, Exec>::scatter(const Queue<Exec>& queue, const char* operation, const std::vector<Flat>& flats,
                                  const HostFlat& all) const {
  if (static_cast<Index>(all.extent(0)) != count()) {
    throw InvalidArgument(operation, "extent of the values", std::to_string(all.extent(0)),
                          std::to_string(count()) + ", the elements of all tensors");
  }
  queue.fence("aloni::nn::Parameters::scatter: no kernel reads the old values");
  std::vector<typename Flat::HostMirror> hosts;
  for (const Flat& flat : flats) hosts.push_back(Kokkos::create_mirror_view(flat));
  for (std::size_t i = 0; i < layout_.places.size(); ++i) {
    const ParameterPlace& place = layout_.places[i];
    for_each_position(
        views::whole(layout_.descriptions[i].extents), place.kept, place.kept,
        [&](Index whole, Index kept) { hosts[place.segment](place.offset + kept) = all(place.first + whole); });
  }
  for (std::size_t s = 0; s < flats.size(); ++s) Kokkos::deep_copy(queue.space(), flats[s], hosts[s]);
  queue.fence("aloni::nn::Parameters::scatter: the host's values are released");
}

template <class T, class Exec>
void Parameters<T, Exec>::check_replicas(const comm::Communicator& comm, const Queue<Exec>& queue,
                                         const std::string& operation) const {
  std::vector<typename Flat::HostMirror> hosts;
  for (const Segment& segment : segments_) {
    hosts.push_back(Kokkos::create_mirror_view(segment.values));
    Kokkos::deep_copy(queue.space(), hosts.back(), segment.values);
  }
  queue.fence("aloni::nn::Parameters::check_replicas: the values are on the host");
  const auto check_segment = [&](std::size_t s) {
    const comm::Communicator& keepers = segments_[s].sum ? *segments_[s].sum : comm;
    comm::ReplicatedValues values;
    for (std::size_t i = 0; i < layout_.places.size(); ++i) {
      if (layout_.places[i].segment != s) continue;
      const std::span<const T> tensor(hosts[s].data() + layout_.places[i].offset,
                                      static_cast<std::size_t>(layout_.places[i].kept.size()));
      values.add(layout_.descriptions[i].name, std::as_bytes(tensor));
    }
    const auto difference = comm::find_disagreement(keepers, operation, values);
    if (!difference) return;
    const std::string block = segments_[s].sum ? " of the ranks that keep block " +
                                                     std::to_string(comm.rank() % segments_[s].blocks) + " of " +
                                                     std::to_string(segments_[s].blocks)
                                               : "";
    throw ReplicasDiffer(operation, difference->name, difference->found + block, "equal values on all ranks");
  };
  if (!is_split()) return check_segment(0);
  std::exception_ptr error;
  for (std::size_t s = 0; s < segments_.size() && !error; ++s) {
    try {
      check_segment(s);
    } catch (const ReplicasDiffer&) {
      error = std::current_exception();
    }
    comm.agree(operation, error);  // another group of ranks may have found a difference
  }
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
void Parameters<T, Exec>::check_update(const Optimiser& optimiser, std::int64_t step,
                                       const std::string& operation) const {
  if (!trains()) {
    throw InvalidArgument(operation, "parameters", "made for inference", "ParameterUse::training at construction");
  }
  if (kind_of(optimiser) != optimiser_) {
    throw InvalidArgument(operation, "optimiser", name(kind_of(optimiser)),
                          std::string(name(optimiser_)) + ", for which the parameters were made");
  }
  check(optimiser, step, operation);
}

template <class T, class Exec>
void Parameters<T, Exec>::update(const Queue<Exec>& queue, const Optimiser& optimiser, std::int64_t step) const {
  check_update(optimiser, step, "aloni::nn::Parameters::update");
  values_changed();
  if (norms_) {
    for (std::size_t s = 0; s < segments_.size(); ++s) sum_squares(queue.space(), s);
    if (is_split()) norms_->sum_over_ranks(queue, *comm_);
    norms_->find_factors(queue.space(), optimiser, loss_scale());
  }
  for (std::size_t s = 0; s < segments_.size(); ++s) update_segment(queue.space(), s, optimiser, step);
}

template <class T, class Exec>
bool Parameters<T, Exec>::adapt_loss_scale(const Queue<Exec>& queue) const {
  if (!update_options_.loss_scaling || !norms_) {
    throw InvalidArgument("aloni::nn::Parameters::adapt_loss_scale", "parameters", "made without loss scaling",
                          "parameters made for training with UpdateOptions::loss_scaling");
  }
  const bool finite = std::isfinite(norms_->norm(queue));
  observe(*update_options_.loss_scaling, *loss_scale_, finite);
  return finite;
}

template <class T, class Exec>
void Parameters<T, Exec>::sum_squares(const Exec& exec, std::size_t segment) const {
  norms_->sum_squares(exec, segment, segments_[segment].gradients, segments_[segment].values);
}

template <class T, class Exec>
void Parameters<T, Exec>::update_segment(const Exec& exec, std::size_t segment, const Optimiser& optimiser,
                                         std::int64_t step) const {
  const Segment& s = segments_[segment];
  const auto gradients = Kokkos::subview(s.gradients, Kokkos::make_pair(std::size_t{0}, s.values.extent(0)));
  const auto factor = norms_ ? norms_->gradient_factor() : typename UpdateNorms<T, Exec>::Sums{};
  if (const auto* sgd = std::get_if<SgdOptions>(&optimiser)) {
    local::sgd_step<T, Exec>(exec, {sgd->learning_rate, sgd->momentum, sgd->weight_decay, sgd->nesterov}, gradients,
                             s.values, s.states[0], factor);
  } else if (const auto* lars = std::get_if<LarsOptions>(&optimiser)) {
    local::lars_step<T, Exec>(exec, *lars, gradients, s.values, s.states[0], norms_->tensors(segment),
                              norms_->rates(segment), factor);
  } else {
    local::adam_step<T, Exec>(exec, std::get<AdamOptions>(optimiser), step, gradients, s.values, s.states[0],
                              s.states[1], factor);
  }
}

#define INSTANTIATE(T, Exec) template class Parameters<T, Exec>;
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
