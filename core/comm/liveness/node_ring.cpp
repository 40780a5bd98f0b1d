#include <aloni/core/comm/liveness/node_ring.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
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

struct Address {
  std::uint16_t is_v6 = 0, port = 0;  // port in network byte order
  std::uint8_t bytes[16] = {};

  bool has_host_of(const Address& o) const { return is_v6 == o.is_v6 && std::ranges::equal(bytes, o.bytes); }
};

/// Addresses of a rank, sent to all ranks. Trivially copyable.
struct Introduction {
  std::uint64_t token = 0;
  std::int32_t process = 0;
  char host[64] = "";
  std::uint32_t num_addresses = 0;
  Address addresses[max_addresses];

  std::span<const Address> all() const {
    return std::span(addresses).first(std::min<std::size_t>(num_addresses, max_addresses));
  }
  void add(const Address& a) {
    if (num_addresses < max_addresses) addresses[num_addresses++] = a;
  }
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

Socket new_socket(const Address& a, int type) {
  return Socket(socket(a.is_v6 ? AF_INET6 : AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// The form of an address that system calls take.
struct SystemAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);

  SystemAddress() = default;
  explicit SystemAddress(const Address& a) {
    if (a.is_v6) {
      auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
      v6.sin6_family = AF_INET6;
      v6.sin6_port = a.port;
      std::memcpy(&v6.sin6_addr, a.bytes, 16);
      length = sizeof v6;
    } else {
      auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
      v4.sin_family = AF_INET;
      v4.sin_port = a.port;
      std::memcpy(&v4.sin_addr, a.bytes, 4);
      length = sizeof v4;
    }
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/// Nothing for other families, and for IPv6 addresses that have no meaning without an interface.
std::optional<Address> address_of(const sockaddr* from) {
  Address a;
  if (from->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(from);
    a.port = v4->sin_port;
    std::memcpy(a.bytes, &v4->sin_addr, 4);
    return a;
  }
  if (from->sa_family != AF_INET6) return {};
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(from);
  if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) return {};
  a.is_v6 = 1;
  a.port = v6->sin6_port;
  std::memcpy(a.bytes, &v6->sin6_addr, 16);
  return a;
}

std::optional<Address> own_address(const Socket& s) {
  SystemAddress own;
  if (getsockname(s.get(), own.get(), &own.length) != 0) return {};
  return address_of(own.get());
}

/// All addresses of this machine: of the loopback interface, or of the others.
Introduction addresses_of_machine(bool loopback) {
  Introduction me;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return me;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || static_cast<bool>(i->ifa_flags & IFF_LOOPBACK) != loopback)
      continue;
    if (const auto a = address_of(i->ifa_addr)) me.add(*a);
  }
  freeifaddrs(list);
  return me;
}

/// The address from which this machine would send to `theirs`, by its routes. Sends nothing.
std::optional<Address> address_towards(Address theirs) {
  theirs.port = htons(9);  // any
  SystemAddress to(theirs);
  const Socket s = new_socket(theirs, SOCK_DGRAM);
  if (!s || connect(s.get(), to.get(), to.length) != 0) return {};
  return own_address(s);
}

/// The addresses of this machine that a rank of another node uses when it calls `me`.
std::vector<Address> addresses_for(const Introduction& caller, const Introduction& me) {
  std::vector<Address> found, same;
  for (const Address& theirs : caller.all()) {
    const auto own = address_towards(theirs);
    if (!own) continue;
    // An address that both machines have, as that of a bridge of containers, leads to the machine itself. It is of use
    // only if both ranks are on one machine.
    const bool is_shared = std::ranges::any_of(me.all(), [&](const Address& a) { return a.has_host_of(theirs); });
    std::vector<Address>& list = is_shared ? same : found;
    if (std::ranges::none_of(list, [&](const Address& a) { return a.has_host_of(*own); })) list.push_back(*own);
  }
  return found.empty() ? same : found;
}

/// Listens on one address, at a port that the system chooses. Stores it in `a`.
Socket listen_on(Address& a) {
  a.port = 0;
  SystemAddress at(a);
  Socket s = new_socket(a, SOCK_STREAM);
  if (!s || bind(s.get(), at.get(), at.length) != 0 || listen(s.get(), 8) != 0) return {};
  const auto bound = own_address(s);
  if (!bound) return {};
  a.port = bound->port;
  return s;
}

/// Starts a connection to each address of a rank.
std::vector<Socket> call(const Introduction& them) {
  std::vector<Socket> calls;
  for (const Address& a : them.all()) {
    SystemAddress to(a);
    Socket s = new_socket(a, SOCK_STREAM);
    if (s && (connect(s.get(), to.get(), to.length) == 0 || errno == EINPROGRESS)) calls.push_back(std::move(s));
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

// Sockets of this process that its children must close. Otherwise a child that lives longer than this process would
// keep the connections, and the neighbours would not see the end of this process. Places contain descriptor + 1; 0:
// free.
std::array<std::atomic<int>, 256> closed_in_children;

void close_in_children(int socket) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] {
    for (auto& place : closed_in_children)
      if (const int kept = place.exchange(0)) close(kept - 1);
  });
  for (auto& place : closed_in_children) {
    int expected = 0;
    if (place.compare_exchange_strong(expected, socket + 1)) return;
  }
}

void forget(int socket) {
  for (auto& place : closed_in_children) {
    int expected = socket + 1;
    if (place.compare_exchange_strong(expected, 0)) return;
  }
}

}  // namespace

void NodeRing::Link::close_socket() {
  if (socket < 0) return;
  forget(socket);
  close(socket);
  socket = -1;
}

NodeRing::NodeRing(int rank, const std::vector<int>& leaders, bool one_machine, const GatherBytes& all_gather)
    : process_(getpid()) {
  if (leaders.size() < 2) return;
  const auto found = std::ranges::find(leaders, rank);
  const bool takes_part = found != leaders.end();
  // First all addresses, then those on which each rank listens: the addresses that its caller uses.
  Introduction me;
  if (takes_part) {
    me = addresses_of_machine(one_machine);
    me.token = random_token();
    me.process = getpid();
    gethostname(me.host, sizeof me.host - 1);
  }
  const std::vector<Introduction> all = gather(all_gather, me);
  Introduction listens;
  Meeting meeting;
  if (takes_part) {
    const auto place = static_cast<std::size_t>(found - leaders.begin());
    next_.rank = leaders[(place + 1) % leaders.size()];
    previous_.rank = leaders[(place + leaders.size() - 1) % leaders.size()];
    for (Address a : addresses_for(all[static_cast<std::size_t>(previous_.rank)], me)) {
      if (Socket s = listen_on(a)) {
        meeting.listening.push_back(std::move(s));
        listens.add(a);
      }
    }
  }
  const std::vector<Introduction> all_listen = gather(all_gather, listens);
  struct Success {
    bool next = false, previous = false;
  } success;
  if (takes_part) {
    const Introduction &of_next = all[static_cast<std::size_t>(next_.rank)],
                       &of_previous = all[static_cast<std::size_t>(previous_.rank)];
    meeting.calls = call(all_listen[static_cast<std::size_t>(next_.rank)]);
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
  for (Link* link : {&next_, &previous_}) {
    if (link->socket < 0) continue;
    const Introduction& them = all[static_cast<std::size_t>(link->rank)];
    link->host = them.host;
    link->process = "process " + std::to_string(them.process) + " on " + link->host;
    probe(link->socket);
    close_in_children(link->socket);
  }
}

NodeRing::~NodeRing() {
  if (getpid() != process_) return;  // in a child after fork: the farewell is not its to say
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
    return Watch::Verdict{
        rank, bytes == 0 || code == ECONNRESET
                  ? "its " + link->process + " has ended"
                  : "its node " + link->host + " does not answer: " + std::generic_category().message(code)};
  }
  return {};
}

}  // namespace aloni::comm::detail
