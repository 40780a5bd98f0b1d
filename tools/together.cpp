#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/tools/together.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <optional>
#include <thread>
#include <vector>

namespace aloni::tools {

namespace {

using Clock = std::chrono::steady_clock;

// Grace period before the poison: an error that is equal on all ranks needs none.
constexpr auto patience_before_poison = std::chrono::milliseconds(300);
constexpr auto patience_before_abort = std::chrono::seconds(4);

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
  Farewell() {
    comm::check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
  }
  Farewell(const Farewell&) = delete;
  Farewell& operator=(const Farewell&) = delete;
  ~Farewell() { MPI_Comm_free(&comm_); }

  int rank() const { return rank_; }

  /// The outcomes of all ranks as pairs of code and first_hand. If this rank has failed and the others do not arrive,
  /// calls `late` once after patience_before_poison and returns nothing after patience_before_abort.
  std::optional<std::vector<int>> meet(const Outcome& mine, const std::function<void()>& late) {
    const bool failed = mine.code != success;
    const int sent[2] = {mine.code, mine.first_hand ? 1 : 0};
    std::vector<int> all(2 * static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    comm::check_mpi(MPI_Iallgather(sent, 2, MPI_INT, all.data(), 2, MPI_INT, comm_, &request), "MPI_Iallgather");
    const auto start = Clock::now();
    bool told = false;
    for (int done = 0;;) {
      comm::check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) return all;
      const auto waited = Clock::now() - start;
      if (failed && !told && waited > patience_before_poison) {
        told = true;
        late();
      }
      if (failed && waited > patience_before_abort) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
};

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

int run_together(const std::function<void(const comm::Communicator&)>& work) {
  Farewell farewell;
  const comm::Communicator all_ranks = comm::from_mpi(MPI_COMM_WORLD);
  const Outcome mine = run([&] { work(all_ranks); });
  const auto outcomes = farewell.meet(mine, [&] { all_ranks.poison(mine.line); });
  if (!outcomes) {
    if (mine.first_hand) say(mine, farewell.rank());
    MPI_Abort(MPI_COMM_WORLD, mine.code);
    return mine.code;
  }
  const int who = speaker(*outcomes);
  if (who < 0) return success;
  if (who == farewell.rank()) say(mine, who);
  return (*outcomes)[2 * static_cast<std::size_t>(who)];
}

}  // namespace aloni::tools
