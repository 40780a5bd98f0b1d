#pragma once
// A group of ranks that work together: point-to-point messages, collectives, and the rules for failing together.
//
//   #include <aloni/core/comm/mpi.hpp>
//   auto comm = aloni::comm::from_mpi(MPI_COMM_WORLD);   // owns a duplicate; collective
//   auto dataset = aloni::comm::collectively(comm, "reading the data", [&] { return read_idx(path); });
//   comm.all_reduce(std::span(gradients), Reduction::sum);
//
// This header names no MPI type; core/comm/mpi.hpp makes a Communicator from an MPI_Comm.
//
// Failing together. A wait inside any operation watches for poison: when a rank calls poison(), the pending and all later
// operations of every rank throw PeerFailed with that rank and its message. A failure that only one rank can see (a file, its
// memory) must either be wrapped in collectively() or end in poison(). A CommunicationError (a message of another size, a
// collective that a neighbour calls differently, an error of MPI) poisons by itself before it is thrown.
// A rank that can't poison any more is found out: a process that has ended, within milliseconds by the others of its node, and by
// other nodes if it is the first of its own; one that is stopped, or doesn't take part, when its peers have waited for
// TransportOptions::stuck_after. They throw PeerFailed with its rank then.
// Poison concerns a whole family: the communicator made by from_mpi() and all that were split from it, in any depth, because
// who waits in one of them may wait for somebody who waits in another for the failed rank.
// After PeerFailed or CommunicationError the communicator is good for nothing but destruction; pending requests are dead, and
// the buffers of pending receives belong to the caller again.
//
// A family of communicators is used by one thread at a time. Moving and copying invalidate nothing: copies share one state,
// transports and requests stay valid. Like the making of a communicator, the end of its last copy is collective for MPI: destroy
// them in the same order on all ranks, and before MPI_Finalize.
#include <aloni/core/comm/collectives.hpp>
#include <aloni/core/comm/exposed_memory.hpp>
#include <aloni/core/comm/faults.hpp>
#include <aloni/core/comm/reduction.hpp>
#include <aloni/core/comm/transport.hpp>
#include <aloni/core/comm/tuning.hpp>
#include <aloni/core/index.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
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

/// A pending operation of a Communicator. Cheap to copy; spent when test() or wait() has seen it complete.
struct Request {
  std::uint32_t slot = 0, generation = 0;
  bool pending = false;
};

/// What carries messages between ranks that don't share memory.
enum class MessageTransport : std::uint8_t { mpi, ucx };

/// Which transports a family may use. Equal on all ranks.
struct TransportOptions {
  bool shared_memory = true;                          ///< between ranks of one node that can reach each other's memory
  MessageTransport messages = MessageTransport::mpi;  ///< between all others; ucx: builds with aloni_ENABLE_UCX only
  /// A thread of each rank makes progress as long as operations are pending. Worth a core where communication is to hide behind
  /// computation that calls nothing here. Needs MPI_THREAD_MULTIPLE if any two ranks talk through MPI: Unsupported otherwise.
  bool progress_thread = false;
  /// Each payload carries a CRC32C; one that doesn't fit is a CommunicationError at the receiver.
  bool checksums = false;
  /// Messages of MPI between nodes go in fragments of so many bytes: those that MPI sends at once. For longer ones it asks first whether the
  /// receiver is ready, and over TCP the answer waits behind all that goes the other way: an exchange took up to 1.6 times as long as its
  /// bytes. 0: 60 KiB where the machine has no device for remote direct memory access, otherwise whole messages.
  std::size_t mpi_fragment_bytes = 0;
  /// Above 0: ranks count as one node in groups of so many, and what goes between groups goes as between nodes. To try on one machine what
  /// happens on several; 0: nodes are machines.
  int ranks_per_node = 0;
  /// An operation for which nothing has come for so long is given up: every rank of the family throws PeerFailed, naming the rank
  /// that is to blame and what it does. 0: never.
  std::chrono::milliseconds stuck_after{30'000};
  /// To try how a code stands faults: they befall all messages between ranks, each rank's from a seed of its own. Delays must change no
  /// result; what is lost, truncated or, with checksums, corrupted ends in an exception on all ranks that wait for it. Copies that ranks make
  /// of each other's memory meet no faults.
  Faults faults{};
};

/// What went to and from one rank.
struct PeerTraffic {
  int rank = 0;           ///< of the communicator
  std::string transport;  ///< "self", "shared", "mpi", "ucx"; "faulty shared" … with TransportOptions::faults
  TrafficCounters messages, collectives;
};

namespace detail {
struct Prepared;
}

/// A collective that is set up once, for the same memory, and started any number of times. Copies are the same collective.
class PersistentCollective {
 public:
  /// Nothing to do.
  PersistentCollective() = default;
  /// Collective. Asynchronous, as Communicator::start_…. Throws InvalidArgument while the Request of the start before isn't spent.
  [[nodiscard]] Request start() const;
  void run() const;

 private:
  friend class Communicator;
  struct Implementation;
  explicit PersistentCollective(std::shared_ptr<Implementation> implementation);

  std::shared_ptr<Implementation> implementation_;
};

template <class T>
class PartialAllReduce;

class Communicator {
 public:
  /// Tags of user messages: 0 … max_tag.
  static constexpr int max_tag = 16383;

  struct State;  // holds the MPI communicators and transports
  explicit Communicator(std::shared_ptr<State> state);

  int rank() const;
  int size() const;

  /// Collective. Ranks of one color form a communicator, ordered by key, then rank. @pre color ≥ 0. Throws CommunicationError.
  Communicator split(int color, int key) const;
  /// Collective over this communicator's ranks that are in `members`; each member passes the same ascending list, which
  /// contains itself. Ranks that are not members don't call.
  Communicator subgroup(const std::vector<int>& members) const;
  /// Collective. The ranks that share memory with this one (one node), ordered by rank.
  Communicator node() const;

  // --- point to point: host memory, any size (split into fragments of at most max_message_bytes()) ---

  /// Asynchronous: `data` is frozen until wait() or test() says so. They arrive as soon as anything, but beyond 4 MiB (256 bytes for each
  /// message counted too) a send is complete only when the peer has taken what was sent to it before.
  /// @pre 0 ≤ peer < size(), 0 ≤ tag ≤ max_tag
  [[nodiscard]] Request send(std::span<const std::byte> data, int peer, int tag,
                             const MessageOptions& options = {}) const;
  [[nodiscard]] Request receive(std::span<std::byte> data, int peer, int tag, const MessageOptions& options = {}) const;
  /// Whether messages to and from `peer` may be in device memory (MessageOptions::on_device): a device-aware MPI carries them, and payloads
  /// have no checksums.
  bool carries_device_memory(int peer) const;
  /// Makes progress; true when complete. Throws PeerFailed when the communicator is poisoned.
  bool test(Request& request) const;
  /// Waits for all; spins politely (yields the core). Throws PeerFailed, CommunicationError.
  void wait(std::span<Request> requests) const;
  void wait(Request request) const { wait(std::span(&request, 1)); }
  /// Does what can be done now for all pending operations of the family, one large piece of work at most; true when there was
  /// anything to do. To be called between pieces of a computation.
  bool progress() const;
  /// Whether a thread does so all the time (TransportOptions::progress_thread).
  bool has_progress_thread() const;

  /// See TransportOptions; for the whole family, on this rank.
  void set_stuck_after(std::chrono::milliseconds limit) const;

  /// Largest fragment of a message, for the whole family. Default 2^30; tests lower it.
  std::size_t max_message_bytes() const;
  void set_max_message_bytes(std::size_t bytes);

  /// Memory that the other ranks of the node reach directly: messages from it are read in place, all-reduces of it take one pass.
  /// Allocating and freeing is local, by any thread. The heap outlives the communicator as long as somebody holds it.
  std::shared_ptr<std::pmr::memory_resource> shared_memory() const;

  /// For those who let a peer copy from this rank's memory instead of sending: how that rank finds `bytes` from `data` on, to be
  /// told to it in a message. Not `reachable` where it can't: another node, host memory that isn't of shared_memory(), device memory
  /// that the driver doesn't share, or a family with checksums, which only messages have. Not collective.
  ExposedMemory expose(const void* data, std::size_t bytes, int peer) const;
  /// On that peer: the memory that `peer` has exposed to this rank; null when it can't be opened here. To be let go before it is freed
  /// there.
  std::shared_ptr<std::byte> open(int peer, const ExposedMemory& memory, std::size_t bytes) const;
  /// Adds what was copied so to the traffic with a peer.
  void count_direct(int peer, std::size_t bytes_sent, std::size_t bytes_received) const;

  /// Messages and bytes of this rank since from_mpi(), of the whole family, for each transport that it has: "self", "shared",
  /// "mpi", "ucx", and, with " collectives" behind the name, those of the collectives below and of collectively().
  std::vector<std::pair<std::string, TrafficCounters>> traffic() const;
  /// The same for each rank of this communicator.
  std::vector<PeerTraffic> traffic_by_peer() const;

  // --- collectives on host memory: every rank calls the same ones in the same order, with the same counts and options ---
  //
  // start_…: asynchronous; the data belong to the operation until wait() or test() says so. Progress is made by any wait or test.
  // Where a type is said to be T: float, double, std::int32_t, std::int64_t, std::uint64_t, bfloat16. A call that differs between
  // ranks throws CommunicationError that names both; an argument out of range throws InvalidArgument, an algorithm that can't serve
  // these ranks Unsupported.

  /// In place; every rank gets the reduction of all ranks' values, the same bits everywhere.
  template <class T>
  void all_reduce(std::span<T> values, Reduction op, const CollectiveOptions& options = {}) const {
    wait(start_all_reduce(values, op, options));
  }
  template <class T>
  T all_reduce(T value, Reduction op) const {
    all_reduce(std::span<T>(&value, 1), op);
    return value;
  }
  template <class T>
  [[nodiscard]] Request start_all_reduce(std::span<T> values, Reduction op,
                                         const CollectiveOptions& options = {}) const;
  /// The same with any elements and a function of the user's (user_operation() in reduction.hpp).
  template <class T>
  void all_reduce(std::span<T> values, const ElementOperation& op, const CollectiveOptions& options = {}) const {
    wait(start_all_reduce(values, op, options));
  }
  template <class T>
  [[nodiscard]] Request start_all_reduce(std::span<T> values, const ElementOperation& op,
                                         const CollectiveOptions& options = {}) const {
    return start_all_reduce(std::as_writable_bytes(values), sizeof(T), op, options);
  }

  /// In place: block r of about equal blocks (block_of in schedule/schedule.hpp), on rank r, becomes the reduction of all ranks'; the
  /// others are destroyed. Options without `fuse`, which changes nothing here.
  template <class T>
  void reduce_scatter(std::span<T> values, Reduction op, const CollectiveOptions& options = {}) const {
    wait(start_reduce_scatter(values, op, options));
  }
  template <class T>
  [[nodiscard]] Request start_reduce_scatter(std::span<T> values, Reduction op,
                                             const CollectiveOptions& options = {}) const;

  /// In place: rank r gives block r of about equal blocks of `count` elements of `element_bytes`, all get all.
  void all_gather(std::span<std::byte> data, std::size_t element_bytes) const {
    wait(start_all_gather(data, element_bytes));
  }
  [[nodiscard]] Request start_all_gather(std::span<std::byte> data, std::size_t element_bytes) const;
  /// One value of each rank, in the order of ranks, on all ranks.
  std::vector<std::int64_t> all_gather(std::int64_t value) const;

  /// Block i of as many equal blocks as ranks goes to rank i, where it becomes block r. @pre both are of one size, which is a multiple
  /// of size() elements, and don't overlap
  void all_to_all(std::span<const std::byte> input, std::span<std::byte> output, std::size_t element_bytes) const {
    wait(start_all_to_all(input, output, element_bytes));
  }
  [[nodiscard]] Request start_all_to_all(std::span<const std::byte> input, std::span<std::byte> output,
                                         std::size_t element_bytes) const;
  /// Blocks of any sizes, in elements, one after the other: send_counts[i] go to rank i, receive_counts[i] come from it.
  void all_to_all(std::span<const std::byte> input, std::span<const Index> send_counts, std::span<std::byte> output,
                  std::span<const Index> receive_counts, std::size_t element_bytes) const {
    wait(start_all_to_all(input, send_counts, output, receive_counts, element_bytes));
  }
  [[nodiscard]] Request start_all_to_all(std::span<const std::byte> input, std::span<const Index> send_counts,
                                         std::span<std::byte> output, std::span<const Index> receive_counts,
                                         std::size_t element_bytes) const;

  void broadcast(std::span<std::byte> data, int root) const { wait(start_broadcast(data, root)); }
  [[nodiscard]] Request start_broadcast(std::span<std::byte> data, int root) const;
  void broadcast(std::string& text, int root) const;

  void barrier() const { wait(start_barrier()); }
  [[nodiscard]] Request start_barrier() const;

  /// A schedule of the user's (docs/collectives.md), on buffers of the elements that it says. `input` may be empty when it uses none.
  /// It is compiled at each call; persistent() compiles it once.
  [[nodiscard]] Request start(const UserSchedule& schedule, std::span<const std::byte> input,
                              std::span<std::byte> output, const ElementOperation& op, int priority = 0) const;
  void run(const UserSchedule& schedule, std::span<const std::byte> input, std::span<std::byte> output,
           const ElementOperation& op) const {
    wait(start(schedule, input, output, op));
  }

  // --- the same on the same memory again and again ---
  //
  // persistent_… check, plan and allocate what the calls above do, and start nothing. What all ranks must agree on is compared at each
  // start. Not collective.

  /// Options without `fuse`: Unsupported.
  template <class T>
  PersistentCollective persistent_all_reduce(std::span<T> values, Reduction op,
                                             const CollectiveOptions& options = {}) const;
  template <class T>
  PersistentCollective persistent_all_reduce(std::span<T> values, const ElementOperation& op,
                                             const CollectiveOptions& options = {}) const {
    return persistent_all_reduce(std::as_writable_bytes(values), sizeof(T), op, options);
  }
  template <class T>
  PersistentCollective persistent_reduce_scatter(std::span<T> values, Reduction op,
                                                 const CollectiveOptions& options = {}) const;
  PersistentCollective persistent_all_gather(std::span<std::byte> data, std::size_t element_bytes) const;
  PersistentCollective persistent_all_to_all(std::span<const std::byte> input, std::span<std::byte> output,
                                             std::size_t element_bytes) const;
  PersistentCollective persistent_all_to_all(std::span<const std::byte> input, std::span<const Index> send_counts,
                                             std::span<std::byte> output, std::span<const Index> receive_counts,
                                             std::size_t element_bytes) const;
  PersistentCollective persistent_broadcast(std::span<std::byte> data, int root) const;
  PersistentCollective persistent_barrier() const;
  PersistentCollective persistent(const UserSchedule& schedule, std::span<const std::byte> input,
                                  std::span<std::byte> output, const ElementOperation& op, int priority = 0) const;

  /// Collective. From here on `automatic` takes what was measured to be the fastest. Of this communicator only. Throws InvalidArgument
  /// when it was measured on other numbers of ranks or nodes, CommunicationError when ranks give different ones.
  void set_tuning(const Tuning& tuning) const;
  /// Not collective: what is known about each algorithm for so many bytes.
  std::vector<AlgorithmReport> explain_all_reduce(std::size_t bytes, bool reproducible = false) const;

  // --- failing together ---

  /// Not collective: tells every other rank that this one has failed. Returns at once; never throws. Only the first poison that
  /// a rank gives or sees counts. Messages are truncated to 1000 bytes.
  void poison(std::string_view message) const noexcept;
  /// Looks after the other ranks, for those who wait for something else: throws PeerFailed when some rank has poisoned this communicator, or
  /// has died where this rank sees it.
  void check_poison() const;
  /// Collective error check: returns when no rank passes an error. Otherwise the ranks that passed one rethrow their
  /// own, and all the others throw PeerFailed with the lowest failing rank and its message.
  void agree(std::string_view operation, std::exception_ptr local_error) const;

 private:
  Request start_all_reduce(std::span<std::byte> data, std::size_t element_bytes, const ElementOperation& op,
                           const CollectiveOptions& options) const;
  PersistentCollective persistent_all_reduce(std::span<std::byte> data, std::size_t element_bytes,
                                             const ElementOperation& op, const CollectiveOptions& options) const;
  PersistentCollective persistent(detail::Prepared&& collective) const;
  template <class T>
  detail::Prepared prepare_reduce_scatter(std::span<T> values, Reduction op, const CollectiveOptions& options) const;
  detail::Prepared prepare_all_gather(std::span<std::byte> data, std::size_t element_bytes) const;
  detail::Prepared prepare_all_to_all(std::span<const std::byte> input, std::span<std::byte> output,
                                      std::size_t element_bytes) const;
  detail::Prepared prepare_all_to_all(std::span<const std::byte> input, std::span<const Index> send_counts,
                                      std::span<std::byte> output, std::span<const Index> receive_counts,
                                      std::size_t element_bytes) const;
  detail::Prepared prepare_broadcast(std::span<std::byte> data, int root) const;
  detail::Prepared prepare_barrier() const;
  detail::Prepared prepare(const UserSchedule& schedule, std::span<const std::byte> input, std::span<std::byte> output,
                           const ElementOperation& op, int priority) const;

  template <class T>
  friend class PartialAllReduce;

  std::shared_ptr<State> state_;
};

/// Collective. Runs `f` on every rank; when it throws on any, it throws on all (see Communicator::agree). `f` must not
/// communicate.
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
