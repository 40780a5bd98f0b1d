#pragma once
// Engine: runs messages and programs over transports. It matches fragments with receives, compares contracts, splits
// large data into fragments and parts, and works in the order of priority.
//
//   Engine engine(rank, routes, memory);
//   Engine::Context& c = engine.add_context(id, root_ranks);
//   Engine::Handle h = engine.start(c, call);
//   while (!engine.test(h)) engine.progress();
//
// It uses neither MPI nor clocks. Transports deliver messages; the owner calls progress(). Failures (contract, size,
// transport) are thrown by progress(), start(), send() or receive(). After a failure, abandon the transports and
// destroy the engine.
//
// Flow control: a send completes once at most run_ahead_bytes() to its peer remain unacknowledged. The data beyond this
// limit are transferred without delay; only the completion waits. This bounds the peer's memory for early messages.
//
// An operation allocates nothing if an operation of the same form has run before.
#include <aloni/core/comm/engine/match_table.hpp>
#include <aloni/core/comm/engine/program.hpp>
#include <aloni/core/comm/engine/reducer.hpp>
#include <aloni/core/comm/transport.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace aloni::comm::detail {

class Engine final : private Transport::Sink {
 public:
  /// A pending operation. Spent when test() has returned true for it.
  struct Handle {
    std::uint32_t slot = 0, generation = 0;
  };

  /// A mail that has begun to arrive.
  struct Mail {
    int peer = -1;  ///< its sender in the group
    std::uint32_t kind = 0, number = 0;
    std::size_t bytes = 0;
  };
  /// The two messages of a mail. Their receiver learns the head; it knows the size of the data from the head.
  enum class MailPart : std::uint8_t { head, data };

  /// A group of ranks with its own numbering of operations.
  struct Context {
    std::uint32_t id = 0;
    std::vector<int> root_ranks;
    int rank = 0;  ///< this process in the group
    std::uint32_t next_operation = 0;
    std::array<Contract, 64> recent{};  ///< contracts of the latest operations
    MatchTable numbers;                 ///< next message number for each peer and tag
    /// The next operation is fused, and begins with this member; no kind but all_reduce: not known yet.
    Contract fused_next{};
    std::deque<Mail> mails;  ///< heads that have begun to arrive and are not taken

    int rank_of(int root_rank) const;  ///< -1 if it does not belong to the group
    int root_of(int rank_in_group) const { return root_ranks[static_cast<std::size_t>(rank_in_group)]; }
  };

  /// A collective operation. Programs and buffers stay valid until it is complete.
  struct Call {
    const char* name = "";  ///< for error texts
    Contract contract{};
    const Program* whole = nullptr;  ///< program of all parts but the last
    const Program* last = nullptr;   ///< program of the last part
    std::uint32_t parts = 1;
    Index part_elements = 0;  ///< part i starts at element i * part_elements of the buffers
    const void* input = nullptr;
    void* output = nullptr;
    ElementOperation operation{};
    int priority = 0;                        ///< greater values run first
    std::shared_ptr<const void> owner = {};  ///< keeps the programs alive
    /// Local work after the collective: f(output, target, first, elements, scale).
    struct Finish {
      void (*f)(void* output, void* target, std::size_t first, std::size_t elements, double scale) = nullptr;
      void* target = nullptr;
      std::size_t first = 0, elements = 0;
      double scale = 1;
      std::shared_ptr<void> owner = nullptr;  ///< keeps temporary memory alive until then

      void operator()(void* output) const {
        if (f) f(output, target, first, elements, scale);
      }
    };
    Finish finish = {};
  };

  /// Messages and bytes to and from one peer.
  struct Traffic {
    TrafficCounters messages, collectives;
  };

  /// `routes[r]`: transport to rank r, not null. `memory`: for the buffers of operations. Both must outlive the engine.
  Engine(int rank, std::vector<Transport*> routes, std::pmr::memory_resource& memory);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() override;

  Context& add_context(std::uint32_t id, std::vector<int> root_ranks);
  void remove_context(Context& context);

  Handle send(Context& c, std::span<const std::byte> data, int peer, int tag, const MessageOptions& options = {});
  Handle receive(Context& c, std::span<std::byte> data, int peer, int tag, const MessageOptions& options = {});
  /// Collective over the context: all its ranks start the same operations in the same order.
  Handle start(Context& c, Call call);
  /// Says that the next operation of the context will be fused and begins with `member`. Messages of another operation
  /// are then a mismatch, also before start(). The next start() ends this.
  void expect_fused(Context& c, const Contract& member);

  /// A transfer, with a numbering of messages of its own. `number`: equal on all ranks, unique in the context.
  /// `types`: the element type and `plan` of its contract. `name`: for error texts; valid until remove_transfer().
  std::uint32_t add_transfer(Context& c, std::uint32_t number, const Contract& types, const char* name);
  void remove_transfer(std::uint32_t transfer);
  /// Begins the next round: all ranks of the transfer begin the same rounds in the same order.
  void begin_round(std::uint32_t transfer, TransferDirection direction);
  /// A message of the current round. `kind` is 0 or 1: a rank sends one message of a kind to another in each round.
  Handle send(std::uint32_t transfer, std::span<const std::byte> data, int peer, std::uint32_t kind,
              const MessageOptions& options = {});
  Handle receive(std::uint32_t transfer, std::span<std::byte> data, int peer, std::uint32_t kind,
                 const MessageOptions& options = {});

  /// A part of a mail. `number`: unique among the mails of this kind from this rank to `peer` that are on the way.
  Handle send_mail(Context& c, std::span<const std::byte> data, int peer, std::uint32_t kind, std::uint32_t number,
                   MailPart part, const MessageOptions& options = {});
  /// The next mail whose head has begun to arrive, in the order of arrival; each once. Makes no progress.
  std::optional<Mail> next_mail(Context& c);
  /// Receives a part of a mail. The head: with the bytes of next_mail(). The data may arrive before their receive.
  /// `name`: for error texts; valid until the message is complete.
  Handle receive_mail(Context& c, std::span<std::byte> data, int peer, std::uint32_t kind, std::uint32_t number,
                      MailPart part, const char* name, const MessageOptions& options = {});

  /// A pending operation that the caller completes by finish().
  Handle make_handle() {
    const std::uint32_t i = add_pending();
    return {i, pending_[i].generation};
  }
  void finish(Handle h) { finish_pending(h.slot); }
  /// Whether the operation is complete; then the handle is spent. Makes no progress.
  bool test(Handle h);
  bool spent(Handle h) const { return pending_[h.slot].generation != h.generation; }
  /// Makes progress without waiting: at most one large piece of work. Returns whether there was any work.
  bool progress();

  /// Counts the progress of pending operations. Fragments that arrive before their receive do not count.
  std::uint64_t advances() const { return advances_; }
  /// Whether any operation is pending.
  bool busy() const { return pending_.free.size() < pending_.all.size(); }
  /// Whether all messages of complete operations arrive even if this rank never makes progress again.
  bool flushed() {
    bool all = owed_.empty();
    for (Transport* const t : transports_) all &= t->flushed();
    return all;
  }

  /// Whether payloads carry checksums, which receivers verify. Equal on all ranks.
  void set_checksums(bool on) { checksums_ = on; }
  bool checksums() const { return checksums_; }
  std::size_t max_fragment_bytes() const { return max_fragment_bytes_; }
  void set_max_fragment_bytes(std::size_t bytes) { max_fragment_bytes_ = bytes; }
  /// Limit of unacknowledged bytes to each peer (see above). Equal on all ranks.
  std::size_t run_ahead_bytes() const { return run_ahead_bytes_; }
  void set_run_ahead_bytes(std::size_t bytes) { run_ahead_bytes_ = bytes; }
  const std::vector<Traffic>& traffic() const { return traffic_; }
  /// Adds bytes to the traffic: copies by the peer from this rank's memory, or by this rank from the peer's.
  void count_direct(int peer, std::size_t bytes_sent, std::size_t bytes_received) {
    TrafficCounters& t = traffic_[static_cast<std::size_t>(peer)].messages;
    t.bytes_sent += bytes_sent;
    t.bytes_received += bytes_received;
  }
  const std::vector<Transport*>& routes() const { return routes_; }
  Transport& route(int peer) { return *routes_[static_cast<std::size_t>(peer)]; }
  /// Sends this rank's contract to each rank from which it expects a message of a collective. A rank in a different
  /// operation then finds the mismatch, even if both ranks wait for each other's first message. For long waits.
  /// Between begin_wait() and end_wait() it also finds two ranks that wait for each other. Each of them needs a message
  /// of an operation that the other has not started. The other cannot start it before its own wait ends. progress()
  /// then throws CommunicationError.
  void compare_notes();
  /// Where start() notes the latest operation, for other ranks to read: (1 + kind) << 32 | number in its context.
  void set_journal(std::atomic<std::uint64_t>* journal) { journal_ = journal; }
  /// This rank starts nothing until `h` is complete.
  void begin_wait(Handle h) {
    wait_ = h;
    ++waits_;
    waits_now_ = true;
  }
  void end_wait() { waits_now_ = false; }
  /// The events that pending operations wait for, as one line of text.
  std::string waiting_for() const;
  /// Ranks of the root communicator that pending messages wait for, each once.
  std::vector<int> ranks_waited_for() const;

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  struct Pending {
    std::uint32_t generation = 0;
    bool done = false;
  };
  struct Outgoing {
    int peer = -1;  // -1: free
    MessageKey key;
    Contract contract;
    const std::byte* data = nullptr;
    std::size_t bytes = 0, next = 0, unit = 1;
    std::uint32_t in_use = 0;  // fragments that the transport still reads
    bool begun = false;
    std::uint64_t end = 0;  // Credit::sent after its last fragment
    int priority = 0;
    std::uint32_t part = none, pending = none;  // the part or handle that this message completes
    int instruction = -1;
    bool on_device = false;
  };
  struct Incoming {
    int peer = -1;
    MessageKey key;
    Contract contract;
    Context* context = nullptr;  // null: free
    const char* name = "";
    std::byte* to = nullptr;
    std::size_t bytes = 0, got = 0;
    enum class Mode : std::uint8_t { undecided, plain, fused } mode = Mode::undecided;
    int priority = 0;
    std::uint32_t part = none, pending = none;
    int instruction = -1;
    bool on_device = false;
  };
  struct Stored {  // a fragment that arrived before its receive was posted
    Transport::Fragment fragment;
    std::vector<std::byte> copy;
    std::uint32_t next = none;
    bool free = true;
  };
  struct Fetch {
    std::uint32_t incoming = none;
    std::uint32_t checksum = 0;
    std::size_t offset = 0, bytes = 0;
  };
  struct Transfer {
    Context* context = nullptr;  // null: free
    const char* name = "";
    std::uint32_t number = 0, rounds = 0;
    Contract contract;                                  // of the current round
    std::array<TransferDirection, 64> directions = {};  // of the latest rounds
  };
  struct Operation {
    Call call;
    Context* context = nullptr;  // null: free
    std::uint32_t number = 0, next_part = 0, finished_parts = 0, pending = none;
  };
  struct Part {
    std::uint32_t operation = none, number = 0;
    const Program* program = nullptr;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::byte* scratch = nullptr;
    std::size_t scratch_bytes = 0;
    std::vector<std::uint16_t> waiting;
    std::size_t left = 0;
    SharedAddress own;                   // memory that this rank exposes
    std::vector<SharedAddress> exposed;  // memory that the other ranks expose
  };
  struct Work {
    int priority;
    std::uint64_t order;
    std::uint32_t slot;  // slot of a part, or of an incoming message
    int instruction;     // of the part; -1: consume the fragment
    Transport::Fragment fragment;

    /// Order of the heap: highest priority on top; among equals, the oldest.
    static bool later(const Work& a, const Work& b) {
      return a.priority != b.priority ? a.priority < b.priority : a.order > b.order;
    }
  };

  // Flow control with one peer, in charged bytes.
  struct Credit {
    std::uint64_t sent = 0, consumed_there = 0;  // sent to the peer; acknowledged by the peer
    std::uint64_t consumed = 0, announced = 0;   // consumed from the peer; acknowledged to the peer
  };

  // A pool of reused slots. References stay valid.
  template <class T>
  struct Slots {
    std::deque<T> all;
    std::vector<std::uint32_t> free;

    std::uint32_t take() {
      if (free.empty()) {
        all.emplace_back();
        return static_cast<std::uint32_t>(all.size() - 1);
      }
      const std::uint32_t i = free.back();
      free.pop_back();
      return i;
    }
    T& operator[](std::uint32_t i) { return all[i]; }
    const T& operator[](std::uint32_t i) const { return all[i]; }
  };

  void arrived(const Transport::Fragment& fragment) override;
  void sent(std::uint32_t ticket) override;
  void fetched(std::uint32_t ticket) override;

  std::uint32_t add_pending();
  void finish_pending(std::uint32_t i) { pending_[i].done = true; }
  Context* context_of(std::uint32_t id);
  std::uint32_t next_number(Context& c, int peer, int tag, bool is_send);

  Handle send(Context& c, std::span<const std::byte> data, const MessageKey& key, const Contract& contract, int peer,
              const MessageOptions& options);
  Handle receive(Context& c, std::span<std::byte> data, const MessageKey& key, const Contract& contract,
                 const char* name, int peer, const MessageOptions& options);
  static MessageKey key_of(const Transfer& t, std::uint32_t kind);
  static void note_mail(Context& c, const Transport::Fragment& fragment);
  /// Drops early fragments that no receive has taken.
  template <class F>
  void drop_stored(F&& which);

  bool carries_address(std::uint32_t part, int instruction) const;
  void post(std::uint32_t outgoing);
  bool push(std::uint32_t outgoing);
  void all_left(std::uint32_t outgoing);
  void finish_outgoing(std::uint32_t i);
  void consumed(int peer, std::size_t bytes);
  bool send_credit(int peer);
  void on_credit(int peer, std::uint64_t consumed);
  void post_incoming(std::uint32_t i);
  void store(const Transport::Fragment& fragment, std::uint32_t* list);
  void take(std::uint32_t incoming, const Transport::Fragment& fragment);
  void consume(std::uint32_t incoming, const Transport::Fragment& fragment);
  void absorb(Incoming& m, std::size_t offset, const std::byte* data, std::size_t bytes);
  void landed(std::uint32_t incoming, std::size_t bytes);
  void check(const Incoming& m, const Transport::Fragment& fragment) const;
  void check_sum(const Incoming& m, const std::byte* data, std::size_t bytes, std::uint32_t checksum) const;
  void check_early(const Transport::Fragment& fragment);
  void check_early_transfer(const Transport::Fragment& fragment);
  bool needed_by_wait(const Incoming& m) const;
  bool not_started(const MessageKey& key, int peer);
  void tell_wait(const Incoming& m, std::uint32_t waits, bool answer);
  void on_wait(const Transport::Fragment& fragment);
  static void check_fused_next(const Context& c, const Transport::Fragment& fragment);
  [[noreturn]] static void mismatch(const char* name, const Context& c, int peer, const Contract& theirs,
                                    const Contract& ours);

  void start_part(std::uint32_t operation);
  void finish_part(std::uint32_t part);
  void drain();
  void execute(std::uint32_t part, int instruction);
  void run(std::uint32_t part, int instruction);
  void complete(std::uint32_t part, int instruction);
  std::byte* address(const Part& p, const Region& r) const;
  void defer(Work work);

  int rank_;
  std::vector<Transport*> routes_, transports_;
  std::pmr::memory_resource& memory_;
  std::size_t max_fragment_bytes_;
  std::size_t run_ahead_bytes_;
  bool checksums_ = false;
  std::vector<Traffic> traffic_;
  std::vector<Credit> credits_;
  std::vector<int> owed_;  // peers that are due an acknowledgement

  std::vector<std::unique_ptr<Context>> contexts_;
  MatchTable table_;
  Slots<Pending> pending_;
  Slots<Outgoing> outgoing_;
  Slots<Incoming> incoming_;
  Slots<Stored> stored_;
  std::size_t num_stored_ = 0;
  Slots<Fetch> fetches_;
  Slots<Operation> operations_;
  Slots<Transfer> transfers_;
  MatchTable transfers_by_number_;
  Slots<Part> parts_;
  std::vector<std::uint32_t> blocked_, retried_;  // outgoing messages that the transport refused (no_room)
  std::vector<std::uint32_t> ahead_;              // outgoing messages that have left and wait for credit
  std::vector<std::pair<std::uint32_t, int>> ready_;
  std::vector<Work> work_;  // a heap
  std::uint64_t order_ = 0, advances_ = 0;
  Handle wait_;
  std::uint32_t waits_ = 0;  // number of waits so far
  bool waits_now_ = false;
  std::vector<std::byte*> operands_;
  std::atomic<std::uint64_t>* journal_ = nullptr;
};

}  // namespace aloni::comm::detail
