#pragma once
// Halo exchange: fills the ghosts of DistributedViews from their owners, and ghosts beyond the domain by boundary kind.
//
//   auto boundaries = BoundaryConditions::all(Boundary::zero).set(Dim::width, Boundary::periodic);
//   Exchange<float> exchange(comm, queue, {{x, boundaries}, y});     // several Views: still one message per peer
//   auto pending = exchange.start(queue);                            // packs and sends
//   ...                                                              // compute x.interior(reach)
//   pending.finish();                                                // ghosts are fresh; compute x.boundary(reach)
//
// Views may differ in type, spatial rank, ghost widths, distribution and layout. Use halo/redistribution.hpp to move a
// tensor to another distribution, and halo/transfer.hpp for tensors that are not DistributedViews.
// halo/exchange_tuning.hpp finds the fastest method.
#include <aloni/halo/field.hpp>
#include <aloni/halo/transfer.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace aloni::halo {

/// How the values of an exchange travel. Each method gives the ghosts the same bits. The adjoint adds in an order that
/// depends on the method.
struct ExchangeMethod {
  /// true: all Views in one message per neighbour. false: one message per View and neighbour, all in flight at once.
  bool fused = true;
  /// One dimension after the other: neighbours along an axis send edges and corners together with the faces of a later
  /// dimension. This saves messages, but only messages of the first dimension travel between start() and finish().
  /// See plan_halo_by_dimension.
  bool by_dimension = false;
  /// true: one message from node to node. false: one message from rank to rank. Empty:
  /// TransferOptions::consolidate_below decides.
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

  /// An exchange of no Views.
  Exchange() = default;
  /// Plans the exchange, allocates buffers, and keeps the Views' memory alive. Collective.
  /// @pre every distribution spans the communicator, every View was made for this rank
  /// Throws InvalidArgument on all ranks if the arguments differ between ranks. Otherwise throws InvalidArgument on the
  /// rank with the error, and PeerFailed on the other ranks. Throws Unsupported on all ranks if the Views cannot be
  /// exchanged by dimension.
  Exchange(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<field_type> fields,
           TransferOptions options = {.label = "exchange"})
      : Exchange(comm, queue, std::move(fields), ExchangeMethod{}, std::move(options)) {}
  Exchange(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<field_type> fields,
           const ExchangeMethod& method, TransferOptions options = {.label = "exchange"});

  /// Starts to fill the ghosts. The ghost state is stale from here until finish() makes it fresh. Collective among
  /// neighbours. Asynchronous: until finish(), do not read or write ghosts, and do not change owned values. Kernels on
  /// the same queue may change owned values of Views outside shared memory, because these are packed first.
  /// Throws InvalidArgument if this exchange is already in flight.
  [[nodiscard]] Pending start(const Queue<Exec>& queue) const { return start(queue, false); }
  /// The adjoint: adds each ghost value to the owner that it came from, in a fixed order, and sets the ghosts to zero.
  /// Afterwards the ghosts are stale. Collective and asynchronous as start().
  [[nodiscard]] Pending start_adjoint(const Queue<Exec>& queue) const { return start(queue, true); }
  void run(const Queue<Exec>& queue) const { start(queue).finish(); }
  void run_adjoint(const Queue<Exec>& queue) const { start_adjoint(queue).finish(); }

  /// Messages and elements of one start() of this rank, summed over all Views and dimensions.
  TransferCount counts() const;
  /// Messages that this rank sends to other nodes in one start(). A consolidated message counts on the rank that sends
  /// it to the other node.
  int messages_between_nodes() const;
  /// Peers, bytes and paths of this rank's messages: for each View if not fused, and for each dimension if by
  /// dimension.
  std::vector<PeerTransfer> peers() const;
  /// peers() as text for people: the method, then one line per peer.
  std::string explain() const;

 private:
  struct Implementation;
  [[nodiscard]] Pending start(const Queue<Exec>& queue, bool backwards) const;

  std::shared_ptr<Implementation> implementation_;
};

}  // namespace aloni::halo
