#pragma once
// PhaseWatch: while MPI starts or ends, no rank can ask another one. A thread looks at the processes of the job on this
// machine. If one ends or is stopped and MPI goes on waiting, the thread of one rank says so and ends its process. The
// other ranks see that this rank is informed (mark_as_informed()), and end without a word.
#include <aloni/core/comm/liveness/job_processes.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace aloni::tools {

enum class Phase : std::uint8_t { start, end };

class PhaseWatch {
 public:
  /// `code`: the exit code of this process after a failure; at the end other than 0 if a failure has been told before.
  /// `stuck_after`: how long a rank may be stopped; 0: for ever.
  PhaseWatch(Phase phase, int code, std::chrono::seconds stuck_after);
  PhaseWatch(const PhaseWatch&) = delete;
  PhaseWatch& operator=(const PhaseWatch&) = delete;
  /// The phase is over.
  ~PhaseWatch();

  /// The launcher is ending the job: a process that has ended is given less time. For signal handlers.
  static void hurry();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Seen;

  void look();
  bool wait(std::vector<Seen>& seen, std::chrono::milliseconds pause) const;
  void accuse(std::vector<Seen>& seen, TimePoint begin) const;
  void tell(const comm::detail::JobProcess& culprit, const char* what) const;

  Phase phase_;
  int code_;
  std::chrono::seconds stuck_after_;
  comm::detail::JobProcesses processes_;
  int ranks_here_;  // of the job, if all of them are on this machine; otherwise 0
  int wake_;        // becomes readable when the phase is over; -1: no descriptor was free
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// Marks this process as informed. True if this process is the one on this machine that prints the failure of a rank.
/// Two ranks that ask at the same moment get different answers.
bool claim_failure();

/// Waits until the other ranks on this machine can have seen that this one is informed.
void inform_others();

}  // namespace aloni::tools
