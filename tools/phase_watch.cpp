#include <aloni/core/comm/liveness/job_processes.hpp>
#include <aloni/tools/phase_watch.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace aloni::tools {

namespace {

using comm::detail::JobProcess;
using comm::detail::JobProcesses;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto look_pause = 250ms, short_look_pause = 50ms, first_look_pause = 20ms;
constexpr auto first_looks = 1s;  // the launcher may still be starting processes
// At the end of MPI processes end one after the other. MPI ends without ranks that have already left it, but not
// without one that has failed. Open MPI sends SIGTERM one second after a failure, and SIGKILL one second later.
constexpr auto patience_with_ended = 4s, hurried_patience = 1s;
// The launcher sends SIGTERM to all ranks at once; some end of it before this one has noted its own.
constexpr auto spread_of_signals = 20ms;
// Another rank may have seen their order.
constexpr auto patience_with_several = 100ms;
// Until another rank that has told the same failure at the same time can be seen.
constexpr auto time_to_be_seen = 20ms;
// Until all ranks have seen that this one is informed, and do not take its end for a failure.
constexpr auto time_to_inform = 2 * look_pause + 100ms;

// When the launcher began to end the job, in ticks of Clock; 0: it has not. Set by a signal handler.
std::atomic<Clock::rep> hurry_since{0};
static_assert(std::atomic<Clock::rep>::is_always_lock_free);

int number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

bool others_are_informed(const std::vector<JobProcess>& alive) {
  return std::ranges::any_of(alive, [](const JobProcess& p) { return p.informed && p.process != getpid(); });
}

[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
  std::this_thread::sleep_for(time_to_inform);
  std::_Exit(code);
}

}  // namespace

bool claim_failure() {
  const JobProcesses processes;
  if (!processes.known()) return true;
  const bool late = others_are_informed(processes.alive());
  comm::detail::mark_as_informed(!late);
  if (late) return false;
  std::this_thread::sleep_for(time_to_be_seen);
  const std::vector<JobProcess> alive = processes.alive();
  const auto first = std::ranges::find_if(alive, &JobProcess::telling);
  return first == alive.end() || first->process == getpid();
}

void inform_others() { std::this_thread::sleep_for(time_to_inform); }

struct PhaseWatch::Seen {
  JobProcess process;
  int handle = -1;                           // becomes readable at the end of the process
  Clock::time_point runs = {};               // the latest time at which it was not stopped
  std::optional<Clock::time_point> ended{};  // when this was seen
};

// All variables of the environment are read here: while the thread runs, MPI may set some.
PhaseWatch::PhaseWatch(Phase phase, int code, std::chrono::seconds stuck_after)
    : phase_(phase),
      code_(code),
      stuck_after_(stuck_after),
      ranks_here_(number_in("OMPI_COMM_WORLD_SIZE")),
      wake_(eventfd(0, EFD_CLOEXEC)) {
  if (ranks_here_ != number_in("OMPI_COMM_WORLD_LOCAL_SIZE")) ranks_here_ = 0;
  if (processes_.known()) thread_ = std::thread([this] { look(); });
}

void PhaseWatch::hurry() {
  Clock::rep none = 0;
  hurry_since.compare_exchange_strong(none, Clock::now().time_since_epoch().count());
}

PhaseWatch::~PhaseWatch() {
  over_ = true;
  if (wake_ >= 0) eventfd_write(wake_, 1);  // otherwise the thread sees the end at its next look
  if (thread_.joinable()) thread_.join();
  if (wake_ >= 0) close(wake_);
}

/// Waits for the end of the phase or of a process. Returns whether the phase is over.
bool PhaseWatch::wait(std::vector<Seen>& seen, std::chrono::milliseconds pause) const {
  std::vector<pollfd> handles{{.fd = wake_, .events = POLLIN, .revents = 0}};
  for (const Seen& s : seen) handles.push_back({.fd = s.handle, .events = POLLIN, .revents = 0});  // below 0: ignored
  if (poll(handles.data(), handles.size(), static_cast<int>(pause.count())) <= 0) return over_;
  const auto now = Clock::now();
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (!handles[i + 1].revents) continue;
    seen[i].ended = now;
    close(std::exchange(seen[i].handle, -1));
  }
  return over_;
}

void PhaseWatch::look() {
  const auto begin = Clock::now();
  std::vector<Seen> seen;
  // A rank may end before it is seen.
  for (int r = 0; r < ranks_here_; ++r) seen.push_back({.process = {.rank = r}, .runs = begin});
  for (bool over = false; !over;) {
    const std::vector<JobProcess> alive = processes_.alive();
    const auto now = Clock::now();
    if (others_are_informed(alive)) {  // one of them tells the failure
      comm::detail::mark_as_informed(false);
      leave(code_);
    }
    bool all_seen = true;
    for (const JobProcess& p : alive) {
      auto known = std::ranges::find(seen, p.rank, [](const Seen& s) { return s.process.rank; });
      if (known == seen.end()) known = seen.insert(seen.end(), {.process = {.rank = p.rank}});
      if (known->process.process < 0) known->handle = static_cast<int>(syscall(SYS_pidfd_open, p.process, 0));
      known->process = p;
      if (!comm::detail::is_stopped(p.state)) known->runs = now;
    }
    for (Seen& s : seen) {
      const bool here = std::ranges::find(alive, s.process.rank, &JobProcess::rank) != alive.end();
      if (s.process.process < 0)
        all_seen = false;
      else if (!here && !s.ended)
        s.ended = now;
    }
    accuse(seen, begin);
    const bool some_ended = std::ranges::any_of(seen, [](const Seen& s) { return s.ended.has_value(); });
    over = wait(seen, !all_seen && now - begin < first_looks ? first_look_pause
                      : some_ended                           ? short_look_pause
                                                             : look_pause);
  }
  for (const Seen& s : seen) {
    if (s.handle >= 0) close(s.handle);
  }
}

/// Tells a failure and ends this process, or returns.
void PhaseWatch::accuse(std::vector<Seen>& seen, Clock::time_point begin) const {
  const auto now = Clock::now();
  const auto stopped = std::ranges::find_if(seen, [&](const Seen& s) {
    return !s.ended && s.process.process >= 0 && stuck_after_.count() > 0 && now - s.runs > stuck_after_;
  });
  if (stopped != seen.end()) return tell(stopped->process, "is stopped");
  // The first rank that has ended. One that was never seen comes last. The launcher's SIGTERM ends ranks whose program
  // has not begun: then only earlier ends count, and an unseen rank only if it is the only one.
  const Clock::time_point hurry{Clock::duration(hurry_since.load())};
  const bool hurried = hurry != Clock::time_point{};
  const auto unseen = std::ranges::count_if(seen, [](const Seen& s) { return s.process.process < 0; });
  const auto end_of = [&](const Seen& s) {
    if (s.ended && (!hurried || *s.ended < hurry + spread_of_signals)) return *s.ended;
    if (!s.ended && s.process.process < 0 && (!hurried || unseen == 1)) return Clock::time_point::max() - 1ns;
    return Clock::time_point::max();
  };
  const auto first = std::ranges::min_element(seen, {}, end_of);
  if (first == seen.end() || end_of(*first) == Clock::time_point::max()) return;
  const auto waited = now - (first->ended ? *first->ended : begin);
  const bool hurries = hurried && (phase_ == Phase::start || waited > hurried_patience);
  if (waited < patience_with_ended && !hurries) return;
  if (std::ranges::count(seen, end_of(*first), end_of) > 1) std::this_thread::sleep_for(patience_with_several);
  tell(first->process, "has ended");
}

void PhaseWatch::tell(const JobProcess& culprit, const char* what) const {
  const bool told = phase_ == Phase::end && code_ != 0;
  if (!told && claim_failure()) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    const std::string process = culprit.process < 0 ? "" : " " + std::to_string(culprit.process);
    std::fprintf(stderr, "aloni: rank %d failed: its process%s on %s %s while MPI was %s\n", culprit.rank,
                 process.c_str(), host, what, phase_ == Phase::start ? "starting" : "ending");
  }
  leave(code_);
}

}  // namespace aloni::tools
