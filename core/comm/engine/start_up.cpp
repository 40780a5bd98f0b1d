#include <aloni/core/comm/engine/start_up.hpp>

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

namespace aloni::comm::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* operation = "aloni::comm::from_mpi";
constexpr auto look_pause = std::chrono::milliseconds(200);
constexpr auto spinning = std::chrono::milliseconds(2);  // afterwards a wait sleeps between its polls
constexpr auto nap = std::chrono::microseconds(200);
constexpr auto patience_after_failure = std::chrono::seconds(5);

/// What each rank sends first. Longer bytes follow in a second round.
struct Letter {
  std::uint32_t failed = 0, bytes = 0;
  std::array<std::byte, 184> payload{};
};

}  // namespace

StartUp::StartUp(MPI_Comm comm, std::chrono::milliseconds limit, std::chrono::milliseconds longest)
    : given_(comm), limit_(limit), longest_(std::max(limit, longest)) {
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
}

MPI_Comm StartUp::duplicate() {
  // Leaked if the wait throws: MPI may still write to it.
  auto result = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(given_, result.get(), &request), "MPI_Comm_idup");
  MPI_Comm* const place = result.release();
  wait(request);
  const MPI_Comm duplicate = *place;
  delete place;
  check_mpi(MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  if (comm_ == MPI_COMM_NULL) comm_ = duplicate;
  return duplicate;
}

void StartUp::wait(MPI_Request& request, const std::function<void()>& progress) {
  const auto start = Clock::now();
  auto last_look = start;
  for (int done = 0;;) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return;
    if (progress) progress();
    const auto now = Clock::now();
    if (now - start < spinning) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(nap);
    if (now - last_look < look_pause) continue;
    last_look = now;
    look(now - start);
  }
}

/// Throws PeerFailed if a process of this machine has ended, or after the limit.
void StartUp::look(Clock::duration waited) {
  if (watch_) {
    if (const auto verdict = watch_->dead()) throw_failed(verdict->rank, verdict->what);
  }
  const bool late = limit_.count() > 0 && waited > limit_;
  if (!processes_.known()) {
    if (late) throw_failed(-1, "not all ranks have come within " + seconds_text(waited));
    return;
  }
  if (world_ranks_.empty()) {
    MPI_Group ours = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
    std::vector<int> all(static_cast<std::size_t>(size_));
    std::iota(all.begin(), all.end(), 0);
    world_ranks_.resize(all.size());
    check_mpi(MPI_Comm_group(given_, &ours), "MPI_Comm_group");
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");  // the launcher's numbers
    check_mpi(MPI_Group_translate_ranks(ours, size_, all.data(), world, world_ranks_.data()),
              "MPI_Group_translate_ranks");
    MPI_Group_free(&ours);
    MPI_Group_free(&world);
  }
  std::vector<JobProcess> now = processes_.alive();
  for (JobProcess& p : now) p.rank = static_cast<int>(std::ranges::find(world_ranks_, p.rank) - world_ranks_.begin());
  std::erase_if(now, [&](const JobProcess& p) { return p.rank >= size_; });
  if (seen_.empty()) {
    // All ranks of this machine were alive when MPI_Init returned: MPI_Init waits for all of them.
    seen_ = now;
    if (const char* const local = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
        local && std::atoi(local) == size_ && static_cast<int>(now.size()) < size_) {
      for (int r = 0; r < size_; ++r) {
        if (std::ranges::find(now, r, &JobProcess::rank) == now.end()) throw_failed(r, "its process has ended");
      }
    }
  }
  for (const JobProcess& p : now) {
    if (p.informed) std::erase_if(seen_, [&](const JobProcess& seen) { return seen.process == p.process; });
  }
  for (const JobProcess& p : seen_) {
    if (std::ranges::find(now, p.process, &JobProcess::process) == now.end())
      throw_failed(p.rank, "its process " + std::to_string(p.process) + " has ended");
  }
  if (!late) return;
  std::string states;
  int stopped = -1;
  bool works = false;  // a rank that waits sleeps between its polls
  for (const JobProcess& p : now) {
    if (p.rank == rank_) continue;
    const bool stops = is_stopped(p.state);
    if (stops && stopped < 0) stopped = p.rank;
    works = works || p.state == 'R' || p.state == 'D';
    states += "; rank " + std::to_string(p.rank) + ": process " + std::to_string(p.process) + " " +
              std::string(text_of_state(p.state));
  }
  // A rank that has just come sleeps too, and its message is on the way: one more look.
  const bool was_idle = std::exchange(idle_, !works);
  if (stopped < 0 && (works || !was_idle) && waited < longest_) return;
  throw_failed(stopped, "not all ranks have come within " + seconds_text(waited) + states);
}

void StartUp::throw_failed(int rank, const std::string& what) {
  over_ = true;
  throw PeerFailed(operation, rank, what, rank);
}

std::vector<std::vector<std::byte>> StartUp::exchange(std::span<const std::byte> mine, bool failed,
                                                      const std::function<void()>& progress) {
  struct Round {
    std::vector<std::byte> sent, received;
    std::vector<Letter> letters;
    Letter letter;
  };
  auto round = std::make_unique<Round>();
  round->letters.resize(static_cast<std::size_t>(size_));
  round->letter = {.failed = failed ? 1u : 0u, .bytes = static_cast<std::uint32_t>(mine.size())};
  std::copy_n(mine.begin(), std::min(mine.size(), round->letter.payload.size()), round->letter.payload.begin());
  MPI_Request request = MPI_REQUEST_NULL;
  constexpr int letter_bytes = sizeof(Letter);
  // Leaked if the wait throws: MPI may still use the memory.
  Round* const r = round.release();
  check_mpi(
      MPI_Iallgather(&r->letter, letter_bytes, MPI_BYTE, r->letters.data(), letter_bytes, MPI_BYTE, comm_, &request),
      "MPI_Iallgather");
  wait(request, progress);
  std::uint32_t most = 0;
  for (const Letter& letter : r->letters) most = std::max(most, letter.bytes);
  const bool second = most > r->letter.payload.size();
  if (second) {
    r->sent.assign(mine.begin(), mine.end());
    r->sent.resize(most);
    r->received.resize(static_cast<std::size_t>(size_) * most);
    check_mpi(MPI_Iallgather(r->sent.data(), static_cast<int>(most), MPI_BYTE, r->received.data(),
                             static_cast<int>(most), MPI_BYTE, comm_, &request),
              "MPI_Iallgather");
    wait(request);
  }
  round.reset(r);
  std::vector<std::vector<std::byte>> all;
  int culprit = -1;
  for (std::size_t i = 0; i < r->letters.size(); ++i) {
    const Letter& letter = r->letters[i];
    const std::byte* const from = second ? r->received.data() + i * most : letter.payload.data();
    all.emplace_back(from, from + letter.bytes);
    if (letter.failed && culprit < 0) culprit = static_cast<int>(i);
  }
  if (culprit >= 0 && !failed) {
    const auto& text = all[static_cast<std::size_t>(culprit)];
    throw_failed(culprit, std::string(reinterpret_cast<const char*>(text.data()), text.size()));
  }
  return all;
}

std::vector<std::byte> StartUp::all_gather(std::span<const std::byte> mine) {
  std::vector<std::byte> joined;
  for (const auto& bytes : exchange(mine, false)) joined.insert(joined.end(), bytes.begin(), bytes.end());
  return joined;
}

std::vector<std::byte> StartUp::all_gather(std::span<const std::byte> mine, std::span<const int> ranks) {
  const auto all = exchange(mine, false);
  std::vector<std::byte> joined;
  for (const int r : ranks) {
    const auto& bytes = all[static_cast<std::size_t>(r)];
    joined.insert(joined.end(), bytes.begin(), bytes.end());
  }
  return joined;
}

void StartUp::barrier(const std::function<void()>& progress) { exchange({}, false, progress); }

void StartUp::finish() { exchange({}, false); }

void StartUp::fail(std::string_view what) noexcept {
  if (over_ || comm_ == MPI_COMM_NULL) return;
  try {
    constexpr std::size_t longest = 1000;
    limit_ = std::min<std::chrono::milliseconds>(limit_.count() > 0 ? limit_ : patience_after_failure,
                                                 patience_after_failure);
    exchange(std::as_bytes(std::span(what.substr(0, longest))), true);
  } catch (...) {  // the other ranks have failed too, or find the end of this process
  }
}

}  // namespace aloni::comm::detail
