#include <aloni/core/comm/liveness/node_ring.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

namespace aloni::comm::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto patience = std::chrono::seconds(2);
constexpr std::size_t max_addresses = 6;
constexpr char farewell = 'L';
// Idle connections are probed. A connection without an answer for half a minute has failed.
constexpr int probe_after_s = 10, probe_interval_s = 5, probes = 4;
constexpr int silent_ms = (probe_after_s + probe_interval_s * probes) * 1000;

/// Connection data of a rank, sent to all ranks. Trivially copyable.
struct Introduction {
  std::uint64_t token = 0;
  std::uint16_t ports[2] = {};  // IPv4 and IPv6 ports in network byte order; 0: none
  std::uint32_t num_addresses = 0;
  struct Address {
    std::uint32_t is_v6 = 0;
    std::uint8_t bytes[16] = {};
  } addresses[max_addresses];
};

/// A descriptor that closes itself.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

Socket new_socket(int family) { return Socket(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

/// Listens on a port that the system chooses. Stores it in `port`.
Socket listen_on(int family, std::uint16_t& port) {
  Socket s = new_socket(family);
  if (!s) return {};
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const int on = 1;
  if (family == AF_INET6) setsockopt(s.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (bind(s.get(), plain, length) != 0 || listen(s.get(), 8) != 0 || getsockname(s.get(), plain, &length) != 0)
    return {};
  port = family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                            : reinterpret_cast<sockaddr_in*>(&address)->sin_port;
  return s;
}

void add_addresses(Introduction& me, bool one_machine) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  for (const ifaddrs* i = list; i && me.num_addresses < max_addresses; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || static_cast<bool>(i->ifa_flags & IFF_LOOPBACK) != one_machine)
      continue;
    Introduction::Address& a = me.addresses[me.num_addresses];
    if (i->ifa_addr->sa_family == AF_INET) {
      a.is_v6 = 0;
      std::memcpy(a.bytes, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, 4);
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;  // has no meaning without an interface
      a.is_v6 = 1;
      std::memcpy(a.bytes, &v6->sin6_addr, 16);
    } else {
      continue;
    }
    ++me.num_addresses;
  }
  freeifaddrs(list);
}

/// Starts a connection to each address of a rank.
std::vector<Socket> call(const Introduction& them) {
  std::vector<Socket> calls;
  for (std::uint32_t i = 0; i < std::min<std::size_t>(them.num_addresses, max_addresses); ++i) {
    const Introduction::Address& a = them.addresses[i];
    if (them.ports[a.is_v6 ? 1 : 0] == 0) continue;
    Socket s = new_socket(a.is_v6 ? AF_INET6 : AF_INET);
    if (!s) continue;
    int status = 0;
    if (a.is_v6) {
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_port = them.ports[1];
      std::memcpy(&address.sin6_addr, a.bytes, 16);
      status = connect(s.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = them.ports[0];
      std::memcpy(&address.sin_addr, a.bytes, 4);
      status = connect(s.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    }
    if (status == 0 || errno == EINPROGRESS) calls.push_back(std::move(s));
  }
  return calls;
}

bool say(const Socket& s, std::uint64_t token) {
  return send(s.get(), &token, sizeof token, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof token);
}

/// Whether the other side has sent `token`. Assumes that eight bytes arrive in one piece; otherwise the call fails.
bool hears(const Socket& s, std::uint64_t token) {
  std::uint64_t heard = 0;
  return recv(s.get(), &heard, sizeof heard, 0) == static_cast<ssize_t>(sizeof heard) && heard == token;
}

/// Connects to the next rank and accepts the connection of the previous rank. The caller sends the token of the called
/// rank; the called rank answers with the token of the caller.
struct Meeting {
  std::vector<Socket> listening, calls, callers;
  std::vector<bool> has_spoken;  // for each call, whether the token was sent
  Socket next, previous;

  void hold(std::uint64_t mine, std::uint64_t of_next, std::uint64_t of_previous) {
    const auto deadline = Clock::now() + patience;
    has_spoken.assign(calls.size(), false);
    while ((!next && !calls.empty()) || !previous) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (left <= 0) return;
      std::vector<pollfd> events;
      const auto add = [&](const Socket& s, short what) {
        events.push_back({.fd = s.get(), .events = what, .revents = 0});
      };
      for (const Socket& s : listening) add(s, POLLIN);
      for (const Socket& s : callers) add(s, POLLIN);
      const std::size_t first_call = events.size();
      if (!next) {
        for (std::size_t i = 0; i < calls.size(); ++i) add(calls[i], has_spoken[i] ? POLLIN : POLLOUT);
      }
      if (poll(events.data(), events.size(), static_cast<int>(left)) < 0 && errno != EINTR) return;
      if (!next) answer_calls(std::span(events).subspan(first_call), mine, of_next);
      std::vector<Socket> silent;
      for (std::size_t i = 0; i < callers.size(); ++i) {
        if (!events[listening.size() + i].revents) {
          silent.push_back(std::move(callers[i]));
        } else if (!previous && hears(callers[i], mine) && say(callers[i], of_previous)) {
          previous = std::move(callers[i]);
        }
      }
      callers = std::move(silent);
      for (const Socket& s : listening) {
        if (Socket caller(accept4(s.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)); caller)
          callers.push_back(std::move(caller));
      }
    }
  }

  void answer_calls(std::span<const pollfd> events, std::uint64_t mine, std::uint64_t of_next) {
    std::vector<Socket> open;
    std::vector<bool> spoken;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      bool keeps = true, has = has_spoken[i];
      if (events[i].revents && !next) {
        if (has) {
          keeps = false;
          if (hears(calls[i], mine)) next = std::move(calls[i]);
        } else {
          keeps = has = say(calls[i], of_next);  // fails if the connection was not accepted
        }
      }
      if (!keeps) continue;
      open.push_back(std::move(calls[i]));
      spoken.push_back(has);
    }
    calls = std::move(open);
    has_spoken = std::move(spoken);
  }
};

void probe(int socket) {
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &probe_after_s, sizeof probe_after_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &probe_interval_s, sizeof probe_interval_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof silent_ms);
}

}  // namespace

void NodeRing::Link::close_socket() {
  if (socket >= 0) close(socket);
  socket = -1;
}

NodeRing::NodeRing(int rank, const std::vector<int>& leaders, bool one_machine, const GatherBytes& all_gather) {
  const auto found = std::ranges::find(leaders, rank);
  const bool takes_part = found != leaders.end() && leaders.size() > 1;
  Introduction me;
  Meeting meeting;
  if (takes_part) {
    me.token = random_token();
    for (const int family : {AF_INET, AF_INET6}) {
      if (Socket s = listen_on(family, me.ports[family == AF_INET6 ? 1 : 0]); s)
        meeting.listening.push_back(std::move(s));
    }
    add_addresses(me, one_machine);
  }
  const std::vector<Introduction> all = gather(all_gather, me);
  struct Success {
    bool next = false, previous = false;
  } success;
  if (takes_part) {
    const auto place = static_cast<std::size_t>(found - leaders.begin());
    next_.rank = leaders[(place + 1) % leaders.size()];
    previous_.rank = leaders[(place + leaders.size() - 1) % leaders.size()];
    const Introduction &of_next = all[static_cast<std::size_t>(next_.rank)],
                       &of_previous = all[static_cast<std::size_t>(previous_.rank)];
    meeting.calls = call(of_next);
    meeting.hold(me.token, of_next.token, of_previous.token);
    success = {static_cast<bool>(meeting.next), static_cast<bool>(meeting.previous)};
  }
  // A connection is used only if it succeeded on both ends. Otherwise one end would close it, and the other end would
  // report a failure.
  const std::vector<Success> successes = gather(all_gather, success);
  if (!takes_part) return;
  if (success.next && successes[static_cast<std::size_t>(next_.rank)].previous) next_.socket = meeting.next.release();
  if (success.previous && successes[static_cast<std::size_t>(previous_.rank)].next)
    previous_.socket = meeting.previous.release();
  for (const Link* link : {&next_, &previous_}) {
    if (link->socket >= 0) probe(link->socket);
  }
}

NodeRing::~NodeRing() {
  for (Link* link : {&next_, &previous_}) {
    if (link->socket >= 0) send(link->socket, &farewell, 1, MSG_NOSIGNAL);
    link->close_socket();
  }
}

int NodeRing::num_watched() const { return (next_.socket >= 0) + (previous_.socket >= 0); }

std::optional<Watch::Verdict> NodeRing::dead() {
  std::array<pollfd, 2> events{pollfd{.fd = next_.socket, .events = POLLIN, .revents = 0},
                               pollfd{.fd = previous_.socket, .events = POLLIN, .revents = 0}};
  if (poll(events.data(), events.size(), 0) <= 0) return {};
  for (Link* link : {&next_, &previous_}) {
    if (!events[link == &next_ ? 0 : 1].revents) continue;
    char word = 0;
    const ssize_t bytes = recv(link->socket, &word, 1, MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    const int code = errno;
    const int rank = link->rank;
    link->close_socket();
    if (bytes == 1) continue;  // the farewell
    return Watch::Verdict{rank, bytes == 0 || code == ECONNRESET
                                    ? "its process on another node has ended"
                                    : "its node does not answer: " + std::generic_category().message(code)};
  }
  return {};
}

}  // namespace aloni::comm::detail
