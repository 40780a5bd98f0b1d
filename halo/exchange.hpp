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
// distribution, and halo/transfer.hpp for tensors that are no DistributedViews. halo/exchange_tuning.hpp finds the fastest method.
#include <aloni/halo/field.hpp>
#include <aloni/halo/transfer.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::halo {

/// How the values of an exchange travel. Whatever it is, the ghosts get the same bits; the adjoint adds in an order of its own.
struct ExchangeMethod {
  /// All Views in one message per neighbour; otherwise one for each View, all of them under way at the same time.
  bool fused = true;
  /// One dimension after the other: edges and corners come along with the faces of a later one, from neighbours along the axes. Fewer
  /// messages, but only those of the first dimension travel between start() and finish(). See plan_halo_by_dimension.
  bool by_dimension = false;
  /// Between nodes as one message for all ranks of a node, or never; empty: as TransferOptions::consolidate_below says.
  std::optional<bool> consolidated = {};

  friend bool operator==(const ExchangeMethod&, const ExchangeMethod&) = default;
};

/// "fused, all neighbours at once".
std::string to_string(const ExchangeMethod& method);

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
  /// others; Unsupported, on all ranks, where the Views can't be exchanged by dimension.
  /// @pre every distribution spans the communicator, every View was made for this rank
  Exchange(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<field_type> fields,
           TransferOptions options = {.label = "exchange"})
      : Exchange(comm, queue, std::move(fields), ExchangeMethod{}, std::move(options)) {}
  Exchange(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<field_type> fields,
           const ExchangeMethod& method, TransferOptions options = {.label = "exchange"});

  /// Collective among neighbours. Asynchronous: until finish() ghosts are neither read nor written, and owned values
  /// don't change (by kernels on the same queue they may, in Views that don't lie in shared memory: those are packed first). The ghost state is stale from here until finish() makes it fresh.
  /// Throws InvalidArgument when this exchange is already in flight.
  [[nodiscard]] Pending start(const Queue<Exec>& queue) const { return start(queue, false); }
  /// The transposed operator: ghost values are added to the owners they came from, in a fixed order, and become zero.
  /// Afterwards the ghosts are stale.
  [[nodiscard]] Pending start_adjoint(const Queue<Exec>& queue) const { return start(queue, true); }
  void run(const Queue<Exec>& queue) const { start(queue).finish(); }
  void run_adjoint(const Queue<Exec>& queue) const { start_adjoint(queue).finish(); }

  /// Of one start() of this rank, messages of all Views and steps.
  TransferCount counts() const;
  /// Messages that this rank sends to other nodes in one start(). Consolidated ones count where they leave the node.
  int messages_between_nodes() const;
  /// With whom it exchanges what, and how: of each View that isn't fused and of each step.
  std::vector<PeerTransfer> peers() const;
  /// The same for people: the method, then one line each.
  std::string explain() const;

 private:
  struct Implementation;
  [[nodiscard]] Pending start(const Queue<Exec>& queue, bool backwards) const;

  std::shared_ptr<Implementation> implementation_;
};

}  // namespace aloni::halo
