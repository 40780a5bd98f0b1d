#pragma once
// How the command ends: every rank with the same exit code, at most one line of error from all of them together, and no
// rank left waiting for one that has failed.
#include <aloni/core/comm/communicator.hpp>

#include <functional>
#include <stdexcept>
#include <string>

namespace aloni::tools {

/// Exit codes of the command.
enum ExitCode : int {
  success = 0,
  failure = 1,      ///< a file, memory, the network, another rank
  wrong_usage = 2,  ///< the request itself: a flag, a value, a strategy
};

/// A command line that asks for something impossible. `what()` is one line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Collective over all ranks of the job, once per program. Runs `work` on every rank with a communicator of all of them
/// and returns the exit code, the same on every rank. When `work` throws, the lowest rank that failed by itself (not
/// because another did) prints "aloni: …" to stderr. Ranks that fail without the others' knowledge poison the
/// communicator; when that doesn't bring the others here within four seconds, the job is aborted with the exit code.
int run_together(const std::function<void(const comm::Communicator&)>& work);

}  // namespace aloni::tools
