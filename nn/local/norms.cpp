#include <aloni/nn/local/norms.hpp>

#include <aloni/nn/local/detail/check_views.hpp>
#include <aloni/nn/local/detail/execution.hpp>

namespace aloni::nn::local {

namespace detail {

/// The run of a chunk, by bisection.
template <class Runs>
KOKKOS_INLINE_FUNCTION const NormRun& run_of(const Runs& runs, Index chunk) {
  Index low = 0, high = static_cast<Index>(runs.extent(0));
  while (high - low > 1) {
    const Index middle = (low + high) / 2;
    (runs(middle).first_chunk <= chunk ? low : high) = middle;
  }
  return runs(low);
}

template <class T, class Exec>
struct SumSquares {
  using Team = typename Kokkos::TeamPolicy<Exec, Kokkos::IndexType<Index>>::member_type;
  Array<const T, Exec> values;
  RunsOfNorms<Exec> runs;
  Array<double, Exec> sums;

  KOKKOS_FUNCTION void range(Index chunk, Index& begin, Index& end) const {
    const NormRun& run = run_of(runs, chunk);
    begin = run.begin + (chunk - run.first_chunk) * NormLayout::chunk;
    const Index last = run.begin + run.elements;
    end = begin + NormLayout::chunk < last ? begin + NormLayout::chunk : last;
  }
  /// On a host: lanes that the compiler vectorises, in an order that does not depend on the vector length.
  KOKKOS_FUNCTION void operator()(const Index chunk) const {
    constexpr int lanes = 16;
    Index i, end;
    range(chunk, i, end);
    const T* const x = values.data();
    double lane[lanes] = {};
    for (; i + lanes <= end; i += lanes)
      for (int l = 0; l < lanes; ++l) lane[l] += static_cast<double>(x[i + l]) * static_cast<double>(x[i + l]);
    double sum = 0;
    for (; i < end; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    for (int l = 0; l < lanes; ++l) sum += lane[l];
    sums(chunk) = sum;
  }
  /// On a device: one team of a fixed size per chunk.
  KOKKOS_FUNCTION void operator()(const Team& team) const {
    const Index chunk = team.league_rank();
    Index begin, end;
    range(chunk, begin, end);
    double sum = 0;
    const auto& x = values;
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(team, begin, end),
        [&](const Index i, double& s) { s += static_cast<double>(x(i)) * static_cast<double>(x(i)); }, sum);
    Kokkos::single(Kokkos::PerTeam(team), [&] { sums(chunk) = sum; });
  }
};

template <class Exec>
struct AddChunks {
  Array<const double, Exec> chunks;
  TensorsOfNorms<Exec> tensors;
  int block;
  bool is_first_copy;
  Array<double, Exec> sums;

  KOKKOS_FUNCTION void operator()(const Index t) const {
    const NormTensor& tensor = tensors(t);
    double sum = 0;
    for (Index c = tensor.first_chunk; c < tensor.end_chunk; ++c) sum += chunks(c);
    for (int b = 0; b < tensor.blocks; ++b) sums(tensor.first_sum + b) = is_first_copy && b == block ? sum : 0.0;
  }
};

template <class Exec>
struct FindFactors {
  FactorOptions options;
  SquareSums<Exec> sums;
  TensorsOfNorms<Exec> tensors;
  Array<double, Exec> factors;

  /// `part`: 0 for the gradient, 1 for the value.
  KOKKOS_FUNCTION double squares(const NormTensor& tensor, int part) const {
    const auto& all = tensor.blocks == 1 ? sums.whole : sums.blocks;
    const Index half = static_cast<Index>(all.extent(0)) / (options.rates ? 2 : 1);
    double sum = 0;
    for (int b = 0; b < tensor.blocks; ++b) sum += all(part * half + tensor.first_sum + b);
    return sum;
  }
  KOKKOS_FUNCTION void operator()(const Index) const {
    const auto count = static_cast<Index>(tensors.extent(0));
    double sum = 0;
    for (Index t = 0; t < count; ++t) sum += squares(tensors(t), 0);
    const double norm = Kokkos::sqrt(sum) / options.scale, bound = options.max_norm / (norm + 1e-6);
    const double clip = bound >= 1 ? 1.0 : bound;  // NaN stays NaN
    factors(0) = options.skips && !Kokkos::isfinite(norm) ? -1.0 : clip / options.scale;
    factors(1) = norm;
    if (!options.rates) return;
    for (Index t = 0; t < count; ++t) {
      double rate = 1;
      if (tensors(t).is_weight) {
        const double g = clip * Kokkos::sqrt(squares(tensors(t), 0)) / options.scale;
        const double w = Kokkos::sqrt(squares(tensors(t), 1));
        if (g != 0 && w != 0) rate = options.trust * w / (g + options.weight_decay * w + options.epsilon);
      }
      factors(2 + t) = rate;
    }
  }
};

}  // namespace detail

template <class T, class Exec>
void sum_squares(const Exec& exec, InArray<T, Exec> values, std::type_identity_t<RunsOfNorms<Exec>> runs, Index chunks,
                 OutArray<double, Exec> sums) {
  if (chunks == 0) return;
  const detail::SumSquares<T, Exec> kernel{values, runs, sums};
  if constexpr (detail::runs_on_host<Exec>) {
    Kokkos::parallel_for("aloni::nn::sum_squares", detail::Range<Exec>(exec, 0, chunks), kernel);
  } else {
    constexpr int team_size = 128;
    Kokkos::parallel_for("aloni::nn::sum_squares",
                         detail::with_scratch(Kokkos::TeamPolicy<Exec, Kokkos::IndexType<Index>>(
                             exec, static_cast<int>(chunks), team_size)),
                         kernel);
  }
}

template <class Exec>
void add_chunks(const Exec& exec, InArray<double, Exec> chunks, std::type_identity_t<TensorsOfNorms<Exec>> tensors,
                int block, bool is_first_copy, OutArray<double, Exec> sums) {
  const auto count = static_cast<Index>(tensors.extent(0));
  if (count == 0) return;
  Kokkos::parallel_for("aloni::nn::add_chunks", detail::Range<Exec>(exec, 0, count),
                       detail::AddChunks<Exec>{chunks, tensors, block, is_first_copy, sums});
}

template <class Exec>
void find_factors(const Exec& exec, const FactorOptions& options, const SquareSums<Exec>& sums,
                  std::type_identity_t<TensorsOfNorms<Exec>> tensors, OutArray<double, Exec> factors) {
  const auto needed = static_cast<Index>(2 + (options.rates ? tensors.extent(0) : 0));
  detail::check_extent("aloni::nn::local::find_factors", "factors", factors, needed);
  Kokkos::parallel_for("aloni::nn::find_factors", detail::Range<Exec>(exec, 0, 1),
                       detail::FindFactors<Exec>{options, sums, tensors, factors});
}

#define INSTANTIATE(T, Exec)                                                                                        \
  template void sum_squares<T, Exec>(const Exec&, InArray<T, Exec>, std::type_identity_t<RunsOfNorms<Exec>>, Index, \
                                     OutArray<double, Exec>);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

#define INSTANTIATE(Exec)                                                                                             \
  template void add_chunks<Exec>(const Exec&, InArray<double, Exec>, std::type_identity_t<TensorsOfNorms<Exec>>, int, \
                                 bool, OutArray<double, Exec>);                                                       \
  template void find_factors<Exec>(const Exec&, const FactorOptions&, const SquareSums<Exec>&,                        \
                                   std::type_identity_t<TensorsOfNorms<Exec>>, OutArray<double, Exec>);
ALONI_INSTANTIATE_SPACES(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn::local
