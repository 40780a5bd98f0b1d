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
//   pending.finish();                          // kernels submitted to the queue from here on see filled ghosts
//
// All items of a transfer share one message per peer, also items of different types. The constructor allocates all
// buffers and turns the plans into lists of strided copies. After that, start() and finish() neither allocate nor
// compute ranges; each launches a few kernels.
//
// Order. The constructor is collective over the communicator: the ranks agree on a number that no other transfer uses.
// So any number of transfers may be in flight, and ranks may start them in different orders, unless
// TransferOptions::order says otherwise. Messages with tags never meet those of a transfer. A transfer must be finished
// before it starts again. Each message carries the direction: a rank that starts the adjoint where another starts the
// transfer is an error (CommunicationError, PeerFailed).
//
// Fences. start() fences its queue once, before communication, because packed messages must be complete. finish() waits
// for messages. It waits for kernels only if they copy from another rank's memory, because that rank waits to reuse it.
// Memory that the host cannot read is staged through pinned host memory, on the queue. A rank without messages never
// waits. Between devices of a node there are no fences for values that the receiver copies: events that the processes
// share order the kernels of both ranks (core/comm/shared_events.hpp). Pairs of ranks that cannot share events wait as
// above; explain() says which do.
//
// Between devices of different nodes, values go in a group of the device library (NCCL), on its communication stream.
// This needs that all ranks start these transfers in one order (TransferOptions::order). The host waits for no kernel
// then. Otherwise they go in messages from device memory, if a trial message of MPI has proved them, or through pinned
// host memory.
#include <aloni/core/bfloat16.hpp>
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/core/machine.hpp>
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

/// T: float, double, std::int32_t, std::int64_t, comm::bfloat16, comm::float16. The adjoint adds values of 16 bits one
/// by one and rounds after each addition.
template <class MemorySpace>
using AnyTransferItem =
    std::variant<TransferItem<float, MemorySpace>, TransferItem<double, MemorySpace>,
                 TransferItem<std::int32_t, MemorySpace>, TransferItem<std::int64_t, MemorySpace>,
                 TransferItem<comm::bfloat16, MemorySpace>, TransferItem<comm::float16, MemorySpace>>;

/// How values travel between two ranks.
enum class Path : std::uint8_t {
  view_to_view,         ///< the receiver copies from the sender's tensors, in one pass
  packed_shared,        ///< the sender packs, the receiver copies from the sender's buffer
  message,              ///< packed, sent, unpacked
  message_from_device,  ///< as message, but sent from and received in device memory
  grouped,              ///< packed, sent in a group of the device library, unpacked
  consolidated          ///< packed, sent in one message with all values between the two nodes, unpacked
};
const char* name(Path path);

/// The values that a transfer sends to one rank, or receives from it.
struct PeerTransfer {
  int rank = 0;
  bool receives = false;  ///< true: this rank receives from `rank`; false: it sends to `rank`
  std::size_t bytes = 0;
  Path path{};
  std::string transport;   ///< of messages: "shared", "mpi", "ucx"; of groups: the device library
  bool by_events = false;  ///< copied, and kernels wait for the other rank's kernels by events, not the hosts
};

/// The order in which the ranks of a communicator start its transfers.
enum class StartOrder : std::uint8_t {
  any,  ///< ranks may start transfers in different orders
  /// All ranks of the communicator construct and start transfers with this option in the same order, forward and
  /// adjoint. ViewAllReduces of device memory are a part of this order. Every rank starts each of them, also if it has
  /// no messages. An exchange by dimension starts transfers in finish() too. core/comm/grouped_messages.hpp has the
  /// reason.
  same
};

struct TransferOptions {
  std::string label = "transfer";  ///< part of kernel and profiling labels: aloni::halo::<label>: pack
  /// Messages of at least this many bytes are not sent between ranks that share memory. The receiver copies the values
  /// from the sender's memory instead. If the tensor itself is in shared memory (core/comm/shared_view.hpp), it copies
  /// in one pass. Equal on all ranks.
  std::size_t direct_bytes = default_direct_bytes;
  /// Two or more messages from one node to another are joined into one if their mean length is below this many bytes;
  /// 0: never. The ranks of a node must share memory (see TransportOptions: shared memory on, without checksums). Equal
  /// on all ranks.
  std::size_t consolidate_below = default_consolidate_below;
  int priority = 0;  ///< priority of the messages, see Communicator::send
  /// `same` allows groups of the device library between nodes. If ranks break this order, finish() throws
  /// CommunicationError on a rank that finds it, and PeerFailed on the others. Equal on all ranks.
  StartOrder order = StartOrder::any;
  /// From start() to finish(), cells to be filled hold NaN, integers the lowest number. This shows reads that are too
  /// early.
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

  /// Packs and sends. Collective among the ranks that exchange messages. Asynchronous: until finish(), do not read or
  /// write the cells that the plan writes, and do not change the cells that it reads. Kernels on the same queue may
  /// change the cells that it reads, if the tensor is outside shared memory. Until finish(), cells received from other
  /// ranks keep their old values for kernels on the same queue.
  /// @pre all starts of one transfer use the same queue, or the caller orders them
  /// Throws InvalidArgument if this transfer is already in flight.
  [[nodiscard]] Pending start(const Queue<Exec>& queue) const;

  /// The adjoint, collective and asynchronous as start(). In place: adds each ghost value to the cell it came from,
  /// then sets the ghosts that the plan fills to zero. Between two tensors: overwrites the whole source tensor. Each
  /// cell becomes the sum of the destination cells that took their value from it, or zero if there are none. The
  /// destination does not change. The order of sums is fixed: equal inputs give equal bits.
  [[nodiscard]] Pending start_adjoint(const Queue<Exec>& queue) const;

  /// start() and finish() in one call.
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
  /// peers() as text for people, one line per peer. Then a line with the sizes that decided: direct_bytes and
  /// consolidate_below of the options.
  std::string explain() const;
  /// Total bytes of this rank's communication buffers.
  std::size_t buffer_bytes() const;

 private:
  struct Implementation;
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace aloni::halo
