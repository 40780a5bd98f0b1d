#pragma once
// PoisonBoard: announces the failure of one rank to all ranks of a family.
//
// A board belongs to a whole family: a communicator made by from_mpi() and all communicators split from it. A failed
// rank cannot take part in any of them. A rank may also wait indirectly for the failed rank, through a rank that waits
// in another subgroup. So poison of any communicator of the family reaches every rank of the root communicator. Each
// rank throws from the next communicator of the family that it uses.
//
// Poison is one small message to every other rank, on a duplicate communicator of its own. It is sent without waiting,
// because the other ranks may be in any operation. The question whether a rank waits uses the same duplicate. Waiting
// ranks look for messages with MPI_Iprobe from time to time (about 0.1 µs).
//
// No send blocks. MPI keeps short messages for a rank that does not receive, but its memory for them is limited. Once
// it is full, a blocking send to a stopped rank waits for ever. So each rank has at most one question and one answer on
// the way to each other rank.
//
// After poison the state of other ranks is unknown. So memory and objects that MPI may still use are not freed: the
// communicators of a poisoned family and the requests of the poison are leaked by design. Receives are cancelled at
// once, because their buffers end with the exception that is about to be thrown.
#include <mpi.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aloni::comm::detail {

/// Whether any board of this process has been poisoned. Thread-safe.
bool any_family_failed() noexcept;

class PoisonBoard {
 public:
  // Far below the eager limit of any MPI, up to which a send needs no matching receive.
  static constexpr std::size_t max_message_bytes = 1000;

  /// Takes ownership of `comm`, a duplicate made for this board only.
  explicit PoisonBoard(MPI_Comm comm);
  PoisonBoard(const PoisonBoard&) = delete;
  PoisonBoard& operator=(const PoisonBoard&) = delete;
  ~PoisonBoard();

  /// Announces to all other ranks that this rank failed. Does nothing if the board is already poisoned.
  void poison(std::string_view message) noexcept { poison(message, rank_); }
  /// Announces the failure of another rank.
  void poison(std::string_view message, int failed_rank) noexcept;
  /// Takes over poison that came on another way. Does nothing if the board is already poisoned.
  void hear(std::string_view message, int failed_rank) noexcept;
  /// Receives poison and answers from other ranks, and answers their questions.
  void look();
  /// Asks `ranks` whether they wait; waiting ranks answer in look(). They also say which other ranks of their node do
  /// not work. Discards earlier answers. Does not wait, and asks a rank again only if it has received the last
  /// question. Not collective.
  void ask(std::span<const int> ranks);
  /// For each rank, whether it has answered since the last ask().
  const std::vector<bool>& answered() const { return answered_; }
  /// Ranks that do not work, by the answers since the last ask().
  const std::vector<int>& stuck() const { return stuck_; }
  /// Sets the function that returns the ranks of this node that neither wait nor work.
  void when_asked(std::function<std::vector<int>()> f) { when_asked_ = std::move(f); }
  /// True after poison(), or after look() has received poison.
  bool poisoned() const { return failed_rank_ >= 0; }
  /// The failed rank in the root communicator.
  int failed_rank() const { return failed_rank_; }
  std::string message() const { return std::string(text_.data() + sizeof(int), text_bytes_); }
  MPI_Comm comm() const { return comm_; }

  /// Sets a function that is called once, when poison becomes known. It takes back all memory that other ranks might
  /// still write.
  void when_poisoned(std::function<void()> f) { when_poisoned_ = std::move(f); }

 private:
  /// The last question or answer to a rank.
  struct Word {
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<int> values;
  };

  /// Sends the word, unless the one before is still on its way.
  void send(Word& word, std::span<const int> values, int rank, int tag);
  void write(std::string_view message, int failed_rank) noexcept;
  void become_poisoned(int rank) noexcept;

  MPI_Comm comm_;
  int rank_ = 0;
  int failed_rank_ = -1;
  // The failed rank, then the text. Never resized, because MPI may use the memory until the process ends.
  std::vector<char> text_;
  std::size_t text_bytes_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<Word> questions_, answers_;  // by rank
  std::vector<bool> answered_;
  std::vector<int> stuck_;
  std::function<void()> when_poisoned_;
  std::function<std::vector<int>()> when_asked_;
};

}  // namespace aloni::comm::detail
