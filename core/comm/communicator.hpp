#pragma once
// A group of ranks that work together: messages, collectives, shared memory, and failing together.
//
//   #include <aloni/core/comm/mpi.hpp>
//   auto comm = aloni::comm::from_mpi(MPI_COMM_WORLD);                 // owns a duplicate; collective
//   auto images = aloni::comm::collectively(comm, "reading the data", [&] { return read_idx(path); });
//
//   Request requests[] = {comm.receive(std::span(theirs), left, tag), comm.send(std::span(ours), right, tag)};
//   comm.wait(requests);                                               // messages
//
//   comm.all_reduce(std::span(gradients), Reduction::sum);             // short forms of the most frequent collectives
//   comm.run(AllToAll{std::span(input), std::span(output)});           // any collective (operations.hpp), blocking,
//   Request r = comm.start(Broadcast{std::span(weights), 0});          //   asynchronous,
//   PersistentCollective p = comm.persistent(AllGather{std::span(v)}); //   prepared once for many runs,
//   std::string why = comm.explain(AllGather{std::span(v)}).reason;    //   or only explained
//
// Collective calls: all ranks make the same calls in the same order, with equal counts and options.
// Asynchronous calls: the data belong to the operation until test() or wait() has seen it complete. Any call that waits
// or tests makes progress on all pending operations.
//
// Exceptions of every call:
//   InvalidArgument     on each rank with the wrong argument, before anything is sent. The communicator stays usable.
//   Unsupported         an algorithm that can't serve these ranks: on all ranks. The communicator stays usable.
//   CommunicationError  on a rank that finds a message of another size, a neighbour in a different collective call (the
//                       text names both), or an error of MPI. It poisons the family before it is thrown.
//   PeerFailed          on all ranks that wait, once the family is poisoned. Names the failed rank and its message.
//
// Failing together. A failure that only one rank can see (a file, its memory) must be wrapped in collectively() or end
// in poison(). Poison reaches the whole family: the communicator from from_mpi() and all communicators split from it,
// in any depth. The reason: a rank that waits in one of them may wait for a rank that waits in another.
// A rank that can't poison any more is found as well. Ranks of its node notice within milliseconds that its process has
// ended; other nodes notice it if it is the lowest rank of its node. A rank that is stopped or takes no part is found
// after TransportOptions::stuck_after, one that computes after TransportOptions::longest_wait. The others then throw
// PeerFailed with its rank. An exception that leaves the block of the last copy of a communicator poisons the family.
// After PeerFailed or CommunicationError a communicator can only be destroyed. Its requests are dead, and the buffers
// of pending receives belong to the caller again.
//
// Threads and copies. One thread at a time uses a family. Copies share one state. Requests stay valid when a
// communicator is copied or moved. Destroying the last copy is collective for MPI: destroy communicators in the same
// order on all ranks, before MPI_Finalize.
//
// This header names no MPI type; core/comm/mpi.hpp makes a Communicator from an MPI_Comm.
#include <aloni/core/comm/exposed_memory.hpp>
#include <aloni/core/comm/operations.hpp>
#include <aloni/core/comm/transport.hpp>
#include <aloni/core/comm/transport_options.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace aloni::comm {

namespace detail {
class DeviceCollectives;
class DeviceSharing;
}  // namespace detail

/// A pending operation of a Communicator. Cheap to copy. Spent when test() or wait() has seen it complete.
struct Request {
  std::uint32_t slot = 0, generation = 0;
  bool pending = false;
};

/// Traffic to and from one rank.
struct PeerTraffic {
  int rank = 0;           ///< of the communicator
  std::string transport;  ///< "self", "shared", "mpi", "ucx"; with TransportOptions::faults "faulty shared" …
  TrafficCounters messages, collectives;
};

/// A collective operation that is prepared once, on the same memory, and runs any number of times. Copies share it.
class PersistentCollective {
 public:
  /// Nothing to do.
  PersistentCollective() = default;
  /// Collective, asynchronous. Throws InvalidArgument while the Request of the previous start isn't spent.
  [[nodiscard]] Request start() const;
  /// Collective.
  void run() const;

 private:
  friend class Communicator;
  struct Implementation;
  explicit PersistentCollective(std::shared_ptr<Implementation> implementation);

  std::shared_ptr<Implementation> implementation_;
};

/// Element types of messages, besides bytes.
template <class T>
concept MessageElement = std::is_trivially_copyable_v<T> && !std::same_as<std::remove_const_t<T>, std::byte>;

template <class T>
class PartialAllReduce;
class GroupedMessages;
class Mailbox;
class SharedEvents;
class TransferMessages;
class Communicator;

namespace detail {
/// For tests: the device of this rank for the whole family. Call it on all ranks before anything uses the device.
void set_device(const Communicator& comm, std::shared_ptr<DeviceSharing> device);
/// For tests: the device library of this communicator.
void set_device_collectives(const Communicator& comm, std::shared_ptr<DeviceCollectives> collectives);
}  // namespace detail

class Communicator {
 public:
  struct State;
  explicit Communicator(std::shared_ptr<State> state);

  // --- ranks ---

  int rank() const;
  int size() const;
  /// Collective. A communicator of the ranks with this color, ordered by key, then rank. @pre color ≥ 0
  Communicator split(int color, int key) const;
  /// Collective over `members`, which all pass the same ascending list that contains them. Other ranks don't call it.
  Communicator subgroup(const std::vector<int>& members) const;
  /// Collective. A communicator of the ranks of this node, ordered by rank.
  Communicator node() const;

  // --- messages: host memory, any size ---

  /// Tags are 0 … max_tag.
  static constexpr int max_tag = 16383;

  /// Asynchronous. The k-th send with a tag meets the k-th receive with that tag. Both have the same size in bytes. If
  /// both are spans of numbers, they have the same element type.
  /// Flow control: data arrive at once. But beyond 4 MiB a send completes only when the peer has received the earlier
  /// messages; each message counts 256 bytes more than its size. @pre 0 ≤ peer < size(), 0 ≤ tag ≤ max_tag
  [[nodiscard]] Request send(std::span<const std::byte> data, int peer, int tag, const MessageOptions& o = {}) const;
  [[nodiscard]] Request receive(std::span<std::byte> data, int peer, int tag, const MessageOptions& o = {}) const;
  template <MessageElement T, std::size_t N>
  [[nodiscard]] Request send(std::span<T, N> values, int peer, int tag, const MessageOptions& o = {}) const {
    return send(std::span<const std::byte>(std::as_bytes(values)), peer, tag, with_type<T>(o));
  }
  template <MessageElement T, std::size_t N>
  [[nodiscard]] Request receive(std::span<T, N> values, int peer, int tag, const MessageOptions& o = {}) const {
    return receive(std::span<std::byte>(std::as_writable_bytes(values)), peer, tag, with_type<T>(o));
  }
  /// Whether messages to and from `peer` may lie in device memory (MessageOptions::on_device). They have no checksums.
  bool carries_device_memory(int peer) const;

  /// Makes progress; true when the operation, of any kind, is complete.
  bool test(Request& request) const;
  /// Returns when all are complete. Yields the core while it waits.
  void wait(std::span<Request> requests) const;
  void wait(Request request) const { wait(std::span(&request, 1)); }
  /// Makes progress on all operations of the family without waiting, by one large piece of work at most. Call it
  /// between pieces of a computation. True when there was work.
  bool progress() const;

  // --- collectives: operations.hpp has the operations with their shapes and options ---

  /// Collective.
  template <CollectiveOperation O>
  void run(const O& operation) const {
    wait(start(operation));
  }
  /// Collective, asynchronous.
  template <CollectiveOperation O>
  [[nodiscard]] Request start(const O& operation) const {
    return start_untyped(detail::untyped(operation));
  }
  template <class T>
  [[nodiscard]] Request start(const AllReduce<T, Reduction>& o) const {
    return start_built_in(o.values, o.op, o.options);
  }
  /// Checks, plans and allocates; starts nothing. Not collective: ranks compare their operations at each start.
  /// Throws Unsupported for CollectiveOptions::fuse.
  template <CollectiveOperation O>
  [[nodiscard]] PersistentCollective persistent(const O& operation) const {
    return prepare_untyped(detail::untyped(operation));
  }
  /// The algorithm that run() would take, why, and its costs. Not collective; the data are not touched. Throws as run()
  /// does for wrong arguments.
  template <CollectiveOperation O>
  [[nodiscard]] Explanation explain(const O& operation) const {
    return explain_untyped(detail::untyped(operation));
  }

  /// Collective. The reduction of one value of each rank.
  template <ReducibleElement T>
  T all_reduce(T value, Reduction op) const {
    all_reduce(std::span<T>(&value, 1), op);
    return value;
  }
  /// Collective. run() and start() of an AllReduce.
  template <class T, std::size_t N, ReductionOperation Op>
  void all_reduce(std::span<T, N> values, const Op& op, const CollectiveOptions& options = {}) const {
    wait(start_all_reduce(values, op, options));
  }
  template <class T, std::size_t N, ReductionOperation Op>
  [[nodiscard]] Request start_all_reduce(std::span<T, N> values, const Op& op,
                                         const CollectiveOptions& options = {}) const {
    static_assert(ReducibleElement<T, Op>,
                  "float, double, int32, int64, uint64, bfloat16, float16, or an ElementOperation");
    if constexpr (std::same_as<Op, Reduction>) {
      return start_built_in(std::span<T>(values), op, options);
    } else {
      return start_untyped(detail::untyped(OperationKind::all_reduce, std::span<T>(values), op, options));
    }
  }
  /// Collective. One value of each rank, in the order of ranks.
  std::vector<std::int64_t> all_gather(std::int64_t value) const;
  /// Collective. Every rank gets the text of rank `root`, of any length.
  void broadcast(std::string& text, int root) const;
  /// Collective. Returns when all ranks have called it.
  void barrier() const { run(Barrier{}); }

  /// Collective. From now on `automatic` takes the algorithm that was measured as the fastest; in this communicator
  /// only. Throws InvalidArgument on all ranks for a tuning of other numbers of ranks or nodes, and when ranks pass
  /// different ones.
  void set_tuning(const Tuning& tuning) const;
  /// Why these ranks cannot use an algorithm for an all-reduce, and the alternative; none if they can.
  std::optional<std::string> unsupported_reason(AllReduceAlgorithm algorithm) const;
  /// The tuning of the last set_tuning(); none before.
  const std::optional<Tuning>& tuning() const;

  // --- memory of the node's ranks ---

  /// Memory that the other ranks of the node reach directly. They read messages from it in place; all-reduces of it
  /// take one pass. Any thread may allocate and free; both are local. The pointer keeps the heap alive.
  std::shared_ptr<std::pmr::memory_resource> shared_memory() const;
  /// The same on the device of this rank (device/device_heap.hpp). Null if the build has no devices, or if no other
  /// rank of the family is on this node. Freeing waits for all work of this process on the device.
  std::shared_ptr<std::pmr::memory_resource> device_memory() const;
  /// How `peer` reaches `bytes` bytes from `data` on, to be sent to it: so it can copy them instead of receiving them.
  /// Not collective. Not `reachable`: on another node, memory outside shared_memory() and device_memory(), device
  /// memory that the driver doesn't share, and every memory of a family with checksums.
  ExposedMemory expose(const void* data, std::size_t bytes, int peer) const;
  /// On the other rank: the memory that `peer` has exposed to it; null when it can't be opened. It stays mapped until
  /// the last copy of the pointer is gone, but its contents are undefined after `peer` has freed it.
  std::shared_ptr<std::byte> open(int peer, const ExposedMemory& memory, std::size_t bytes) const;
  /// Adds copies through open(), or messages of a device library, to the traffic with a peer.
  void count_direct(int peer, std::size_t bytes_sent, std::size_t bytes_received) const;

  // --- observation and settings of the whole family, on this rank ---

  /// Messages and bytes since from_mpi(), by transport: "self", "shared", "mpi", "ucx". With " collectives" behind the
  /// name: of collectives and collectively().
  std::vector<std::pair<std::string, TrafficCounters>> traffic() const;
  /// The same for each rank of this communicator.
  std::vector<PeerTraffic> traffic_by_peer() const;
  /// TransportOptions::progress_thread.
  bool has_progress_thread() const;
  /// TransportOptions::checksums.
  bool has_checksums() const;
  /// Largest fragment in which this rank sends messages to other nodes, in bytes.
  std::size_t largest_fragment_between_nodes() const;
  /// The ranks of each node, ascending; nodes in the order of their lowest ranks.
  const std::vector<std::vector<int>>& ranks_by_node() const;
  /// TransportOptions::stuck_after.
  void set_stuck_after(std::chrono::milliseconds limit) const;
  /// TransportOptions::longest_wait.
  void set_longest_wait(std::chrono::milliseconds limit) const;
  /// Largest fragment of a message in bytes. 2^30 by default; tests lower it.
  std::size_t max_message_bytes() const;
  void set_max_message_bytes(std::size_t bytes);

  // --- failing together ---

  /// Tells all ranks of the family that this one has failed. Not collective; returns at once; never throws. Only the
  /// first poison that a rank gives or sees counts. Messages are truncated to 1000 bytes.
  void poison(std::string_view message) const noexcept;
  /// Throws PeerFailed when a rank has poisoned the family, or is seen to have died. For loops that wait elsewhere.
  /// `waits`: the loop waits for other ranks, so the limits of TransportOptions hold; call it every few milliseconds.
  void check_poison(bool waits = false) const;
  /// After PeerFailed: true for the first caller of each node, which reports the failure for all. Not collective.
  bool claim_report() const;
  /// Collective error check. Returns when no rank passes an error. Otherwise ranks that passed one rethrow it; all
  /// others throw PeerFailed with the lowest failing rank and its message.
  void agree(std::string_view operation, std::exception_ptr local_error) const;

 private:
  template <class T>
  static MessageOptions with_type(MessageOptions o) {
    o.type = element_type<std::remove_const_t<T>>();
    return o;
  }
  template <class T>
  Request start_built_in(std::span<T> values, Reduction op, const CollectiveOptions& options) const;
  Request start_untyped(const detail::UntypedOperation& operation) const;
  PersistentCollective prepare_untyped(const detail::UntypedOperation& operation) const;
  Explanation explain_untyped(const detail::UntypedOperation& operation) const;

  /// The collectives of a device library, made by the first call; null on all ranks without one. One for each
  /// communicator, because each takes memory of the device. Collective. Throws as make_device_collectives().
  std::shared_ptr<detail::DeviceCollectives> device_collectives() const;

  template <class T>
  friend class PartialAllReduce;
  template <class T, class Exec, class F>
  friend class ViewAllReduce;
  friend class GroupedMessages;
  friend class Mailbox;
  friend class SharedEvents;
  friend class TransferMessages;
  friend void detail::set_device(const Communicator& comm, std::shared_ptr<detail::DeviceSharing> device);
  friend void detail::set_device_collectives(const Communicator& comm,
                                             std::shared_ptr<detail::DeviceCollectives> collectives);

  std::shared_ptr<State> state_;
};

/// Collective. Runs `f` on every rank. If it throws on any rank, it throws on all (Communicator::agree).
/// @pre `f` doesn't communicate
template <class F>
auto collectively(const Communicator& comm, std::string_view operation, F&& f) {
  using R = std::invoke_result_t<F>;
  std::exception_ptr error;
  if constexpr (std::is_void_v<R>) {
    try {
      f();
    } catch (...) {
      error = std::current_exception();
    }
    comm.agree(operation, error);
  } else {
    std::optional<R> result;
    try {
      result.emplace(f());
    } catch (...) {
      error = std::current_exception();
    }
    comm.agree(operation, error);
    return std::move(*result);
  }
}

}  // namespace aloni::comm
