#pragma once
// SIGTERM and SIGUSR1 as a request to stop, instead of an end of the process. Batch systems send one of them before
// they end a job.
//
//   const StopSignals signals;
//   while (!signals.came()) …
#include <csignal>

namespace aloni::tools {

/// While an object lives, the signals are noted. At most one object at a time.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// The signals have their former effects again.
  ~StopSignals();

  /// Whether one of the signals has come. A second SIGTERM has its former effect.
  static bool came();

 private:
  struct sigaction terminate_ {};
  struct sigaction user_ {};
};

}  // namespace aloni::tools
