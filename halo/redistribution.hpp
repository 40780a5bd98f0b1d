#pragma once
// Moves a tensor from one distribution to another. With Distribution::on_root it is gather or scatter.
//
//   DistributedView<float, 2> by_rows(exec, "x", rows, comm.rank());
//   DistributedView<float, 2> by_samples(exec, "y", samples, comm.rank(), ghosts);
//   Redistribution redistribution(comm, queue, by_rows, by_samples);
//   redistribution.run(queue);                     // owned values and ghosts of by_samples, in the same messages
//
// Use halo/exchange.hpp to fill ghosts only, and halo/transfer.hpp for tensors that are not DistributedViews.
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
  /// Plans the redistribution, allocates buffers, and keeps the Views' memory alive. It fills the destination's
  /// `needed` box, by default the owned box and all ghosts. Ghosts beyond the domain follow the destination's boundary
  /// conditions; the source's are ignored. If the source is replicated, plan_redistribution chooses the owner that a
  /// rank reads.
  /// Collective.
  /// @pre equal extents; both distributions span the communicator; both Views were made for this rank and share no
  /// memory
  /// Throws as Exchange does.
  Redistribution(const comm::Communicator& comm, const Queue<Exec>& queue, const field_type& source,
                 const field_type& destination, TransferOptions options = {.label = "redistribution"});

  /// Starts to fill the destination. Collective. Asynchronous: until finish(), do not read or write the destination.
  /// Only kernels on the same queue may change the source, and only if the source is outside shared memory.
  [[nodiscard]] Pending start(const Queue<Exec>& queue) const { return transfer_.start(queue); }
  /// The adjoint: overwrites the whole source, ghosts included. Each cell becomes the sum of the destination cells that
  /// took their value from it. This does not move a tensor back: for replicated tensors, whose copies are equal by
  /// definition, use a Redistribution in the other direction. Collective and asynchronous as start().
  [[nodiscard]] Pending start_adjoint(const Queue<Exec>& queue) const { return transfer_.start_adjoint(queue); }
  void run(const Queue<Exec>& queue) const { transfer_.run(queue); }
  void run_adjoint(const Queue<Exec>& queue) const { transfer_.run_adjoint(queue); }

  TransferCount counts() const { return transfer_.counts(); }

 private:
  Transfer<Exec> transfer_;
};

}  // namespace aloni::halo
