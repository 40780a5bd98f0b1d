#pragma once
// Moves a tensor from one distribution to another; gather and scatter are the cases with Distribution::on_root.
//
//   DistributedView<float, 2> by_rows(exec, "x", rows, comm.rank());
//   DistributedView<float, 2> by_samples(exec, "y", samples, comm.rank(), ghosts);
//   Redistribution redistribution(comm, queue, by_rows, by_samples);
//   redistribution.run(queue);                     // owned values and ghosts of by_samples, in the same messages
//
// Use halo/exchange.hpp when only ghosts are to be refreshed, and halo/transfer.hpp for tensors that are no
// DistributedViews.
#include <aloni/halo/field.hpp>
#include <aloni/halo/transfer.hpp>

namespace aloni::halo {

/// Exec: Kokkos::DefaultExecutionSpace and the default host execution space.
template <class Exec = Kokkos::DefaultExecutionSpace>
class Redistribution {
 public:
  using memory_space = typename Exec::memory_space;
  using field_type = Field<memory_space>;

  Redistribution() = default;
  /// Collective: plans and allocates all that is needed, keeps the Views' memory alive. Fills what the destination's
  /// `needed` says, by default its owned box and all its ghosts; beyond the domain by the destination's boundary
  /// conditions. The source's are not used. Of a replicated source each rank reads the holder that
  /// plan_redistribution names. Throws as Exchange does.
  /// @pre equal extents; both distributions span the communicator, both Views were made for this rank and share no
  /// memory
  Redistribution(const comm::Communicator& comm, const Queue<Exec>& queue, const field_type& source,
                 const field_type& destination, TransferOptions options = {.label = "redistribution"});

  /// Collective. Asynchronous: until finish() the destination is neither read nor written, and the source changes
  /// only by kernels on the same queue.
  [[nodiscard]] Pending start(const Queue<Exec>& queue) const { return transfer_.start(queue); }
  /// The transposed operator: the whole source, its ghosts included, is overwritten; each cell becomes the sum of the
  /// destination cells that take their value from it. Note that this is not the way back of a tensor: for replicated
  /// tensors, whose copies are equal by definition, use a Redistribution in the other direction.
  [[nodiscard]] Pending start_adjoint(const Queue<Exec>& queue) const { return transfer_.start_adjoint(queue); }
  void run(const Queue<Exec>& queue) const { transfer_.run(queue); }
  void run_adjoint(const Queue<Exec>& queue) const { transfer_.run_adjoint(queue); }

  TransferCount counts() const { return transfer_.counts(); }

 private:
  Transfer<Exec> transfer_;
};

}  // namespace aloni::halo
