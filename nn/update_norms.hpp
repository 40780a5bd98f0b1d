#pragma once
// The memory and the kernels of the norms of an update (nn/plan/norm_layout.hpp) on one rank. A part of Parameters.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/optimiser.hpp>
#include <aloni/nn/plan/norm_layout.hpp>
#include <aloni/nn/plan/parameter_layout.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <optional>
#include <type_traits>
#include <vector>

namespace aloni::nn {

/// Copies share their memory.
template <class T, class Exec>
class UpdateNorms {
 public:
  using Mem = typename Exec::memory_space;
  using Flat = Kokkos::View<T*, Mem>;
  using Sums = Kokkos::View<double*, Mem>;

  /// @pre uses_norms(kind, options); `parameters` are those of this rank. Not collective.
  UpdateNorms(const Queue<Exec>& queue, const ParameterLayout& parameters, int rank, OptimiserKind kind,
              const UpdateOptions& options);

  /// The sums of squares of one segment on this rank. `values` count for LARS only. Asynchronous on `exec`.
  void sum_squares(const Exec& exec, std::size_t segment, const Flat& gradients, const Flat& values) const;
  /// Adds the sums of split tensors over the ranks, on the host. Waits for the queue once. Collective over the ranks
  /// for which they are split. @pre all calls use one queue
  void sum_over_ranks(const Queue<Exec>& queue, const comm::Communicator& comm) const;
  /// The factors of an update, from the sums. `loss_scale`: Parameters::loss_scale(). Asynchronous on `exec`.
  void find_factors(const Exec& exec, const Optimiser& optimiser, double loss_scale) const;

  /// The factor of the gradients; -1: no update. Extent 0 if they are neither clipped nor scaled.
  Sums gradient_factor() const;
  /// Of one segment: its tensors, and their rates of LARS.
  Kokkos::View<const NormTensor*, Mem> tensors(std::size_t segment) const;
  Sums rates(std::size_t segment) const;
  /// The norm of all gradients in the last update, divided by the loss scale, before clipping. Waits for the queue.
  double norm(const Queue<Exec>& queue) const;

  /// The memory of the buffers of plans: update.norm_chunks, update.norm_sums, …
  const Sums& chunks() const { return chunks_; }
  const Sums& whole_sums() const { return whole_; }
  const Sums& block_sums() const { return blocks_; }
  const Sums& factors() const { return factors_; }
  /// Of these buffers.
  Index bytes() const;

 private:
  static constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Mem>::accessible;
  using HostSums = Kokkos::View<double*, std::conditional_t<on_host, Mem, Kokkos::SharedHostPinnedSpace>>;

  /// The sums of one segment: of gradients (part 0) or values (part 1).
  Sums part(const NormSegment& segment, int part) const;

  NormLayout layout_;
  UpdateOptions options_;
  bool rates_;
  std::vector<Kokkos::View<NormRun*, Mem>> runs_;  ///< per segment
  Kokkos::View<NormTensor*, Mem> tensors_;
  Sums chunks_, whole_, blocks_, factors_;
  HostSums host_blocks_;  ///< of sum_over_ranks(); pinned, or `blocks_` itself
};

}  // namespace aloni::nn
