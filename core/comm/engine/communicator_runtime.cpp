#include <aloni/core/comm/device/device_memory.hpp>
#include <aloni/core/comm/engine/communicator_runtime.hpp>
#include <aloni/core/comm/engine/trial_message.hpp>

#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/comm/transport/mpi_transport.hpp>
#include <aloni/core/comm/transport/ucx_transport.hpp>
#include <aloni/core/config.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/give_way.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/core/notice.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace aloni::comm::detail {

namespace {

// The destructor waits this long for other ranks, which may be late or may have failed undetected.
constexpr auto patience_at_the_end = std::chrono::seconds(1);

constexpr std::size_t whole_message = std::numeric_limits<std::size_t>::max();

/// Largest fragment of MPI messages between nodes, in bytes.
std::size_t fragment_bytes_of(const TransportOptions& options) {
  if (options.messages != MessageTransport::mpi) return whole_message;
  if (options.mpi_fragment_bytes > 0) return options.mpi_fragment_bytes;
  // Devices with remote direct memory access: InfiniBand, RoCE, Omni-Path and EFA; Slingshot.
  for (const char* const devices : {"/sys/class/infiniband", "/sys/class/cxi"}) {
    std::error_code none;
    if (!std::filesystem::is_empty(devices, none) && !none) return whole_message;
  }
  return static_cast<std::size_t>(fragment_bytes_over_tcp);
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
    for (; !faulty.flushed() && std::chrono::steady_clock::now() < deadline; give_way()) faulty.poll(sink);
  } catch (const Error&) {  // the receiver has ended already
  }
}

/// What each rank tells all others first.
struct Hello {
  static constexpr std::array names{"shared_memory", "messages",     "progress_thread",    "checksums",
                                    "stuck_after",   "longest_wait", "mpi_fragment_bytes", "ranks_per_node"};

  std::uint64_t machine = 0;
  std::uint32_t shares_memory = 0;
  std::array<std::int64_t, names.size()> options{};

  Hello() = default;
  explicit Hello(const TransportOptions& o)
      : machine(machine_number()),
        shares_memory(SharedSegment::why_not_available().empty() ? 1 : 0),
        options{o.shared_memory,
                static_cast<std::int64_t>(o.messages),
                o.progress_thread,
                o.checksums,
                o.stuck_after.count(),
                o.longest_wait.count(),
                static_cast<std::int64_t>(o.mpi_fragment_bytes),
                o.ranks_per_node} {}

  /// Equal for two processes that run on one machine. Host names too, because containers share a kernel.
  static std::uint64_t machine_number() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    file >> id;
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    std::uint64_t h = 1469598103934665603u;  // FNV-1a
    for (const char c : id + "/" + host) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
    return h;
  }
};

/// Once per process and node, because each family of communicators finds it again. Another rank's reason is not known.
void say_why_not_shared(int refused_rank) {
  static bool said = false;
  if (std::exchange(said, true)) return;
  const std::string reason = SharedSegment::why_not_available();
  notice("shared memory is refused (" + (reason.empty() ? "on rank " + std::to_string(refused_rank) : reason) +
         "); ranks of this node exchange messages through MPI");
}

/// Throws InvalidArgument on all ranks if any option differs between ranks.
void check_equal(const std::vector<Hello>& all) {
  for (std::size_t o = 0; o < Hello::names.size(); ++o) {
    for (std::size_t r = 1; r < all.size(); ++r) {
      const auto first = all.front().options[o], other = all[r].options[o];
      if (first == other) continue;
      throw InvalidArgument(
          "aloni::comm::from_mpi", std::string("options.") + Hello::names[o],
          std::to_string(first) + " on rank 0, " + std::to_string(other) + " on rank " + std::to_string(r),
          "the same value on all ranks");
    }
  }
}

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
// Poison that a process has sent before its end arrives within this time.
constexpr auto time_of_last_words = std::chrono::milliseconds(20);
// A process that has closed its files is known to have ended within this time, on a busy machine too.
constexpr auto time_of_death = std::chrono::seconds(1);
constexpr auto warning_pause = std::chrono::minutes(1);
constexpr auto longest_pause = std::chrono::milliseconds(500);
// A waiting rank of another node answers within this time, even if it shares its core with many ranks.
constexpr auto time_to_answer = std::chrono::milliseconds(1000);
// A rank that has worked until now and waits at last: its messages arrive within this time.
constexpr auto time_to_arrive = std::chrono::milliseconds(1000);
constexpr auto time_between_questions = std::chrono::seconds(3);

}  // namespace

CommunicatorRuntime::CommunicatorRuntime(StartUp& start_up, MPI_Comm messages, MPI_Comm poison,
                                         const TransportOptions& options)
    : mpi_(messages),
      rank_(start_up.rank()),
      size_(start_up.size()),
      board_(poison),
      stuck_after_(options.stuck_after),
      longest_wait_(options.longest_wait),
      fragment_bytes_(fragment_bytes_of(options)) {
  const GatherBytes among_all = [&](std::span<const std::byte> mine) { return start_up.all_gather(mine); };
  const std::vector<Hello> hellos = gather(among_all, Hello(options));
  check_equal(hellos);
  // A node is a machine, or a group of ranks of one machine.
  std::map<std::pair<std::uint64_t, int>, int> lowest;
  std::vector<int> ranks, on_machine;  // of this node, of this machine
  bool share_memory = options.shared_memory;
  int refused_rank = -1;  // of this node
  const auto key = [&](int r) {
    return std::pair{hellos[static_cast<std::size_t>(r)].machine,
                     options.ranks_per_node > 0 ? r / options.ranks_per_node : 0};
  };
  for (int r = 0; r < size_; ++r) {
    node_of_.push_back(lowest.try_emplace(key(r), r).first->second);
    if (key(r).first == key(rank_).first) on_machine.push_back(r);
    if (key(r) != key(rank_)) continue;
    ranks.push_back(r);
    if (hellos[static_cast<std::size_t>(r)].shares_memory) continue;
    share_memory = false;
    if (refused_rank < 0) refused_rank = r;
  }
  shares_cores_ = static_cast<long>(on_machine.size()) > sysconf(_SC_NPROCESSORS_ONLN);
  heap_ = std::make_shared<SharedHeap>(hellos[static_cast<std::size_t>(rank_)].shares_memory != 0);
  if (options.shared_memory && refused_rank >= 0 && ranks.size() > 1 && ranks.front() == rank_)
    say_why_not_shared(refused_rank);
  bool complete = false;  // whether all ranks of the node reach each other's memory
  if (size_ > 1) {
    const auto among = [&](const std::vector<int>& some) {
      return [&](std::span<const std::byte> mine) { return start_up.all_gather(mine, some); };
    };
    // Groups of ranks that stand for nodes share a kernel, so they can watch each other as well.
    watch_.emplace(rank_, on_machine, among(on_machine));
    start_up.use(&*watch_);
    // Every rank of the family takes part in the calls of every node: their number is equal on all ranks.
    const GatherBytes among_node = among(ranks);
    bool complete_here = false;
    if (share_memory && ranks.size() > 1) {
      shared_.emplace(*heap_, rank_, ranks, among_node);
      complete_here = std::ranges::all_of(ranks, [&](int r) { return r == rank_ || shared_->reaches(r); });
    } else {
      for (int call = 0; call < SharedTransport::calls_of_construction; ++call) among_node({});
    }
    const auto votes = gather(among_node, static_cast<char>(complete_here));
    complete = std::ranges::all_of(votes, [](char vote) { return vote != 0; });
  }
  island_of_ = gather(among_all, complete ? node_of_[static_cast<std::size_t>(rank_)] : rank_);
  for (int r = 0; r < size_; ++r) {
    const bool other_node = node_of_[static_cast<std::size_t>(r)] != node_of_[static_cast<std::size_t>(rank_)];
    if (other_node || (r != rank_ && !watch_->sees(r))) elsewhere_.push_back(r);
  }
  std::vector<int> leaders(node_of_);
  std::ranges::sort(leaders);
  leaders.erase(std::ranges::unique(leaders).begin(), leaders.end());
  if (leaders.size() > 1) {
    const bool one_machine =
        std::ranges::all_of(hellos, [&](const Hello& h) { return h.machine == hellos.front().machine; });
    ring_.emplace(rank_, leaders, one_machine, among_all);
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
                                     [&](const std::function<void()>& progress) { start_up.barrier(progress); });
    }
  }
  const bool through_mpi = !(config::has_ucx && options.messages == MessageTransport::ucx);
  const bool device_memory = build_has_devices() && sends_messages_ && through_mpi &&
                             trial_messages_arrive(mpi_, start_up, mpi_reports_device_memory(), make_trial_memory);
  if (!others.empty() && !messages_) {
    std::vector<std::size_t> largest(static_cast<std::size_t>(size_), whole_message);
    for (std::size_t r = 0; r < largest.size(); ++r)
      if (node_of_[r] != node_of_[static_cast<std::size_t>(rank_)]) largest[r] = fragment_bytes_;
    messages_ = std::make_unique<MpiTransport>(mpi_, std::move(largest), device_memory);
  }
  Transport* messages_route = messages_.get();
  if (messages_ && faults.any())
    messages_route = &faulty_messages_.emplace(*messages_, with_own_seed(faults, 2 * rank_ + 1));
  std::ranges::replace(routes, static_cast<Transport*>(nullptr), messages_route);
  engine_.emplace(rank_, std::move(routes), *heap_);
  engine_->set_checksums(options.checksums);
  if (watch_) engine_->set_journal(&watch_->last_start());
  if (options.progress_thread) {
    int level = MPI_THREAD_SINGLE;
    check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
    // The UCX worker has UCS_THREAD_MODE_SINGLE.
    const bool unsafe = messages_ && (level < MPI_THREAD_MULTIPLE || options.messages == MessageTransport::ucx);
    if (std::ranges::any_of(gather(among_all, static_cast<char>(unsafe)), [](char u) { return u != 0; })) {
      throw Unsupported("aloni::comm::from_mpi", "options.progress_thread", "true with messages over MPI or UCX",
                        "messages over MPI with MPI_THREAD_MULTIPLE, ranks that all share memory, or false");
    }
  }
  board_.when_asked([this] {
    std::vector<int> stuck;
    const auto now = Watch::Clock::now();
    if (watch_) {
      for (const int r : watch_->idle_ranks(now))
        if (!watch_->works(r, now, waiting_since_)) stuck.push_back(r);
    }
    return stuck;
  });
  board_.when_poisoned([this] {
    if (watch_) watch_->fail(board_.failed_rank(), board_.message());
    for (Transport* t : engine_->routes()) t->abandon();
    for (const auto& weak : device_collectives_)
      if (const auto collectives = weak.lock()) collectives->end_all();
    if (device_heap_) device_heap_->abandon();  // its words are in the heap
    heap_->detach();
  });
  set_device(device_sharing_of_process());
  start_up.finish();
  start_up.use(nullptr);
  if (options.progress_thread) thread_ = std::thread([this] { make_progress(); });
}

void CommunicatorRuntime::set_device(std::shared_ptr<DeviceSharing> device) {
  device_ = std::move(device);
  device_heap_ = device_ && shared_ ? std::make_shared<DeviceHeap>(device_, heap_) : nullptr;
}

void CommunicatorRuntime::watch(const std::shared_ptr<DeviceCollectives>& collectives) {
  if (!collectives) return;
  const auto held = guard();
  device_collectives_.emplace_back(collectives);
}

void CommunicatorRuntime::look_at_device_collectives() {
  std::erase_if(device_collectives_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : device_collectives_)
    if (const auto collectives = weak.lock()) collectives->look();
}

void CommunicatorRuntime::look_around(bool waits) {
  const auto now = Watch::Clock::now();
  if (now - last_look_ < shortest_pause) return;
  // Long gaps between calls mean that this rank does not wait.
  if (!waits || waiting_since_ == Watch::Clock::time_point{} || now - last_look_ > longest_pause) waiting_since_ = now;
  last_look_ = now;
  if (board_.poisoned()) return;
  if (watch_) {  // it knows more of a rank than the ring
    if (const auto failure = watch_->failure()) return board_.hear(failure->what, failure->rank);
    if (const auto verdict = watch_->dead()) return poison_after_last_words(*verdict);
  }
  if (ring_) {
    if (const auto verdict = ring_->dead()) return poison_after_last_words(*verdict);
  }
  if (watch_) {
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
  if (stuck_after_.count() == 0) return;
  if (!elsewhere_.empty()) {  // asked so early that the answers are here in time
    const auto ask_after = std::max<Watch::Clock::duration>(stuck_after_ - time_to_answer, stuck_after_ / 2);
    if (now - waiting_since_ < ask_after) return;
    if (asked_ < waiting_since_ || now - asked_ > time_between_questions) {
      asked_ = now;
      return board_.ask(elsewhere_);
    }
    if (now - asked_ < time_to_answer) return;
  }
  if (now - waiting_since_ < stuck_after_) return;
  const std::vector<int> waited_for = engine_->ranks_waited_for();
  const int culprit = who_does_not_wait(now, waited_for);
  if (now - waiting_since_ < longest_wait_ && works(culprit, now)) {
    last_excused_ = now;
    return;
  }
  if (now - last_excused_ < time_to_arrive) return;
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

/// Whether a rank that does not wait may still come: it computes or waits for a disk, or nobody knows. Warns once a
/// minute. A rank that sleeps or is stopped does not work.
bool CommunicatorRuntime::works(int rank, Watch::Clock::time_point now) {
  if (rank == rank_) return false;  // it waits, and so do all others: no rank is to blame
  if (watch_ && watch_->sees(rank)) {
    if (!watch_->idle(rank, now) || !watch_->works(rank, now, waiting_since_)) return false;
  } else {
    if (board_.answered()[static_cast<std::size_t>(rank)]) return false;
    // Silent: busy or stopped. Ranks of its node that wait have said so.
    if (std::ranges::find(board_.stuck(), rank) != board_.stuck().end()) return false;
  }
  if (!watch_ || watch_->claim_warning(now, warning_pause)) {
    notice("rank " + std::to_string(rank_) + " has waited " + seconds_text(now - waiting_since_) + " for rank " +
           std::to_string(rank) + ": " + state_of(rank, now));
  }
  return true;
}

/// A process has ended. If it had failed, or found the failure of another rank, it said so before.
void CommunicatorRuntime::poison_after_last_words(const Watch::Verdict& verdict) {
  for (const auto start = Watch::Clock::now(); Watch::Clock::now() - start < time_of_last_words;) {
    if (watch_) {
      if (const auto failure = watch_->failure()) return board_.hear(failure->what, failure->rank);
    }
    board_.look();
    if (board_.poisoned()) return;
    give_way();
  }
  board_.poison(verdict.what, verdict.rank);
}

// A process closes its files before its handle shows its end.
void CommunicatorRuntime::poison_unless_peer_failed(std::string_view message) {
  const auto held = guard();
  for (const auto start = Watch::Clock::now(); Watch::Clock::now() - start < time_of_death; give_way()) {
    look_around(false);
    board_.look();
    if (board_.poisoned()) return;
  }
  board_.poison(message);
}

/// The rank that failed. A rank in `waited_for` may itself wait for another rank. So it is preferably a rank that does
/// not wait; otherwise the first of `waited_for`.
int CommunicatorRuntime::who_does_not_wait(Watch::Clock::time_point now, std::span<const int> waited_for) const {
  const auto silent = [&](int rank) {
    return std::ranges::binary_search(elsewhere_, rank) && !(watch_ && watch_->sees(rank)) &&
           !board_.answered()[static_cast<std::size_t>(rank)];
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
  if (rank == rank_) return "all ranks wait";
  if (!watch_ || !watch_->sees(rank)) {
    return board_.answered()[static_cast<std::size_t>(rank)]
               ? "waits too"
               : "does not answer: it is stopped, or busy outside of all operations";
  }
  return watch_->state_of(rank, now);
}

/// An exception of the progress thread. This rank rethrows it from its next call. The other ranks of the node learn of
/// it at once, as MPI may not be called here.
void CommunicatorRuntime::publish(std::exception_ptr failure) {
  failure_ = std::move(failure);
  try {
    std::rethrow_exception(failure_);
  } catch (const PeerMemoryLost&) {  // another rank may have failed
  } catch (const CommunicationError& error) {
    if (watch_) watch_->fail(rank_, error.what());
  } catch (...) {
  }
  failed_.store(true, std::memory_order_release);
}

void CommunicatorRuntime::make_progress() {
  if (watch_) watch_->leave_out_this_thread();
  int idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    bool busy = false;
    try {
      const std::lock_guard lock(mutex_);
      if (failed_ || board_.poisoned()) return;
      busy = engine_->busy() || !services_.empty();
      if (busy && progress()) idle = 0;
    } catch (...) {
      publish(std::current_exception());
      return;
    }
    // Polls without sleeping while operations are pending and there was work recently; sleeps otherwise.
    if (busy && ++idle < thread_close_looks) {
      give_way();
    } else {
      std::this_thread::sleep_for(busy ? thread_short_sleep : thread_long_sleep);
    }
  }
}

CommunicatorRuntime::~CommunicatorRuntime() {
  if (std::uncaught_exceptions() > exceptions_) poison("an exception has ended the block that holds its communicator");
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  board_.when_poisoned({});
  board_.when_asked({});
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
    for (int counted = 0;; give_way()) {
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
