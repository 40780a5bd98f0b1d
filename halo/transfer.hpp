#pragma once
// Executes transfer plans: the one engine under halo exchange and redistribution, for tensors of any spatial rank.
// Most users want halo/exchange.hpp or halo/redistribution.hpp, which make the plans and take DistributedViews.
//
//   using Mem = Kokkos::DefaultExecutionSpace::memory_space;
//   TensorRef<float, Mem> x{local_view, box_with_ghosts};                 // global box covered by local_view
//   const auto plan = plan_halo(distribution, needed, boundaries, comm.rank());
//   Transfer<> halo(comm, queue, {TransferItem<float, Mem>::in_place(x, plan)});
//   auto pending = halo.start(queue);          // packs and sends
//   ...                                        // work that neither reads nor writes the ghosts
//   pending.finish();                          // ghosts are filled, in the order of the queue
//
// All items of one transfer, whatever their types, share one message per peer. Set-up allocates every buffer and turns the plans into lists
// of strided copies; after that neither start nor finish allocates or computes ranges, and each is a handful of
// kernels.
//
// Order. Construction is collective over the communicator: it agrees on a tag that no other transfer uses, so any
// number of transfers may be in flight and may be started in different orders on different ranks. One transfer is in
// flight once.
//
// Fences. start() fences its queue once, before communication: what is sent must be complete. finish() waits for
// messages, and for kernels only where it copies from another rank's memory, which that rank wants back. Memory that the host
// cannot read is staged through pinned host memory, on the queue. A rank without messages never waits.
#include <aloni/core/bfloat16.hpp>
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/halo/pending.hpp>
#include <aloni/halo/transfer_plan.hpp>
#include <aloni/views/ghost_state.hpp>
#include <aloni/views/local_view.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace aloni::halo {

/// A local tensor in canonical form and the global indices that it covers.
template <class T, class MemorySpace>
struct TensorRef {
  views::LocalView<T, MemorySpace> data;
  views::Box box;
  std::shared_ptr<const void> owner = {};               ///< optional: keeps the memory alive as long as the transfer
  std::shared_ptr<views::GhostState> ghost_state = {};  ///< optional: stale from start(), fresh after finish()
};

/// One tensor that exchanges its ghosts, or one pair between which values move.
template <class T, class MemorySpace>
struct TransferItem {
  TensorRef<T, MemorySpace> source, destination;
  TransferPlan plan;
  bool same_tensor = false;
  /// Filled later by somebody else: poisoned together with what this fills (TransferOptions::poison).
  std::vector<views::Box> filled_later = {};

  static TransferItem in_place(TensorRef<T, MemorySpace> tensor, TransferPlan plan) {
    return {tensor, tensor, std::move(plan), true};
  }
  static TransferItem between(TensorRef<T, MemorySpace> source, TensorRef<T, MemorySpace> destination,
                              TransferPlan plan) {
    return {std::move(source), std::move(destination), std::move(plan), false};
  }
};

/// T: float, double, std::int32_t, std::int64_t, comm::bfloat16. The adjoint adds those of bfloat16 one by one, each sum rounded.
template <class MemorySpace>
using AnyTransferItem = std::variant<TransferItem<float, MemorySpace>, TransferItem<double, MemorySpace>,
                                     TransferItem<std::int32_t, MemorySpace>, TransferItem<std::int64_t, MemorySpace>,
                                     TransferItem<comm::bfloat16, MemorySpace>>;

/// How values come to a rank, or leave it.
enum class Path : std::uint8_t {
  view_to_view,   ///< the receiver copies from the sender's tensors, in one pass
  packed_shared,  ///< the sender packs, the receiver copies from where they are packed
  message,        ///< packed, sent, unpacked
  message_from_device,
  consolidated  ///< packed, sent together with all that goes from this node to that one, unpacked
};
const char* name(Path path);

/// What goes to one rank in a transfer, or comes from it.
struct PeerTransfer {
  int rank = 0;
  bool receives = false;  ///< this rank does; otherwise it sends
  std::size_t bytes = 0;
  Path path{};
  std::string transport;  ///< of messages: "shared", "mpi", "ucx"
};

struct TransferOptions {
  std::string label = "transfer";  ///< part of kernel and profiling labels: aloni::halo::<label>: pack
  /// Between ranks that share memory, messages of at least so many bytes are not sent: the receiver copies them from where they lie, in
  /// one pass if the tensor itself is in shared memory (core/comm/shared_view.hpp). The same on all ranks.
  std::size_t direct_bytes = 16 * 1024;
  /// What the ranks of a node, two messages at least, have for those of another travels as one message if the messages are shorter than so
  /// many bytes on average; 0: never. Ranks of a node must share memory (see TransportOptions: on, without checksums). The same on all ranks.
  std::size_t consolidate_below = 16 * 1024;
  int priority = 0;  ///< of its messages, see Communicator::send
  /// From start() to finish() what will be filled is NaN (of integers the lowest number), so that who reads it too early sees it.
  bool poison = false;
};

/// Exec: Kokkos::DefaultExecutionSpace and the default host execution space.
template <class Exec = Kokkos::DefaultExecutionSpace>
class Transfer {
 public:
  using memory_space = typename Exec::memory_space;
  using item_type = AnyTransferItem<memory_space>;

  /// Nothing to transfer; start() and finish() do nothing.
  Transfer() = default;

  /// Collective. Allocates and zeroes buffers on `queue`. Which messages come from whom must fit on all ranks, which
  /// plans made from equal arguments do.
  /// @pre every box that a plan reads or writes lies in its tensor's box, and data's extents are those of the box.
  /// Throws InvalidArgument on the rank that sees it and PeerFailed on the others.
  Transfer(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<item_type> items,
           TransferOptions options = {});

  /// Collective among the ranks that exchange messages. Asynchronous until finish(): what the plan writes must be
  /// neither read nor written, and what it reads must not change: by kernels submitted to the same queue it may where the tensor isn't
  /// in shared memory. What comes from other ranks is written by finish() alone: kernels submitted to the same queue before it that read it all
  /// the same find what was there before.
  /// Throws InvalidArgument when this transfer is already in flight. Every start of one transfer uses the same queue,
  /// or the caller orders them.
  [[nodiscard]] Pending start(const Queue<Exec>& queue) const;

  /// The transposed operator, collective and asynchronous in the same way. For an item in place: every ghost value is
  /// added to the cell it came from, then the ghosts that the plan fills become zero. Between two tensors: the whole
  /// source tensor is overwritten, each cell with the sum of the destination cells that took their value from it and
  /// zero where none did; the destination is unchanged. The order of sums is fixed: equal inputs give equal bits.
  [[nodiscard]] Pending start_adjoint(const Queue<Exec>& queue) const;

  /// start and finish in one call.
  void run(const Queue<Exec>& queue) const { start(queue).finish(); }
  void run_adjoint(const Queue<Exec>& queue) const { start_adjoint(queue).finish(); }

  /// What one start() sends, receives and copies on this rank, all items together; messages are counted once per
  /// peer.
  TransferCount counts() const;
  /// Messages that this rank sends to other nodes in one start(). Consolidated ones count where they leave the node.
  int messages_between_nodes() const;
  /// Ranks to which it sends, then those from which it receives, and how. Of the forward direction.
  std::vector<PeerTransfer> peers() const;
  /// The same for people, one line each.
  std::string explain() const;
  /// Bytes of all communication buffers of this rank.
  std::size_t buffer_bytes() const;

 private:
  struct Implementation;
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace aloni::halo
