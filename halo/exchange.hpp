#pragma once
// Halo exchange: fills the ghosts of DistributedViews from their owners, and the boundary kinds beyond the domain.
//
//   auto boundaries = BoundaryConditions::all(Boundary::zero).set(Dim::width, Boundary::periodic);
//   Exchange<float> exchange(comm, queue, {{x, boundaries}, y});     // several Views: still one message per peer
//   auto pending = exchange.start(queue);                            // packs and sends
//   ...                                                              // compute x.interior(reach)
//   pending.finish();                                                // ghosts are fresh; compute x.boundary(reach)
//
// Views may differ in type, spatial rank, ghost widths, distribution and layout. Use halo/redistribution.hpp to move a tensor to another
// distribution, and halo/transfer.hpp for tensors that are no DistributedViews.
#include <aloni/halo/field.hpp>
#include <aloni/halo/transfer.hpp>

#include <string>
#include <vector>

namespace aloni::halo {

/// Exec: Kokkos::DefaultExecutionSpace and the default host execution space.
template <class Exec = Kokkos::DefaultExecutionSpace>
class Exchange {
 public:
  using memory_space = typename Exec::memory_space;
  using field_type = Field<memory_space>;

  /// Nothing to exchange.
  Exchange() = default;
  /// Collective: plans and allocates all that is needed, keeps the Views' memory alive. Throws InvalidArgument: on
  /// all ranks when the arguments differ between ranks, otherwise on the rank that sees it and PeerFailed on the
  /// others.
  /// @pre every distribution spans the communicator, every View was made for this rank
  Exchange(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<field_type> fields,
           TransferOptions options = {.label = "exchange"});

  /// Collective among neighbours. Asynchronous: until finish() ghosts are neither read nor written, and owned values
  /// don't change (by kernels on the same queue they may, in Views that don't lie in shared memory: those are packed first). The ghost state is stale from here until finish() makes it fresh.
  [[nodiscard]] Pending start(const Queue<Exec>& queue) const { return transfer_.start(queue); }
  /// The transposed operator: ghost values are added to the owners they came from, in a fixed order, and become zero.
  /// Afterwards the ghosts are stale.
  [[nodiscard]] Pending start_adjoint(const Queue<Exec>& queue) const { return transfer_.start_adjoint(queue); }
  void run(const Queue<Exec>& queue) const { transfer_.run(queue); }
  void run_adjoint(const Queue<Exec>& queue) const { transfer_.run_adjoint(queue); }

  TransferCount counts() const { return transfer_.counts(); }
  /// Messages that this rank sends to other nodes in one start(). Consolidated ones count where they leave the node.
  int messages_between_nodes() const { return transfer_.messages_between_nodes(); }
  /// With whom it exchanges what, and how.
  std::vector<PeerTransfer> peers() const { return transfer_.peers(); }
  std::string explain() const { return transfer_.explain(); }

 private:
  Transfer<Exec> transfer_;
};

}  // namespace aloni::halo
