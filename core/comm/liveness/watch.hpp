#pragma once
// Who of this node is alive, and what the others wait for. Each rank watches the processes of its node through process handles
// (pidfd), so that a death is seen at once whatever the launcher does about it, and publishes what it waits for in a page
// that the others of the node read when they have to say who is to blame.
#include <aloni/core/comm/shared_heap.hpp>
#include <aloni/core/comm/transport/all_gather.hpp>

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
  using Clock = std::chrono::steady_clock;  // one for all processes of a machine

  /// Somebody to blame.
  struct Verdict {
    int rank = -1;  ///< of the root communicator
    std::string what;
  };

  /// Collective over the node: `ranks` are its ranks, ascending, `rank` the caller's.
  Watch(int rank, const std::vector<int>& ranks, const AllGather& all_gather);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  /// Leaves: from here on the end of this process is no failure.
  ~Watch();

  /// A rank whose process has ended without leaving. One system call.
  std::optional<Verdict> dead() const;
  /// This rank waits, and is looking.
  void waiting(Clock::time_point now, const std::string& text);
  /// Whether that rank of the node is seen not to wait.
  bool idle(int rank, Clock::time_point now) const;
  /// Ranks of the node that neither wait nor have left.
  std::vector<int> idle_ranks(Clock::time_point now) const;
  /// What a rank does, for people; empty when it is on another node.
  std::string state_of(int rank, Clock::time_point now) const;

 private:
  struct Page;
  struct Peer {
    int rank = -1, process = -1, handle = -1;
    std::unique_ptr<SharedSegment> segment;
    const Page* page = nullptr;  ///< null: its memory can't be reached

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
