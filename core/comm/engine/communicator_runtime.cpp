#include <aloni/core/comm/engine/communicator_runtime.hpp>

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/transport/mpi_transport.hpp>
#include <aloni/core/comm/transport/ucx_transport.hpp>
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

namespace aloni::comm::detail {

namespace {

// The destructor waits this long for other ranks, which may be late or may have failed undetected.
constexpr auto patience_at_the_end = std::chrono::seconds(1);

std::vector<std::byte> all_gather_over(MPI_Comm comm, std::span<const std::byte> mine) {
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(size));
  const int bytes = static_cast<int>(mine.size());
  check_mpi(MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, comm), "MPI_Allgather");
  return all;
}

constexpr std::size_t whole_message = std::numeric_limits<std::size_t>::max();

/// Largest fragment of MPI messages between nodes, in bytes.
std::size_t fragment_bytes(const TransportOptions& options) {
  if (options.mpi_fragment_bytes > 0) return options.mpi_fragment_bytes;
  // Devices with remote direct memory access: InfiniBand, RoCE, Omni-Path and EFA; Slingshot.
  for (const char* const devices : {"/sys/class/infiniband", "/sys/class/cxi"}) {
    std::error_code none;
    if (!std::filesystem::is_empty(devices, none) && !none) return whole_message;
  }
  // Open MPI sends messages of up to 64 KiB, its own header included, without asking the receiver first.
  constexpr std::size_t over_tcp = 60 * 1024;
  return over_tcp;
}

/// A barrier that calls `progress` while it waits.
void meet(MPI_Comm comm, const std::function<void()>& progress) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm, &request), "MPI_Ibarrier");
  for (int all_here = 0; !all_here; std::this_thread::yield()) {
    check_mpi(MPI_Test(&request, &all_here, MPI_STATUS_IGNORE), "MPI_Test");
    progress();
  }
}

/// A sink that ignores all events.
struct Deaf final : Transport::Sink {
  void arrived(const Transport::Fragment&) override {}
  void sent(std::uint32_t) override {}
  void fetched(std::uint32_t) override {}
};

/// Sends all delayed fragments, because other ranks may wait for them. Ends at `deadline` at the latest.
void end_faults(FaultyTransport& faulty, std::chrono::steady_clock::time_point deadline) noexcept {
  Deaf sink;
  faulty.end_faults();
  try {
    for (; !faulty.flushed() && std::chrono::steady_clock::now() < deadline; std::this_thread::yield())
      faulty.poll(sink);
  } catch (const Error&) {  // the receiver has ended already
  }
}

/// MPI communicator of the ranks of one node. Exists only during construction.
struct NodeCommunicator {
  MPI_Comm comm = MPI_COMM_NULL;
  int ranks_on_machine = 0;

  /// ranks_per_node: see TransportOptions.
  NodeCommunicator(MPI_Comm all, int rank, int ranks_per_node) {
    check_mpi(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &comm), "MPI_Comm_split_type");
    check_mpi(MPI_Comm_size(comm, &ranks_on_machine), "MPI_Comm_size");
    if (ranks_per_node > 0) {
      MPI_Comm machine = comm;
      check_mpi(MPI_Comm_split(machine, rank / ranks_per_node, rank, &comm), "MPI_Comm_split");
      check_mpi(MPI_Comm_free(&machine), "MPI_Comm_free");
    }
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  NodeCommunicator(const NodeCommunicator&) = delete;
  NodeCommunicator& operator=(const NodeCommunicator&) = delete;
  ~NodeCommunicator() { MPI_Comm_free(&comm); }
};

/// Faults with a seed of their own. `number`: number of a transport, unique over all ranks.
Faults with_own_seed(Faults faults, int number) {
  // The odd factor gives each pair of a small seed and a number a different result.
  faults.seed = faults.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(number);
  return faults;
}

// look_around() checks processes at most once per shortest_pause, because each check is a system call. A rank that
// calls it less often than every longest_pause does not count as waiting.
constexpr auto shortest_pause = std::chrono::milliseconds(2);
constexpr auto publishing_pause = std::chrono::milliseconds(50);
constexpr int thread_close_looks = 1000;
constexpr auto thread_short_sleep = std::chrono::microseconds(20), thread_long_sleep = std::chrono::microseconds(50);
constexpr auto notes_pause = std::chrono::milliseconds(200);
constexpr auto longest_pause = std::chrono::milliseconds(500);
// A waiting rank of another node answers within this time, even if it shares its core with many ranks.
constexpr auto time_to_answer = std::chrono::milliseconds(1000);

}  // namespace

CommunicatorRuntime::CommunicatorRuntime(MPI_Comm messages, MPI_Comm poison, const TransportOptions& options)
    : mpi_(messages), board_(poison), heap_(std::make_shared<SharedHeap>()), stuck_after_(options.stuck_after) {
  check_mpi(MPI_Comm_rank(mpi_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(mpi_, &size_), "MPI_Comm_size");
  const GatherBytes among_all = [this](std::span<const std::byte> mine) { return all_gather_over(mpi_, mine); };
  bool complete = false;  // whether all ranks of the node reach each other's memory
  {
    const NodeCommunicator node(mpi_, rank_, options.ranks_per_node);
    const GatherBytes among_node = [&](std::span<const std::byte> mine) { return all_gather_over(node.comm, mine); };
    std::vector<int> ranks = gather(among_node, rank_);
    std::ranges::sort(ranks);
    node_of_ = gather(among_all, ranks.front());
    shares_cores_ = node.ranks_on_machine > sysconf(_SC_NPROCESSORS_ONLN);
    if (ranks.size() > 1) {
      watch_.emplace(rank_, ranks, among_node);
    }
    if (options.shared_memory && ranks.size() > 1) {
      shared_.emplace(*heap_, rank_, ranks, among_node);
      const bool mine = std::ranges::all_of(ranks, [&](int r) { return r == rank_ || shared_->reaches(r); });
      const auto votes = among_node(std::as_bytes(std::span(&mine, 1)));
      complete = std::ranges::all_of(votes, [](std::byte vote) { return vote != std::byte{0}; });
    }
  }
  island_of_ = gather(among_all, complete ? node_of_[static_cast<std::size_t>(rank_)] : rank_);
  for (int r = 0; r < size_; ++r) {
    if (node_of_[static_cast<std::size_t>(r)] != node_of_[static_cast<std::size_t>(rank_)]) elsewhere_.push_back(r);
  }
  std::vector<int> leaders(node_of_);
  std::ranges::sort(leaders);
  leaders.erase(std::ranges::unique(leaders).begin(), leaders.end());
  if (!elsewhere_.empty()) {
    ring_.emplace(rank_, leaders, options.ranks_per_node > 0, among_all);
  }

  Transport* shared = shared_ ? &*shared_ : nullptr;
  const Faults faults = options.faults.of_rank(rank_);
  if (shared && faults.any()) shared = &faulty_shared_.emplace(*shared_, with_own_seed(faults, 2 * rank_));
  std::vector<Transport*> routes;
  std::vector<int> others;
  for (int r = 0; r < size_; ++r) {
    routes.push_back(r == rank_ ? &self_ : shared_ && shared_->reaches(r) ? shared : nullptr);
    if (!routes.back()) others.push_back(r);
  }
  // Computed from values that are equal on all ranks, because it decides about collective calls.
  sends_messages_ = std::ranges::any_of(island_of_, [&](int island) { return island != island_of_.front(); });
  if constexpr (config::has_ucx) {
    if (options.messages == MessageTransport::ucx && sends_messages_) {
      messages_ = make_ucx_transport(rank_, others, among_all,
                                     [&](const std::function<void()>& progress) { meet(mpi_, progress); });
    }
  }
  if (!others.empty() && !messages_) {
    std::vector<std::size_t> largest(static_cast<std::size_t>(size_), whole_message);
    for (std::size_t r = 0; r < largest.size(); ++r)
      if (node_of_[r] != node_of_[static_cast<std::size_t>(rank_)]) largest[r] = fragment_bytes(options);
    messages_ = std::make_unique<MpiTransport>(mpi_, std::move(largest));
  }
  Transport* messages_route = messages_.get();
  if (messages_ && faults.any())
    messages_route = &faulty_messages_.emplace(*messages_, with_own_seed(faults, 2 * rank_ + 1));
  std::ranges::replace(routes, static_cast<Transport*>(nullptr), messages_route);
  engine_.emplace(rank_, std::move(routes), *heap_);
  engine_->set_checksums(options.checksums);
  if (options.progress_thread) {
    int level = MPI_THREAD_SINGLE;
    check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
    // The UCX worker has UCS_THREAD_MODE_SINGLE.
    bool unsafe = messages_ && (level < MPI_THREAD_MULTIPLE || options.messages == MessageTransport::ucx);
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &unsafe, 1, MPI_CXX_BOOL, MPI_LOR, mpi_), "MPI_Allreduce");
    if (unsafe) {
      throw Unsupported("aloni::comm::from_mpi", "options.progress_thread", "true with messages over MPI or UCX",
                        "messages over MPI with MPI_THREAD_MULTIPLE, ranks that all share memory, or false");
    }
    thread_ = std::thread([this] { make_progress(); });
  }
  board_.when_poisoned([this] {
    for (Transport* t : engine_->routes()) t->abandon();
    heap_->detach();
  });
}

void CommunicatorRuntime::look_around(bool waits) {
  const auto now = Watch::Clock::now();
  if (now - last_look_ < shortest_pause) return;
  // Long gaps between calls mean that this rank does not wait.
  if (!waits || waiting_since_ == Watch::Clock::time_point{} || now - last_look_ > longest_pause) waiting_since_ = now;
  last_look_ = now;
  if (board_.poisoned()) return;
  if (ring_) {
    if (const auto verdict = ring_->dead()) return board_.poison(verdict->what, verdict->rank);
  }
  if (watch_) {
    if (const auto verdict = watch_->dead()) return board_.poison(verdict->what, verdict->rank);
    if (waits && now - last_published_ > publishing_pause) {
      watch_->waiting(now, engine_->waiting_for());
      last_published_ = now;
    }
  }
  if (!waits) return;
  if (now - waiting_since_ > notes_pause && now - last_notes_ > notes_pause) {
    last_notes_ = now;
    engine_->compare_notes();
  }
  if (stuck_after_.count() == 0 || now - waiting_since_ < stuck_after_) return;
  if (!elsewhere_.empty()) {
    if (asked_ < waiting_since_) {
      asked_ = now;
      return board_.ask(elsewhere_);
    }
    if (now - asked_ < time_to_answer) return;
  }
  const std::vector<int> waited_for = engine_->ranks_waited_for();
  const int culprit = who_does_not_wait(now, waited_for);
  std::string text = "no progress for " + seconds_text(now - waiting_since_);
  if (const std::string state = state_of(culprit, now); !state.empty()) text += "; " + state;
  text += "; rank " + std::to_string(rank_) + " waits for " + engine_->waiting_for();
  for (const int rank : waited_for) {
    if (rank == culprit) continue;
    if (const std::string state = state_of(rank, now); !state.empty())
      text += "; rank " + std::to_string(rank) + " " + state;
  }
  board_.poison(text, culprit);
}

/// The rank that failed. A rank in `waited_for` may itself wait for another rank. So it is preferably a rank that does
/// not wait; otherwise the first of `waited_for`.
int CommunicatorRuntime::who_does_not_wait(Watch::Clock::time_point now, std::span<const int> waited_for) const {
  const auto silent = [&](int rank) {
    return std::ranges::binary_search(elsewhere_, rank) && !board_.answered()[static_cast<std::size_t>(rank)];
  };
  for (const int rank : waited_for) {
    if (silent(rank) || (watch_ && watch_->idle(rank, now))) return rank;
  }
  if (watch_) {
    if (const std::vector<int> idle = watch_->idle_ranks(now); !idle.empty()) return idle.front();
  }
  if (const auto found = std::ranges::find_if(elsewhere_, silent); found != elsewhere_.end()) return *found;
  return waited_for.empty() ? rank_ : waited_for.front();
}

std::string CommunicatorRuntime::state_of(int rank, Watch::Clock::time_point now) const {
  if (std::ranges::binary_search(elsewhere_, rank)) {
    return board_.answered()[static_cast<std::size_t>(rank)]
               ? "waits too"
               : "does not answer: it is stopped, or busy outside of all operations";
  }
  return watch_ ? watch_->state_of(rank, now) : "";
}

void CommunicatorRuntime::make_progress() {
  int idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    bool busy = false;
    try {
      const std::lock_guard lock(mutex_);
      if (failed_ || board_.poisoned()) return;
      busy = engine_->busy() || !services_.empty();
      if (busy && progress()) idle = 0;
    } catch (...) {
      failure_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
      return;
    }
    // Polls without sleeping while operations are pending and there was work recently; sleeps otherwise.
    if (busy && ++idle < thread_close_looks) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(busy ? thread_short_sleep : thread_long_sleep);
    }
  }
}

CommunicatorRuntime::~CommunicatorRuntime() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  board_.when_poisoned({});
  watch_.reset();
  ring_.reset();
  int finalized = 0;
  MPI_Finalized(&finalized);
  engine_.reset();
  if (finalized || board_.poisoned()) return;
  for (std::optional<FaultyTransport>* const faulty : {&faulty_shared_, &faulty_messages_}) {
    if (*faulty) end_faults(**faulty, std::chrono::steady_clock::now() + patience_at_the_end);
  }
  const bool all_read = !sends_messages_ || end_together();
  faulty_messages_.reset();
  messages_.reset();
  // Otherwise the communicator is leaked: MPI would deliver its unreceived messages to the next communicator with the
  // same number.
  if (all_read) MPI_Comm_free(&mpi_);
}

/// Receives all messages that are still on the way, so that connections close without unread data. Returns false after
/// patience_at_the_end, because other ranks may have failed undetected.
bool CommunicatorRuntime::end_together() noexcept {
  struct Counts {
    std::vector<int> sent;
    int expected = 0;
  };
  const auto deadline = std::chrono::steady_clock::now() + patience_at_the_end;
  const auto* const over_mpi = dynamic_cast<const MpiTransport*>(messages_.get());
  Deaf sink;
  try {
    // Leaked if the reduction is still pending at the deadline: MPI may still use the memory.
    auto* const counts = new Counts;
    counts->sent = over_mpi ? over_mpi->envelopes_sent() : std::vector<int>(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ireduce_scatter_block(counts->sent.data(), &counts->expected, 1, MPI_INT, MPI_SUM, mpi_, &request),
              "MPI_Ireduce_scatter_block");
    for (int counted = 0;; std::this_thread::yield()) {
      if (messages_) messages_->poll(sink);
      if (!counted) check_mpi(MPI_Test(&request, &counted, MPI_STATUS_IGNORE), "MPI_Test");
      if (counted && (!over_mpi || (over_mpi->envelopes_received() == counts->expected && messages_->flushed()))) {
        delete counts;
        return true;
      }
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
  } catch (const Error&) {  // the connections end in any case
    return false;
  }
}

}  // namespace aloni::comm::detail
