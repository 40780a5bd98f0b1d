#include <aloni/core/comm/liveness/job_processes.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/printable.hpp>
#include <aloni/tools/phase_watch.hpp>
#include <aloni/tools/together.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <thread>
#include <vector>

namespace aloni::tools {

namespace {

using Clock = std::chrono::steady_clock;

// Grace period before the poison: an error that is equal on all ranks needs none.
constexpr auto patience_before_poison = std::chrono::milliseconds(300);
constexpr auto patience_before_abort = std::chrono::milliseconds(4000);
constexpr auto patience_after_failure_of_another = std::chrono::milliseconds(1000);  // it may be dead or stopped
constexpr auto pause_of_waits = std::chrono::microseconds(200);
constexpr unsigned patience_with_mpi = 1;  // seconds

struct Outcome {
  int code = success;
  bool first_hand = false;
  std::string line;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Error messages of the library start with a function name. Its namespace does not help a user of the command.
std::string without_namespace(const std::string& text) {
  constexpr std::string_view name = "aloni::";
  return text.compare(0, name.size(), name) == 0 ? text.substr(name.size()) : text;
}

Outcome run(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const UsageError& e) {
    return {wrong_usage, true, first_line(e.what())};
  } catch (const Stopped& e) {
    return {stopped, true, first_line(e.what())};
  } catch (const InvalidArgument& e) {
    return {wrong_usage, true, first_line(without_namespace(e.what()))};
  } catch (const Unsupported& e) {
    return {wrong_usage, true, first_line(without_namespace(e.what()))};
  } catch (const PeerFailed& e) {
    return {failure, false, first_line(without_namespace(e.what()))};
  } catch (const std::bad_alloc&) {
    return {failure, true, "out of memory"};
  } catch (const std::exception& e) {
    return {failure, true, first_line(without_namespace(e.what()))};
  } catch (...) {
    return {failure, true, "an unknown exception, not derived from std::exception"};
  }
}

void say(const Outcome& outcome, int rank) {
  const std::string from = rank > 0 ? "rank " + std::to_string(rank) + ": " : "";
  std::fprintf(stderr, "aloni: %s%s\n", from.c_str(), outcome.line.c_str());
  std::fflush(stderr);
}

// Gathers the outcomes of all ranks. It has its own communicator, because the other one may have failed.
class Farewell {
 public:
  /// Throws if another rank fails meanwhile.
  explicit Farewell(const comm::Communicator& all_ranks) {
    auto& copy = *new MPI_Comm(MPI_COMM_NULL);  // leaked if a rank fails: MPI may still write to it
    MPI_Request request = MPI_REQUEST_NULL;
    comm::check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request), "MPI_Comm_idup");
    for (int done = 0; MPI_Test(&request, &done, MPI_STATUS_IGNORE), !done;) {
      all_ranks.check_poison(true);
      std::this_thread::sleep_for(pause_of_waits);
    }
    comm_ = copy;
    delete &copy;
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  Farewell(const Farewell&) = delete;
  Farewell& operator=(const Farewell&) = delete;
  ~Farewell() {
    if (met_) MPI_Comm_free(&comm_);
  }

  int rank() const { return rank_; }

  /// The outcomes of all ranks as pairs of code and first_hand. If this rank has failed and the others do not arrive,
  /// calls `late` once after patience_before_poison and returns nothing after patience_before_abort, or after
  /// patience_after_failure_of_another. Calls `look` from time to time, which throws if another rank has failed.
  std::optional<std::vector<int>> meet(const Outcome& mine, const std::function<void()>& late,
                                       const std::function<void()>& look) {
    const bool failed = mine.code != success;
    // Leaked if a rank has failed: MPI may still use the memory.
    auto& buffers = *new Buffers;
    buffers.sent = {mine.code, mine.first_hand ? 1 : 0};
    buffers.all.resize(2 * static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    comm::check_mpi(MPI_Iallgather(buffers.sent.data(), 2, MPI_INT, buffers.all.data(), 2, MPI_INT, comm_, &request),
                    "MPI_Iallgather");
    const auto start = Clock::now();
    bool told = false;
    for (int done = 0;;) {
      comm::check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) {
        met_ = true;
        const std::vector<int> all = buffers.all;
        delete &buffers;
        return all;
      }
      if (!failed) look();
      const auto waited = Clock::now() - start;
      if (failed && !told && waited > patience_before_poison) {
        told = true;
        late();
      }
      if (failed && waited > (mine.first_hand ? patience_before_abort : patience_after_failure_of_another))
        return std::nullopt;
      std::this_thread::sleep_for(pause_of_waits);
    }
  }

 private:
  struct Buffers {
    std::array<int, 2> sent{};
    std::vector<int> all;
  };

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool met_ = false;
};

/// Ends the job at once: nobody waits in MPI_Finalize for a rank that has failed.
[[noreturn]] void abort_job(int code) {
  std::fflush(nullptr);
  std::signal(SIGALRM, SIG_DFL);
  alarm(
      patience_with_mpi);  // MPI_Abort may wait for a launcher that has failed too; the default action ends the process
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

/// The rank that prints the error; -1 if no rank failed.
int speaker(const std::vector<int>& outcomes) {
  int any = -1;
  for (int r = 0; r < static_cast<int>(outcomes.size() / 2); ++r) {
    const bool failed = outcomes[2 * r] != success, first_hand = outcomes[2 * r + 1] != 0;
    if (failed && first_hand) return r;
    if (failed && any < 0) any = r;
  }
  return any;
}

}  // namespace

void refuse(const char* option, const std::string& value, const std::string& expectation) {
  throw UsageError(std::string(option) + " = " + printable(value) + ": expected " + expectation);
}

int run_alone(const std::function<void()>& work) {
  const Outcome outcome = run(work);
  if (outcome.code != success) say(outcome, 0);
  return outcome.code;
}

int run_together(const std::function<void(const comm::Communicator&)>& work, const comm::TransportOptions& options,
                 const std::function<void(int code)>& leaving) {
  std::optional<Farewell> farewell;
  std::optional<comm::Communicator> all_ranks;
  const Outcome begun = run([&] {
    all_ranks.emplace(comm::from_mpi(MPI_COMM_WORLD, options));
    farewell.emplace(*all_ranks);
  });
  if (begun.code != success) {  // some ranks may wait for ever in MPI
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const bool claimed = claim_failure();
    // Wrong options are wrong on all ranks.
    if (begun.code == wrong_usage ? rank == 0 : claimed || begun.first_hand) say(begun, rank);
    inform_others();
    abort_job(begun.code);
  }
  Outcome mine = run([&] { work(*all_ranks); });
  std::optional<std::vector<int>> outcomes;
  // A failure of another rank is reported once per node, because that rank may be dead or stopped.
  bool reported = false;
  const auto report = [&] {
    all_ranks->poison(mine.line);
    if (!mine.first_hand && !reported && all_ranks->claim_report()) say(mine, farewell->rank());
    reported = true;
  };
  const Outcome met = run([&] { outcomes = farewell->meet(mine, report, [&] { all_ranks->check_poison(true); }); });
  if (met.code != success) mine = met;
  if (!outcomes) {
    report();
    if (mine.first_hand) say(mine, farewell->rank());
    // Ranks that have left already watch the end of MPI: the end of this one is no new failure.
    comm::detail::mark_as_informed(false);
    inform_others();
    abort_job(mine.code);
  }
  const int who = speaker(*outcomes), code = who < 0 ? success : (*outcomes)[2 * static_cast<std::size_t>(who)];
  // A stopped rank may come after its failure has been reported: a launcher that ends the job continues it first.
  if (who == farewell->rank() && (mine.first_hand || (!reported && all_ranks->claim_report()))) say(mine, who);
  if (leaving) leaving(code);
  return code;
}

}  // namespace aloni::tools
