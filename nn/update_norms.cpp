#include <aloni/nn/update_norms.hpp>

#include <aloni/nn/local/detail/activations.hpp>
#include <aloni/nn/local/norms.hpp>

#include <limits>
#include <span>
#include <string>
#include <utility>
#include <variant>

namespace aloni::nn {

namespace {

/// Without a fence: the caller waits before `values` end.
template <class Exec, class U>
Kokkos::View<U*, typename Exec::memory_space> upload(const Exec& exec, const char* label,
                                                     const std::vector<U>& values) {
  const Kokkos::View<U*, typename Exec::memory_space> view(
      Kokkos::view_alloc(exec, std::string(label), Kokkos::WithoutInitializing), values.size());
  using Host = Kokkos::View<const U*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  if (!values.empty()) Kokkos::deep_copy(exec, view, Host(values.data(), values.size()));
  return view;
}

}  // namespace

template <class T, class Exec>
UpdateNorms<T, Exec>::UpdateNorms(const Queue<Exec>& queue, const ParameterLayout& parameters, int rank,
                                  OptimiserKind kind, const UpdateOptions& options)
    : layout_(lay_out_norms(parameters, rank)), options_(options), rates_(properties_of(kind).uses_norms) {
  const Exec& exec = queue.space();
  for (const NormSegment& segment : layout_.segments)
    runs_.push_back(upload(exec, "aloni::nn::norm_runs", segment.runs));
  tensors_ = upload(exec, "aloni::nn::norm_tensors", layout_.tensors);
  const auto array = [&](const char* label, Index elements) {
    return Sums(Kokkos::view_alloc(exec, std::string(label)), static_cast<std::size_t>(elements));
  };
  const Index parts = rates_ ? 2 : 1;
  chunks_ = array("aloni::nn::norm_chunks", layout_.chunks);
  whole_ = array("aloni::nn::norm_sums", parts * layout_.whole_sums);
  blocks_ = array("aloni::nn::norm_block_sums", parts * layout_.block_sums);
  if constexpr (on_host) {
    host_blocks_ = blocks_;
  } else {
    host_blocks_ = HostSums(Kokkos::view_alloc("aloni::nn::norm_block_sums: host"), blocks_.extent(0));
  }
  factors_ = array("aloni::nn::update_factors", 2 + (rates_ ? static_cast<Index>(layout_.tensors.size()) : 0));
  queue.fence("aloni::nn::UpdateNorms: the tables are in the memory of the kernels");
}

template <class T, class Exec>
auto UpdateNorms<T, Exec>::part(const NormSegment& segment, int part) const -> Sums {
  const bool whole = layout_.tensors[segment.first_tensor].blocks == 1;
  const Sums& all = whole ? whole_ : blocks_;
  const auto half = static_cast<std::size_t>(whole ? layout_.whole_sums : layout_.block_sums);
  const auto first = static_cast<std::size_t>(part) * half;
  return Kokkos::subview(all, Kokkos::make_pair(first, first + half));
}

template <class T, class Exec>
void UpdateNorms<T, Exec>::sum_squares(const Exec& exec, std::size_t s, const Flat& gradients,
                                       const Flat& values) const {
  const NormSegment& segment = layout_.segments[s];
  if (segment.tensors == 0) return;
  for (int p = 0; p < (rates_ ? 2 : 1); ++p) {
    local::sum_squares<T, Exec>(exec, p == 0 ? gradients : values, runs_[s], segment.chunks, chunks_);
    local::add_chunks<Exec>(exec, chunks_, tensors(s), segment.block, segment.is_first_copy, part(segment, p));
  }
}

template <class T, class Exec>
void UpdateNorms<T, Exec>::sum_over_ranks(const Queue<Exec>& queue, const comm::Communicator& comm) const {
  Kokkos::deep_copy(queue.space(), host_blocks_, blocks_);
  queue.fence("aloni::nn::UpdateNorms::sum_over_ranks: the sums of this rank are needed on the host");
  comm.all_reduce(std::span<double>(host_blocks_.data(), host_blocks_.extent(0)), comm::Reduction::sum);
  // No wait: the next call copies to the host's memory behind this copy, on the same queue.
  Kokkos::deep_copy(queue.space(), blocks_, host_blocks_);
}

template <class T, class Exec>
void UpdateNorms<T, Exec>::find_factors(const Exec& exec, const Optimiser& optimiser, double loss_scale) const {
  local::FactorOptions options{.max_norm = options_.max_norm.value_or(std::numeric_limits<double>::infinity()),
                               .scale = loss_scale,
                               .skips = options_.loss_scaling.has_value()};
  if (const auto* lars = std::get_if<LarsOptions>(&optimiser)) {
    options.rates = true;
    options.trust = lars->trust;
    options.weight_decay = lars->weight_decay;
    options.epsilon = lars->epsilon;
  }
  local::find_factors<Exec>(exec, options, {whole_, blocks_}, tensors_, factors_);
}

template <class T, class Exec>
auto UpdateNorms<T, Exec>::gradient_factor() const -> Sums {
  const std::size_t count = options_.max_norm || options_.loss_scaling ? 1 : 0;
  return Kokkos::subview(factors_, Kokkos::make_pair(std::size_t{0}, count));
}

template <class T, class Exec>
auto UpdateNorms<T, Exec>::tensors(std::size_t s) const -> Kokkos::View<const NormTensor*, Mem> {
  const NormSegment& segment = layout_.segments[s];
  return Kokkos::subview(tensors_, Kokkos::make_pair(segment.first_tensor, segment.first_tensor + segment.tensors));
}

template <class T, class Exec>
auto UpdateNorms<T, Exec>::rates(std::size_t s) const -> Sums {
  const NormSegment& segment = layout_.segments[s];
  const std::size_t first = 2 + segment.first_tensor;
  return Kokkos::subview(factors_, Kokkos::make_pair(first, first + segment.tensors));
}

template <class T, class Exec>
double UpdateNorms<T, Exec>::norm(const Queue<Exec>& queue) const {
  const auto host = Kokkos::create_mirror_view(factors_);
  Kokkos::deep_copy(queue.space(), host, factors_);
  queue.fence("aloni::nn::UpdateNorms::norm: the norm is needed on the host");
  return host(1);
}

template <class T, class Exec>
Index UpdateNorms<T, Exec>::bytes() const {
  return static_cast<Index>((chunks_.size() + whole_.size() + blocks_.size() + factors_.size()) * sizeof(double));
}

#define INSTANTIATE(T, Exec) template class UpdateNorms<T, Exec>;
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
