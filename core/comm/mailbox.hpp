#pragma once
// Mailbox: messages that their receiver does not expect (active messages). Each has a kind, and each rank a handler for
// each kind. For programs without a common order of steps, for example task graphs.
//
//   Mailbox mailbox(comm, "tiles");                                   // collective
//   mailbox.handle(wish, sizeof(Wish), [&](const Mail& mail) {        // a request from any rank
//     mailbox.send(mail.source, answer, bytes_of(key), tile, [&] { free_again(tile); });
//   });
//   mailbox.handle(answer, sizeof(Key), [&](const Mail& mail) {
//     mailbox.receive(mail, room.subspan(0, mail.data_bytes), [&] { arrived(room); });
//   });
//   while (!finished) mailbox.progress(true);                         // calls the handlers
//   mailbox.wait();                                                   // everything of this rank has left
//
// Use Communicator::send and receive where the receiver knows which message comes next, and collectives where all ranks
// take part.
//
// A mail has a small head and data of any size. The head is copied, and arrives before its handler is called. The
// receiver learns the size of the data from the mail, provides the memory, and then receives them. Data of at most
// inline_bytes travel with the head. In shared memory the receiver copies longer data out of the sender's memory if
// they lie in Communicator::shared_memory(). Otherwise they travel in fragments. All this is the engine's work
// (docs/collectives.md), as are checksums and flow control.
//
// Mails have no order, also between two ranks. They never meet other messages of the communicator.
//
// Exceptions. CommunicationError on a rank that gets a mail without a handler or of another size than its handler's; it
// poisons the family before it is thrown. Exceptions of handlers leave progress(); CommunicationError among them
// poisons the family too. PeerFailed from every function once the family is poisoned, for example by the death of a
// rank: progress() looks for it. Afterwards the mailbox can only be destroyed; the memory of its sends and receives
// belongs to the caller again.
//
// Threads. As with a communicator, one thread at a time uses a family. For a thread of its own, make the mailbox on a
// family of its own: comm::from_mpi(…). Such a thread calls MPI: see check_thread().
#include <aloni/core/comm/communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>

namespace aloni::comm {

/// A mail that has arrived. A copy identifies the data for receive(), also after the handler has returned.
struct Mail {
  int source = -1;  ///< its sender, a rank of the communicator
  int kind = 0;
  std::uint32_t number = 0;         ///< unique among the mails of one kind and source that are on the way
  std::span<const std::byte> head;  ///< valid until the handler returns
  std::size_t data_bytes = 0;       ///< 0: without data, nothing to receive
};

class Mailbox {
 public:
  static constexpr int max_kind = 255;
  static constexpr std::size_t max_head_bytes = std::size_t{64} << 10;
  /// Data up to this size are copied into the message of the head.
  static constexpr std::size_t inline_bytes = 4096;
  /// Bytes that precede each head on the way.
  static constexpr std::size_t prefix_bytes = 16;
  static constexpr std::size_t any_size = std::numeric_limits<std::size_t>::max();

  using Handler = std::function<void(const Mail&)>;
  using Done = std::function<void()>;

  /// Splits a communicator for its messages. `name`: for error texts. Collective.
  Mailbox(const Communicator& comm, std::string name);
  /// Local. If mails of this rank have not left, or were not received, it poisons the family.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  int rank() const;
  int size() const;
  /// Rank of `peer` in the communicator that from_mpi() returned, as PeerFailed names it. @pre 0 ≤ peer < size()
  int root_rank(int peer) const;

  /// Sets the handler of a kind: on each rank that may get such a mail, before it calls progress(). Heads have
  /// `head_bytes` bytes. Handlers may send and receive, but make no progress. Local.
  /// @pre 0 ≤ kind ≤ max_kind, head_bytes ≤ max_head_bytes or any_size. Throws InvalidArgument.
  void handle(int kind, std::size_t head_bytes, Handler handler);

  /// Sends a mail to `peer`, which may be this rank. Local; returns at once. `head` is copied. `data` belong to the
  /// mailbox until progress() has called `done`; without `done`, until idle().
  /// A send completes as Communicator::send does. MessageOptions::on_device is not supported.
  /// @pre 0 ≤ peer < size(), 0 ≤ kind ≤ max_kind, head.size() ≤ max_head_bytes. Throws InvalidArgument.
  void send(int peer, int kind, std::span<const std::byte> head, std::span<const std::byte> data = {}, Done done = {},
            const MessageOptions& options = {});
  /// Receives the data of a mail, once. Local; returns at once. `data` belong to the mailbox until progress() has
  /// called `done`. @pre the mail has data and they were not received, data.size() == mail.data_bytes. Throws
  /// InvalidArgument, CommunicationError.
  void receive(const Mail& mail, std::span<std::byte> data, Done done, const MessageOptions& options = {});

  /// Makes progress without waiting, and calls the handlers and `done` functions that are due, on this thread. Returns
  /// whether there was any work. `waits`: this rank can do nothing until a mail comes, so the limits of time of
  /// TransportOptions hold. Call it every few milliseconds, otherwise dead ranks are found late.
  bool progress(bool waits);
  /// Whether all sends and receives of this rank are complete. Then its mails arrive even if it makes no more progress.
  bool idle() const;
  /// Makes progress until idle(). Yields the core. Not collective.
  void wait();

  /// Throws Unsupported if MPI does not allow calls from this thread.
  void check_thread() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace aloni::comm
