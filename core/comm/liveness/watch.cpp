#include <aloni/core/comm/liveness/watch.hpp>

#include <aloni/core/comm/liveness/job_processes.hpp>
#include <aloni/core/error.hpp>

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace aloni::comm::detail {

namespace {

struct Introduction {
  std::int32_t process = 0, descriptor = -1;
  std::uint64_t token = 0, process_namespace = 0;
};

/// Number of the PID namespace: equal PIDs of two processes mean the same process only within one namespace.
std::uint64_t own_process_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

std::int64_t nanoseconds(Watch::Clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

/// Time on processors in ticks, of the user and the system, from a file like /proc/1/stat; 0 if there is none.
std::int64_t ticks_of(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return 0;
  std::istringstream fields(text.substr(end_of_name + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;  // fields 14 and 15 of proc(5)
  std::int64_t user = 0, system = 0;
  fields >> user >> system;
  return user + system;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// A waiting rank publishes this every few milliseconds, but may share its core with many ranks.
constexpr std::int64_t fresh_ns = 1'000'000'000;
constexpr auto measuring = std::chrono::seconds(2);

}  // namespace

/// A text in shared memory with one writer and readers that never wait (Boehm, "Can seqlocks get along with programming
/// language memory models?", 2012).
template <std::size_t capacity>
class SharedText {
 public:
  void write(std::string_view text) {
    const std::uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    const std::size_t n = std::min(text.size(), capacity - 1);
    for (std::size_t i = 0; i < n; ++i) letters_[i].store(text[i], std::memory_order_relaxed);
    letters_[n].store('\0', std::memory_order_relaxed);
    version_.store(version + 2, std::memory_order_release);
  }

  /// Empty if the writer has written during each of ten attempts.
  std::string read() const {
    std::string text;
    for (int attempt = 0; attempt < 10; ++attempt) {
      const std::uint32_t before = version_.load(std::memory_order_acquire);
      text.clear();
      for (const auto& c : letters_) {
        const char letter = c.load(std::memory_order_relaxed);
        if (letter == '\0') break;
        text += letter;
      }
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) return text;
    }
    return "";
  }

 private:
  std::atomic<std::uint32_t> version_;  // odd while the text is being written
  std::array<std::atomic<char>, capacity> letters_;
};

// Zeros are the initial value of all its fields.
struct Watch::Page {
  std::uint64_t token;
  std::atomic<std::uint32_t> left;
  std::atomic<std::int32_t> failed;     // 1 + the failed rank by which the family was poisoned; 0: none
  std::atomic<std::int64_t> failed_at;  // time of fail(), in ns
  SharedText<1024> failure;
  std::atomic<std::uint32_t> told;     // of the lowest rank of the node: a rank has taken it over to print the failure
  std::atomic<std::int64_t> warned;    // of the lowest rank of the node: time of the last warning, in ns
  std::atomic<std::int32_t> left_out;  // leave_out_this_thread(); 0: none
  std::atomic<std::uint64_t> last_start;   // Engine::last_start()
  std::atomic<std::int64_t> seen_waiting;  // time of the last waiting(), in ns; 0: never
  SharedText<400> waits_for;
};

Watch::Peer::~Peer() {
  if (handle >= 0) close(handle);
}

std::string seconds_text(Watch::Clock::duration time) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(time).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

Watch::Watch(int rank, const std::vector<int>& ranks, const GatherBytes& all_gather)
    : rank_(rank),
      own_(SharedSegment::why_not_available().empty() ? SharedSegment(sizeof(Page))
                                                      : SharedSegment::not_shared(sizeof(Page))),
      page_(reinterpret_cast<Page*>(own_.data())) {
  page_->token = random_token();
  const Introduction me{.process = getpid(),
                        .descriptor = own_.descriptor(),
                        .token = page_->token,
                        .process_namespace = own_process_namespace()};
  const std::vector<Introduction> all = gather(all_gather, me);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == rank) continue;
    const Introduction& them = all[i];
    auto p = std::make_unique<Peer>();
    p->rank = ranks[i];
    if (them.process_namespace != 0 && them.process_namespace == me.process_namespace) {
      p->process = them.process;
      p->handle = static_cast<int>(syscall(SYS_pidfd_open, them.process, 0));
    }
    try {
      if (p->process >= 0 && them.descriptor >= 0) {
        auto segment = std::make_unique<SharedSegment>(them.process, them.descriptor, sizeof(Page));
        if (reinterpret_cast<const Page*>(segment->data())->token == them.token) p->segment = std::move(segment);
      }
    } catch (const CommunicationError&) {  // nobody knows what that rank does
    }
    if (p->segment) p->page = reinterpret_cast<Page*>(p->segment->data());
    peers_.push_back(std::move(p));
  }
  // All ranks wait until all processes are watched: a process that ends earlier could no longer be opened.
  all_gather(std::as_bytes(std::span(&me, 1)));
}

Watch::~Watch() { page_->left.store(1, std::memory_order_release); }

Watch::Peer* Watch::peer(int rank) const {
  const auto found = std::ranges::find(peers_, rank, [](const auto& p) { return p->rank; });
  return found == peers_.end() ? nullptr : found->get();
}

/// "; it last started all_reduce, operation 7"
std::string Watch::last_start_of(const Page& page) {
  const std::uint64_t last = page.last_start.load(std::memory_order_relaxed);
  if (last == 0) return "";
  return "; it last started " + std::string(name(static_cast<OperationKind>((last >> 32) - 1))) + ", operation " +
         std::to_string(static_cast<std::uint32_t>(last));
}

std::optional<Watch::Verdict> Watch::dead() const {
  std::array<pollfd, 64> handles;
  for (std::size_t first = 0; first < peers_.size(); first += handles.size()) {
    const std::size_t count = std::min(handles.size(), peers_.size() - first);
    for (std::size_t i = 0; i < count; ++i)
      handles[i] = {.fd = peers_[first + i]->handle, .events = POLLIN, .revents = 0};  // below 0: ignored
    if (poll(handles.data(), count, 0) <= 0) continue;
    for (std::size_t i = 0; i < count; ++i) {
      const Peer& p = *peers_[first + i];
      if (!(handles[i].revents & POLLIN) || (p.page && p.page->left.load(std::memory_order_acquire))) continue;
      std::string what = "its process " + std::to_string(p.process) + " on " + host_name() + " has ended";
      if (p.page) what += last_start_of(*p.page);
      return Verdict{p.rank, what};
    }
  }
  return {};
}

void Watch::waiting(Clock::time_point now, const std::string& text) {
  page_->seen_waiting.store(nanoseconds(now), std::memory_order_relaxed);
  page_->waits_for.write(text);
}

void Watch::fail(int rank, const std::string& what) {
  page_->failure.write(what);
  page_->failed_at.store(nanoseconds(Clock::now()), std::memory_order_relaxed);
  page_->failed.store(rank + 1, std::memory_order_release);
}

std::optional<Watch::Verdict> Watch::failure() const {
  const Page* first = nullptr;
  for (const auto& p : peers_) {
    if (!p->page || p->page->failed.load(std::memory_order_acquire) == 0) continue;
    if (!first || p->page->failed_at.load(std::memory_order_relaxed) < first->failed_at.load(std::memory_order_relaxed))
      first = p->page;
  }
  if (!first) return {};
  return Verdict{first->failed.load(std::memory_order_acquire) - 1, first->failure.read()};
}

bool Watch::claim_report() {
  const auto first = std::ranges::find_if(peers_, [](const auto& p) { return p->page != nullptr; });
  const bool mine = first == peers_.end() || (*first)->rank > rank_;
  return (mine ? page_ : (*first)->page)->told.exchange(1) == 0;
}

bool Watch::claim_warning(Clock::time_point now, Clock::duration pause) {
  const auto first = std::ranges::find_if(peers_, [](const auto& p) { return p->page != nullptr; });
  const bool mine = first == peers_.end() || (*first)->rank > rank_;
  std::atomic<std::int64_t>& warned = (mine ? page_ : (*first)->page)->warned;
  std::int64_t last = warned.load();
  if (last != 0 && nanoseconds(now) - last < std::chrono::nanoseconds(pause).count()) return false;
  return warned.compare_exchange_strong(last, nanoseconds(now));
}

std::atomic<std::uint64_t>& Watch::last_start() { return page_->last_start; }

bool Watch::is_waiting(const Page& page, Clock::time_point now) {
  return nanoseconds(now) - page.seen_waiting.load(std::memory_order_relaxed) < fresh_ns;
}

std::string Watch::state_of(int rank, Clock::time_point now) const {
  const Peer* const p = peer(rank);
  if (!p || !p->page) return "";
  if (is_waiting(*p->page, now)) {
    const std::string text = p->page->waits_for.read();
    return text.empty() ? "waits" : "waits for " + text;
  }
  const char state = state_of_process(p->process);
  const std::string who = "process " + std::to_string(p->process) + " on " + host_name();
  if (is_stopped(state)) return who + " is stopped" + last_start_of(*p->page);
  if (state == 'Z' || state == '?') return who + " has ended";
  const std::int64_t seen = p->page->seen_waiting.load(std::memory_order_relaxed);
  return who + " " + std::string(text_of_state(state)) + " outside of all operations" +
         (seen == 0 ? ""
                    : ", last seen in one " + seconds_text(std::chrono::nanoseconds(nanoseconds(now) - seen)) + " ago");
}

bool Watch::idle(int rank, Clock::time_point now) const {
  const Peer* const p = peer(rank);
  return p && p->page && !is_waiting(*p->page, now);
}

bool Watch::works(int rank, Clock::time_point now, Clock::time_point since) {
  Peer* const p = peer(rank);
  if (!p || !p->page) return false;
  const char state = state_of_process(p->process);
  if (is_stopped(state) || state == 'Z' || state == '?') return false;
  const auto ticks = [&] {
    const int thread = p->page->left_out.load(std::memory_order_relaxed);
    return ticks_of("/proc/" + std::to_string(p->process) + "/stat") -
           (thread == 0
                ? 0
                : ticks_of("/proc/" + std::to_string(p->process) + "/task/" + std::to_string(thread) + "/stat"));
  };
  if (p->since != since) {
    p->since = since;
    p->measured = now;
    p->ticks = ticks();
    p->works = true;
  } else if (now - p->measured > measuring) {
    // A fiftieth of the time: a sleeping rank may have a thread that looks around.
    const std::int64_t used = ticks() - p->ticks, passed = (now - p->measured) / std::chrono::seconds(1);
    p->works = used * 50 > passed * sysconf(_SC_CLK_TCK);
    p->measured = now;
    p->ticks += used;
  }
  return p->works || state == 'D';
}

void Watch::leave_out_this_thread() { page_->left_out.store(gettid(), std::memory_order_relaxed); }

std::vector<int> Watch::idle_ranks(Clock::time_point now) const {
  std::vector<int> ranks;
  for (const auto& p : peers_) {
    if (idle(p->rank, now) && !p->page->left.load(std::memory_order_acquire)) ranks.push_back(p->rank);
  }
  return ranks;
}

}  // namespace aloni::comm::detail
