#pragma once
// Watch: detects failures of ranks on this node, and knows which of them wait. Each rank watches the processes of its
// node through process handles (pidfd). It sees the end of a process at once, independently of the launcher. Each rank
// also publishes in a shared page what it waits for. Other ranks read the page to find the rank that failed.
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
  /// Whether a rank of this node is known not to wait.
  bool idle(int rank, Clock::time_point now) const;
  /// Ranks of the node that neither wait nor have left.
  std::vector<int> idle_ranks(Clock::time_point now) const;
  /// What a rank does, as text for error messages; empty for ranks of other nodes.
  std::string state_of(int rank, Clock::time_point now) const;

 private:
  struct Page;
  struct Peer {
    int rank = -1, process = -1, handle = -1;
    std::unique_ptr<SharedSegment> segment;
    const Page* page = nullptr;  ///< null: this rank cannot reach its memory

    ~Peer();
  };

  const Peer* peer(int rank) const;
  static bool is_waiting(const Page& page, Clock::time_point now);

  int rank_;
  SharedSegment own_;
  Page* page_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

/// "2.5 s"
std::string seconds_text(Watch::Clock::duration time);

}  // namespace aloni::comm::detail
