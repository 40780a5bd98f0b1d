#pragma once
// How one rank's failure reaches ranks that wait for something else.
//
// A board belongs to a communicator made by from_mpi() and to everything that is split from it: a rank that has failed
// cannot take its part in any of them, and whoever waits in a subgroup may wait for somebody who waits, in another
// subgroup, for the failed one. So poison given to any of the family reaches every rank of the root, and each of them
// throws from whatever member of the family it uses next.
//
// Poison, like the question who else waits, travels on a duplicate of its own, as one small message to every other rank, sent
// without waiting: it must work whatever the others are doing. Whoever waits looks for it with MPI_Iprobe now and then (about
// 0.1 µs).
//
// After poison nothing is certain about who waits for what, so nothing is freed that MPI may still touch: the
// communicators of a poisoned family and the requests of the poison itself are leaked by design. Receives, in contrast,
// are cancelled at once, since their buffers die with the exception that is about to be thrown.
#include <mpi.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aloni::comm::detail {

class PoisonBoard {
 public:
  // Far below any MPI's limit for messages that need no receiver.
  static constexpr std::size_t max_message_bytes = 1000;

  /// Takes `comm`, a duplicate made for this board. Nothing else is ever sent on it.
  explicit PoisonBoard(MPI_Comm comm);
  PoisonBoard(const PoisonBoard&) = delete;
  PoisonBoard& operator=(const PoisonBoard&) = delete;
  ~PoisonBoard();

  /// Tells all others; the first poison wins, later ones of this rank are not sent.
  void poison(std::string_view message) noexcept { poison(message, rank_); }
  /// The same, for another rank that can't say it any more.
  void poison(std::string_view message, int failed_rank) noexcept;
  /// Looks for poison from others, and answers their questions.
  void look();
  /// Not collective: asks these ranks whether they look here, as those do who wait. Forgets earlier answers.
  void ask(std::span<const int> ranks);
  /// By rank: has answered since.
  const std::vector<bool>& answered() const { return answered_; }
  /// True after poison() or a look() that found some.
  bool poisoned() const { return failed_rank_ >= 0; }
  /// The rank that failed, counted in the root communicator.
  int failed_rank() const { return failed_rank_; }
  std::string message() const { return std::string(text_.data() + sizeof(int), text_bytes_); }
  MPI_Comm comm() const { return comm_; }

  /// Called once, when poison becomes known: takes all memory back that others might still write.
  void when_poisoned(std::function<void()> f) { when_poisoned_ = std::move(f); }

 private:
  void become_poisoned(int rank) noexcept;

  MPI_Comm comm_;
  int rank_ = 0;
  int failed_rank_ = -1;
  // The failed rank, then the text. Never resized: MPI may read or write them as long as the process lives.
  std::vector<char> text_;
  std::size_t text_bytes_ = 0;
  std::vector<MPI_Request> requests_;
  std::vector<bool> answered_;
  std::function<void()> when_poisoned_;
};

}  // namespace aloni::comm::detail
