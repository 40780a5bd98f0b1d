#pragma once
// Ends the command, alone or on all ranks together. All ranks return the same exit code. At most one rank prints an
// error line, and no rank keeps waiting for a failed one.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/transport_options.hpp>

#include <functional>
#include <stdexcept>
#include <string>

namespace aloni::tools {

/// Exit codes of the command.
enum ExitCode : int {
  success = 0,
  failure = 1,      ///< a failure of a file, memory, the network or another rank
  wrong_usage = 2,  ///< an error in the request: a flag, a value, a strategy
  stopped = 3,      ///< a signal has stopped the training; its checkpoint is whole
};

/// An error in the command line. `what()` is one line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The work has stopped as the user asked, before its end. `what()` is one line. Thrown on all ranks.
class Stopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws UsageError: "--batch = 0: expected …". Control characters of the value become escapes.
[[noreturn]] void refuse(const char* option, const std::string& value, const std::string& expectation);

/// Runs `work` in this process, without MPI. Returns the exit code. If `work` throws, prints "aloni: …" to stderr.
int run_alone(const std::function<void()>& work);

/// Runs `work` on every rank, with a communicator of all ranks. Returns the exit code, equal on all ranks.
/// If `work` throws, one rank prints "aloni: …" to stderr: the lowest rank with an error of its own, not a PeerFailed.
/// A rank that failed alone poisons the communicator. It then waits four seconds for the outcomes of the others. A rank
/// that throws because of another rank waits one second. If outcomes are missing after that, it aborts the job with the
/// exit code. If a rank ends or is stopped, one rank of each node prints the number of that rank.
/// `options`: of that communicator. Calls `leaving` with the exit code before the communicator ends. After that no rank
/// looks for failed ranks any more.
/// Collective over all ranks of the job, once per program.
int run_together(const std::function<void(const comm::Communicator&)>& work, const comm::TransportOptions& options = {},
                 const std::function<void(int code)>& leaving = {});

}  // namespace aloni::tools
