#pragma once
// Sums of squares of learned tensors and of their gradients, and the factors that an update makes of them.
//
// All sums are in double and have one order (nn/plan/norm_layout.hpp): they have the same bits for every number of
// threads. Asynchronous on the given instance. float and double.
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/plan/norm_layout.hpp>

namespace aloni::nn::local {

template <class Exec>
using RunsOfNorms = Kokkos::View<const NormRun*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class Exec>
using TensorsOfNorms =
    Kokkos::View<const NormTensor*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// sums[c] = the sum of the squares of chunk c of `values`, for each chunk of the runs.
/// @pre `sums` has at least `chunks` elements, the number of chunks of the runs
template <class T, class Exec>
void sum_squares(const Exec& exec, InArray<T, Exec> values, std::type_identity_t<RunsOfNorms<Exec>> runs, Index chunks,
                 OutArray<double, Exec> sums);

/// Adds the chunks of each tensor. If `is_first_copy`, sums[first_sum + block] = the sum. All other sums of the tensor
/// become 0.
template <class Exec>
void add_chunks(const Exec& exec, InArray<double, Exec> chunks, std::type_identity_t<TensorsOfNorms<Exec>> tensors,
                int block, bool is_first_copy, OutArray<double, Exec> sums);

/// Which factors an update needs, and its options.
struct FactorOptions {
  double max_norm = 0;  ///< of all gradients; infinity: not clipped
  double scale = 1;     ///< by which the gradients are too large, and the factors divide
  bool skips = false;   ///< no update by gradients that are not finite
  bool rates = false;   ///< of LARS
  double trust = 0, weight_decay = 0, epsilon = 0;
};
/// The sums of squares of all ranks: of the gradients and, behind them, for LARS of the values.
template <class Exec>
struct SquareSums {
  Array<const double, Exec> whole, blocks;
};
/// factors[0] = min(1, max_norm / (norm + 1e-6)) / scale, with the norm of all gradients / scale. A norm that is NaN
/// makes it NaN. With `skips` it is -1 for a norm that is not finite. factors[1] = the norm. With `rates` factors[2 +
/// i] = the local rate of tensor i, by the formula of LarsOptions.
template <class Exec>
void find_factors(const Exec& exec, const FactorOptions& options, const SquareSums<Exec>& sums,
                  std::type_identity_t<TensorsOfNorms<Exec>> tensors, OutArray<double, Exec> factors);

}  // namespace aloni::nn::local
