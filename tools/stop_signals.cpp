#include <aloni/tools/stop_signals.hpp>

namespace aloni::tools {

namespace {

volatile std::sig_atomic_t noted = 0;
struct sigaction former_terminate {};

void note(int number) {
  if (noted != 0 && number == SIGTERM) {
    sigaction(SIGTERM, &former_terminate, nullptr);
    raise(SIGTERM);
  }
  noted = 1;
}

}  // namespace

StopSignals::StopSignals() {
  noted = 0;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGTERM, nullptr, &former_terminate);
  sigaction(SIGTERM, &action, &terminate_);
  sigaction(SIGUSR1, &action, &user_);
}

StopSignals::~StopSignals() {
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGUSR1, &user_, nullptr);
}

bool StopSignals::came() { return noted != 0; }

}  // namespace aloni::tools
