#include <aloni/core/comm/liveness/watch.hpp>

#include <aloni/core/error.hpp>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace aloni::comm::detail {

namespace {

struct Introduction {
  std::int32_t process = 0, descriptor = -1;
  std::uint64_t token = 0;
};

/// State of a process as the kernel's letter: R running, S sleeping, D waiting for a disk, T stopped, Z ended.
char state_of_process(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto end_of_name = text.rfind(')');  // a name may contain any character
  return end_of_name == std::string::npos || end_of_name + 2 >= text.size() ? '?' : text[end_of_name + 2];
}

std::int64_t nanoseconds(Watch::Clock::time_point t) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
}

// A waiting rank publishes this every few milliseconds, but may share its core with many ranks.
constexpr std::int64_t fresh_ns = 1'000'000'000;

}  // namespace

struct Watch::Page {
  static constexpr std::size_t text_bytes = 400;

  std::uint64_t token;
  std::atomic<std::uint32_t> left;
  std::atomic<std::int64_t> seen_waiting;  // time of the last waiting(), in ns; 0: never
  std::atomic<std::uint32_t> version;      // odd while the text is being written
  std::array<std::atomic<char>, text_bytes> text;
};

Watch::Peer::~Peer() {
  if (handle >= 0) close(handle);
}

std::string seconds_text(Watch::Clock::duration time) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(time).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

Watch::Watch(int rank, const std::vector<int>& ranks, const GatherBytes& all_gather)
    : rank_(rank), own_(sizeof(Page)), page_(reinterpret_cast<Page*>(own_.data())) {
  page_->token = random_token();
  const Introduction me{.process = getpid(), .descriptor = own_.descriptor(), .token = page_->token};
  const std::vector<Introduction> all = gather(all_gather, me);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == rank) continue;
    const Introduction& them = all[i];
    auto p = std::make_unique<Peer>();
    p->rank = ranks[i];
    try {
      p->segment = std::make_unique<SharedSegment>(them.process, them.descriptor, sizeof(Page));
      const auto* const page = reinterpret_cast<const Page*>(p->segment->data());
      if (page->token == them.token) {  // otherwise a foreign process with this PID in another namespace
        p->page = page;
        p->process = them.process;
        p->handle = static_cast<int>(syscall(SYS_pidfd_open, them.process, 0));
      }
    } catch (const CommunicationError&) {
      // This rank cannot watch that process. Only the time limit detects its failure.
    }
    peers_.push_back(std::move(p));
  }
  // All ranks wait until all processes are watched: a process that ends earlier could no longer be opened.
  all_gather(std::as_bytes(std::span(&me, 1)));
}

Watch::~Watch() { page_->left.store(1, std::memory_order_release); }

const Watch::Peer* Watch::peer(int rank) const {
  const auto found = std::ranges::find(peers_, rank, [](const auto& p) { return p->rank; });
  return found == peers_.end() ? nullptr : found->get();
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
      if (!(handles[i].revents & POLLIN) || p.page->left.load(std::memory_order_acquire)) continue;
      return Verdict{p.rank, "its process " + std::to_string(p.process) + " has ended"};
    }
  }
  return {};
}

void Watch::waiting(Clock::time_point now, const std::string& text) {
  page_->seen_waiting.store(nanoseconds(now), std::memory_order_relaxed);
  const std::uint32_t version = page_->version.load(std::memory_order_relaxed);
  page_->version.store(version + 1, std::memory_order_release);
  const std::size_t n = std::min(text.size(), Page::text_bytes - 1);
  for (std::size_t i = 0; i < n; ++i) page_->text[i].store(text[i], std::memory_order_relaxed);
  page_->text[n].store('\0', std::memory_order_relaxed);
  page_->version.store(version + 2, std::memory_order_release);
}

bool Watch::is_waiting(const Page& page, Clock::time_point now) {
  return nanoseconds(now) - page.seen_waiting.load(std::memory_order_relaxed) < fresh_ns;
}

std::string Watch::state_of(int rank, Clock::time_point now) const {
  const Peer* const p = peer(rank);
  if (!p || !p->page) return "";
  if (is_waiting(*p->page, now)) {
    std::string text;
    for (int attempt = 0; attempt < 10; ++attempt) {
      const std::uint32_t before = p->page->version.load(std::memory_order_acquire);
      text.clear();
      for (const auto& c : p->page->text) {
        const char letter = c.load(std::memory_order_relaxed);
        if (letter == '\0') break;
        text += letter;
      }
      if (before % 2 == 0 && p->page->version.load(std::memory_order_acquire) == before) break;
    }
    return "waits for " + text;
  }
  const char state = state_of_process(p->process);
  const std::string who = "process " + std::to_string(p->process);
  if (state == 'T' || state == 't') return who + " is stopped";
  if (state == 'Z' || state == '?') return who + " has ended";
  const std::int64_t seen = p->page->seen_waiting.load(std::memory_order_relaxed);
  return who + (state == 'R' ? " runs" : " sleeps") + " outside of all operations" +
         (seen == 0 ? ""
                    : ", last seen in one " + seconds_text(std::chrono::nanoseconds(nanoseconds(now) - seen)) + " ago");
}

bool Watch::idle(int rank, Clock::time_point now) const {
  const Peer* const p = peer(rank);
  return p && p->page && !is_waiting(*p->page, now);
}

std::vector<int> Watch::idle_ranks(Clock::time_point now) const {
  std::vector<int> ranks;
  for (const auto& p : peers_) {
    if (idle(p->rank, now) && !p->page->left.load(std::memory_order_acquire)) ranks.push_back(p->rank);
  }
  return ranks;
}

}  // namespace aloni::comm::detail
