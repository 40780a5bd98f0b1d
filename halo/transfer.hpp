#pragma once
// Runs transfer plans on tensors of any spatial rank. Halo exchange and redistribution are built on it. Most users want
// halo/exchange.hpp or halo/redistribution.hpp, which make the plans and take DistributedViews.
//
//   using Mem = Kokkos::DefaultExecutionSpace::memory_space;
//   TensorRef<float, Mem> x{local_view, box_with_ghosts};                 // local_view covers this global box
//   const auto plan = plan_halo(distribution, needed, boundaries, comm.rank());
//   Transfer<> halo(comm, queue, {TransferItem<float, Mem>::in_place(x, plan)});
//   auto pending = halo.start(queue);          // packs and sends
//   ...                                        // work that neither reads nor writes the ghosts
//   pending.finish();                          // ghosts are filled, in the order of the queue
//
// All items of one transfer, whatever their types, share one message per peer. Set-up allocates every buffer and turns
// the plans into lists of strided copies; after that neither start nor finish allocates or computes ranges, and each is
// a handful of kernels.
//
// Order. Construction is collective over the communicator: it agrees on a tag that no other transfer uses, so any
// number of transfers may be in flight and may be started in different orders on different ranks. One transfer is in
// flight once.
//
// Fences. start() fences its queue once, before communication: what is sent must be complete. finish() waits for
// messages, and for kernels only where it copies from another rank's memory, which that rank wants back. Memory that
// the host cannot read is staged through pinned host memory, on the queue. A rank without messages never waits.
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

/// A local tensor and the box of global indices that it covers.
template <class T, class MemorySpace>
struct TensorRef {
  views::LocalView<T, MemorySpace> data;
  views::Box box;
  std::shared_ptr<const void> owner = {};               ///< optional: keeps the memory alive as long as the transfer
  std::shared_ptr<views::GhostState> ghost_state = {};  ///< optional: stale from start(), fresh after finish()
};

/// One tensor that exchanges its ghosts, or a source and a destination tensor, with the plan.
template <class T, class MemorySpace>
struct TransferItem {
  TensorRef<T, MemorySpace> source, destination;
  TransferPlan plan;
  bool same_tensor = false;
  /// Boxes that a later transfer fills; poisoned together with the boxes that this one fills (TransferOptions::poison).
  std::vector<views::Box> filled_later = {};

  static TransferItem in_place(TensorRef<T, MemorySpace> tensor, TransferPlan plan) {
    return {tensor, tensor, std::move(plan), true};
  }
  static TransferItem between(TensorRef<T, MemorySpace> source, TensorRef<T, MemorySpace> destination,
                              TransferPlan plan) {
    return {std::move(source), std::move(destination), std::move(plan), false};
  }
};

/// T: float, double, std::int32_t, std::int64_t, comm::bfloat16. The adjoint adds those of bfloat16 one by one, each
/// sum rounded.
template <class MemorySpace>
using AnyTransferItem = std::variant<TransferItem<float, MemorySpace>, TransferItem<double, MemorySpace>,
                                     TransferItem<std::int32_t, MemorySpace>, TransferItem<std::int64_t, MemorySpace>,
                                     TransferItem<comm::bfloat16, MemorySpace>>;

/// How values travel between two ranks.
enum class Path : std::uint8_t {
  view_to_view,         ///< the receiver copies from the sender's tensors, in one pass
  packed_shared,        ///< the sender packs, the receiver copies from the sender's buffer
  message,              ///< packed, sent, unpacked
  message_from_device,  ///< as message, but sent from and received in device memory
  consolidated          ///< packed, sent in one message with all values between the two nodes, unpacked
};
const char* name(Path path);

/// The values that a transfer sends to one rank, or receives from it.
struct PeerTransfer {
  int rank = 0;
  bool receives = false;  ///< true: this rank receives from `rank`; false: it sends to `rank`
  std::size_t bytes = 0;
  Path path{};
  std::string transport;  ///< of messages: "shared", "mpi", "ucx"
};

struct TransferOptions {
  std::string label = "transfer";  ///< part of kernel and profiling labels: aloni::halo::<label>: pack
  /// Between ranks that share memory, messages of at least so many bytes are not sent: the receiver copies them from
  /// where they lie, in one pass if the tensor itself is in shared memory (core/comm/shared_view.hpp). The same on all
  /// ranks.
  std::size_t direct_bytes = 16 * 1024;
  /// What the ranks of a node, two messages at least, have for those of another travels as one message if the messages
  /// are shorter than so many bytes on average; 0: never. Ranks of a node must share memory (see TransportOptions: on,
  /// without checksums). The same on all ranks.
  std::size_t consolidate_below = 16 * 1024;
  int priority = 0;  ///< of its messages, see Communicator::send
  /// From start() to finish() what will be filled is NaN (of integers the lowest number), so that who reads it too
  /// early sees it.
  bool poison = false;
};

/// Exec: Kokkos::DefaultExecutionSpace and the default host execution space.
template <class Exec = Kokkos::DefaultExecutionSpace>
class Transfer {
 public:
  using memory_space = typename Exec::memory_space;
  using item_type = AnyTransferItem<memory_space>;

  /// A transfer without items; start() and finish() do nothing.
  Transfer() = default;

  /// Allocates and zeroes buffers on `queue`. Collective.
  /// @pre the messages that one rank plans to send are those that its peers plan to receive; plans made from equal
  /// arguments satisfy this
  /// @pre every box that a plan reads or writes lies in its tensor's box; each tensor's data has the extents of its box
  /// Throws InvalidArgument on the rank with the error, and PeerFailed on the other ranks.
  Transfer(const comm::Communicator& comm, const Queue<Exec>& queue, std::vector<item_type> items,
           TransferOptions options = {});

  /// Collective among the ranks that exchange messages. Asynchronous until finish(): what the plan writes must be
  /// neither read nor written, and what it reads must not change: by kernels submitted to the same queue it may where
  /// the tensor isn't in shared memory. What comes from other ranks is written by finish() alone: kernels submitted to
  /// the same queue before it that read it all the same find what was there before.
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

  /// Messages and elements that one start() sends, receives and copies on this rank, summed over all items. Each peer
  /// counts as one message.
  TransferCount counts() const;
  /// Messages that this rank sends to other nodes in one start(). A consolidated message counts on the rank that sends
  /// it to the other node.
  int messages_between_nodes() const;
  /// The peers this rank sends to, then the peers it receives from, with bytes and paths. Forward direction only.
  std::vector<PeerTransfer> peers() const;
  /// peers() as text for people, one line per peer.
  std::string explain() const;
  /// Total bytes of this rank's communication buffers.
  std::size_t buffer_bytes() const;

 private:
  struct Implementation;
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace aloni::halo
