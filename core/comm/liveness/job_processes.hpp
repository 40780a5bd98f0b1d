#pragma once
// The processes of this job on this machine, as the launcher's environment variables name them. For failures while MPI
// starts or ends: then no rank knows the others yet, or no longer.
#include <string>
#include <string_view>
#include <vector>

namespace aloni::comm::detail {

struct JobProcess {
  int rank = -1;  ///< in MPI_COMM_WORLD
  int process = -1;
  char state = '?';       ///< the kernel's letter: R running, S sleeping, D waiting for a disk, T stopped, Z ended
  bool informed = false;  ///< mark_as_informed()
  bool telling = false;   ///< informed, and the one to print the failure, unless a lower rank is
};

inline bool is_stopped(char state) { return state == 'T' || state == 't'; }

/// "is stopped", "runs", "waits for a disk", "sleeps".
std::string_view text_of_state(char state);

/// A process without rank, by the text of its file /proc/PID/stat. Pure.
JobProcess process_in_stat(int process, std::string_view text);

/// State of a process as the kernel's letter; '?' if there is none.
char state_of_process(int process);

/// Marks this process for the others on this machine, by its name: it has learnt of a failure, so its end is none.
/// `telling`: it is about to print the failure. For programs, not for libraries.
void mark_as_informed(bool telling);

class JobProcesses {
 public:
  /// Reads PMIX_NAMESPACE and PMIX_RANK of this process, which Open MPI and Slurm set.
  JobProcesses();

  /// Whether the launcher says to which job this process belongs. Otherwise all lists are empty.
  bool known() const { return !job_.empty(); }
  /// Processes of the job on this machine that have not ended, by rank, with this process. Reads /proc: milliseconds.
  std::vector<JobProcess> alive() const;

 private:
  std::string job_;
};

}  // namespace aloni::comm::detail
