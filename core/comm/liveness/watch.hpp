#pragma once
// Watch: detects failures of ranks on this node, and knows which of them wait. Each rank watches the processes of its
// node through process handles (pidfd). It sees the end of a process at once, independently of the launcher. Each rank
// also publishes in a shared page the events for which it waits. Other ranks read the page to find the rank that
// failed.
#include <aloni/core/comm/shared_heap.hpp>
#include <aloni/core/comm/transport/gather_bytes.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace aloni::comm::detail {

class Watch {
 public:
  using Clock = std::chrono::steady_clock;  // the same for all processes of a machine

  /// A failed rank and the reason.
  struct Verdict {
    int rank = -1;  ///< in the root communicator
    std::string what;
  };

  /// `ranks`: the ranks of the node, ascending. `rank`: this rank. Collective over the node.
  Watch(int rank, const std::vector<int>& ranks, const GatherBytes& all_gather);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  /// Leaves: afterwards the end of this process is no failure.
  ~Watch();

  /// A rank whose process ended without leaving, if any. One system call per 64 ranks.
  std::optional<Verdict> dead() const;
  /// Publishes that this rank waits. `text`: the events that it waits for.
  void waiting(Clock::time_point now, const std::string& text);
  /// Publishes that the family is poisoned: the failed rank in the root communicator and its message.
  void fail(int rank, const std::string& what);
  /// The failure that another rank of the node has published by fail(), even if its process has ended since. Of several
  /// failures the first one by time.
  std::optional<Verdict> failure() const;
  /// True for one rank of the node: it reports the failure for all.
  bool claim_report();
  /// True for one rank of the node within `pause`.
  bool claim_warning(Clock::time_point now, Clock::duration pause);
  /// Where the engine notes its latest operation (Engine::set_journal).
  std::atomic<std::uint64_t>& last_start();
  /// This thread's use of the processor is no work: it only makes progress.
  void leave_out_this_thread();
  /// Whether this rank can read the shared page of another rank.
  bool sees(int rank) const { return peer(rank) && peer(rank)->page; }
  /// Whether a rank of this node is known not to wait.
  bool idle(int rank, Clock::time_point now) const;
  /// Whether a rank of this node that does not wait uses the processor or waits for a disk. `since`: the beginning of
  /// this rank's wait. True for the first two seconds of questions with one `since`, which measure the use.
  bool works(int rank, Clock::time_point now, Clock::time_point since);
  /// Ranks of the node that neither wait nor have left.
  std::vector<int> idle_ranks(Clock::time_point now) const;
  /// The state of a rank, as text for error messages; empty for ranks of other nodes.
  std::string state_of(int rank, Clock::time_point now) const;

 private:
  struct Page;
  struct Peer {
    int rank = -1, process = -1, handle = -1;
    std::unique_ptr<SharedSegment> segment;
    Page* page = nullptr;                      ///< null: this rank cannot reach its memory
    Clock::time_point since, first, measured;  ///< works(): argument, first question, latest measurement
    std::int64_t ticks = 0;                    ///< use of the processor at the latest measurement
    bool works = true;                         ///< its result

    ~Peer();
  };

  Peer* peer(int rank) const;
  static std::string last_start_of(const Page& page);
  static bool is_waiting(const Page& page, Clock::time_point now);

  int rank_;
  SharedSegment own_;
  Page* page_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

/// "2.5 s"
std::string seconds_text(Watch::Clock::duration time);

}  // namespace aloni::comm::detail
