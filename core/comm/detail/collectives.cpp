#include <aloni/core/comm/detail/collectives.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <string>
#include <type_traits>

namespace aloni::comm::detail {

namespace {

// Recursive doubling sends everything log2(p) times, the ring about twice in 2(p - 1) messages; on two ranks neither is
// clearly better between 2 and 16 KiB, on more the ring pays for its many messages.
constexpr std::size_t small_bytes = 8192;
constexpr std::size_t segment_bytes = 256 * 1024;

constexpr int collective_tag = Communicator::max_tag + 1;
constexpr int group_tag =
    Communicator::max_tag + 2;  // a part of the ranks: not in the numbering of the others' collectives

enum class Kind : std::uint8_t { all_reduce, broadcast, all_gather, barrier };

struct Signature {
  Kind kind{};
  Reduction op{};
  std::uint8_t type = 0, type_bytes = 0;
  std::uint32_t number = 0;
  std::uint64_t count = 0;

  friend bool operator==(const Signature&, const Signature&) = default;
};
static_assert(std::has_unique_object_representations_v<Signature> && std::is_trivially_copyable_v<Signature>);

template <class T>
constexpr std::uint8_t type_code() {
  if constexpr (std::is_floating_point_v<T>) return 1;
  return std::is_signed_v<T> ? 2 : 3;
}

std::string describe(const Signature& s) {
  const auto kind = static_cast<std::size_t>(s.kind), op = static_cast<std::size_t>(s.op);
  constexpr std::array kinds{"all_reduce", "broadcast", "all_gather", "barrier"};
  constexpr std::array ops{"sum", "min", "max"};
  constexpr std::array types{"", "float", "int", "unsigned"};
  if (kind >= kinds.size() || op >= ops.size() || s.type >= types.size()) return "something else";
  std::string text = kinds[kind];
  if (s.kind == Kind::all_reduce) {
    text += std::string("(") + ops[op] + " of " + std::to_string(s.count) + " " + types[s.type] +
            std::to_string(8 * s.type_bytes) + ")";
  } else if (s.kind == Kind::broadcast) {
    text += "(" + std::to_string(s.count) + " bytes)";
  }
  return text + ", collective number " + std::to_string(s.number);
}

// The messages of one call. Sends and receives are posted, then waited for together.
class Call {
 public:
  Call(Group group, const char* operation, Signature signature)
      : group_(group), operation_(operation), signature_(signature) {
    group.state.check_poison(operation, false);
    if (group.members.empty()) {
      signature_.number = ++group.state.collective_number;
    } else {
      tag_ = group_tag;
    }
    group_.state.requests.clear();
  }

  const Signature& signature() const { return signature_; }

  void send(const void* data, std::size_t bytes, int member) {
    group_.state.requests.push_back(
        group_.state.poisoning([&] { return group_.state.collectives.send(data, bytes, group_.peer(member), tag_); }));
  }
  void receive(void* data, std::size_t bytes, int member) {
    group_.state.requests.push_back(group_.state.poisoning(
        [&] { return group_.state.collectives.receive(data, bytes, group_.peer(member), tag_); }));
  }
  void wait() {
    group_.state.wait(group_.state.requests, operation_);
    group_.state.requests.clear();
  }
  void wait_for(std::size_t request) {
    group_.state.wait(std::span(group_.state.requests).subspan(request, 1), operation_);
  }
  std::size_t posted() const { return group_.state.requests.size(); }

  void send_signature(int member) { send(&signature_, sizeof signature_, member); }
  /// Posted before the data that follow it, and waited for before them.
  void receive_signature(int member) {
    Signature theirs;
    receive(&theirs, sizeof theirs, member);
    wait_for(posted() - 1);
    check(theirs, member);
  }
  void check(const Signature& theirs, int member) {
    if (theirs == signature_) return;
    group_.state.poisoning([&] {
      throw CommunicationError(operation_, "call of rank " + std::to_string(group_.peer(member)), describe(theirs),
                               describe(signature_) + ", as on this rank");
    });
  }
  const char* operation() const { return operation_; }

 private:
  Group group_;
  const char* operation_;
  Signature signature_;
  int tag_ = collective_tag;
};

template <class T>
void combine(T* into, const T* first, const T* second, std::size_t count, Reduction op) {
  switch (op) {
    case Reduction::sum:
      for (std::size_t i = 0; i < count; ++i) into[i] = first[i] + second[i];
      return;
    // A value that is not a number wins over all numbers.
    case Reduction::min:
      for (std::size_t i = 0; i < count; ++i)
        into[i] = first[i] < second[i] || first[i] != first[i] ? first[i] : second[i];
      return;
    case Reduction::max:
      for (std::size_t i = 0; i < count; ++i)
        into[i] = second[i] < first[i] || first[i] != first[i] ? first[i] : second[i];
      return;
  }
}

// Signature and values travel in one message. Ranks beyond the largest power of two hand their values to a neighbour
// before and get the result after.
template <class T>
void doubling(Group group, Call& call, std::span<T> values, Reduction op) {
  const std::size_t data_bytes = values.size_bytes(), bytes = sizeof(Signature) + data_bytes;
  group.state.scratch.resize(std::max(group.state.scratch.size(), 2 * (sizeof(Signature) + small_bytes)));
  std::byte* const outgoing = group.state.scratch.data();
  std::byte* const incoming = outgoing + sizeof(Signature) + small_bytes;
  std::memcpy(outgoing, &call.signature(), sizeof(Signature));
  const auto send = [&](int member) {
    std::memcpy(outgoing + sizeof(Signature), values.data(), data_bytes);
    call.send(outgoing, bytes, member);
  };
  const auto receive = [&](int member) { call.receive(incoming, bytes, member); };
  const auto wait = [&](int member) {
    call.wait();
    Signature theirs;
    std::memcpy(&theirs, incoming, sizeof theirs);
    call.check(theirs, member);
  };
  // `incoming` is aligned for every T: it begins at a multiple of 16 within an allocation.
  const T* const theirs = reinterpret_cast<const T*>(incoming + sizeof(Signature));

  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(group.size)));
  const int extra = group.size - power;
  const bool folded = group.rank < 2 * extra;
  if (folded && group.rank % 2 == 0) {
    send(group.rank + 1);
    call.wait();
    receive(group.rank + 1);
    wait(group.rank + 1);
    std::memcpy(values.data(), theirs, data_bytes);
    return;
  }
  if (folded) {
    receive(group.rank - 1);
    wait(group.rank - 1);
    combine(values.data(), theirs, values.data(), values.size(), op);
  }
  const int position = folded ? group.rank / 2 : group.rank - extra;
  for (int mask = 1; mask < power; mask *= 2) {
    const int other = position ^ mask;
    const int member = other < extra ? 2 * other + 1 : other + extra;
    receive(member);
    send(member);
    wait(member);
    if (other < position) {
      combine(values.data(), theirs, values.data(), values.size(), op);
    } else {
      combine(values.data(), values.data(), theirs, values.size(), op);
    }
  }
  if (folded) {
    send(group.rank - 1);
    call.wait();
  }
}

template <class T>
void ring(Group group, Call& call, std::span<T> values, Reduction op) {
  constexpr std::size_t segment = segment_bytes / sizeof(T);
  group.state.scratch.resize(std::max(group.state.scratch.size(), 2 * segment_bytes));
  T* const buffers[2] = {reinterpret_cast<T*>(group.state.scratch.data()),
                         reinterpret_cast<T*>(group.state.scratch.data() + segment_bytes)};
  const int p = group.size, right = (group.rank + 1) % p, left = (group.rank + p - 1) % p;
  const auto chunk = [&](int number) {
    const auto i = static_cast<std::size_t>((number % p + p) % p), n = static_cast<std::size_t>(p);
    const std::size_t quotient = values.size() / n, rest = values.size() % n;
    return values.subspan(i * quotient + std::min(i, rest), quotient + (i < rest ? 1 : 0));
  };
  call.send_signature(right);
  call.receive_signature(left);
  call.wait();

  // Reduce-scatter: chunk c starts at rank c and collects one summand after the other on its way around.
  for (int step = 0; step < p - 1; ++step) {
    const auto outgoing = chunk(group.rank - step), mine = chunk(group.rank - step - 1);
    const std::size_t segments = (mine.size() + segment - 1) / segment;
    const auto part = [&](std::span<T> data, std::size_t s) {
      return data.subspan(s * segment, std::min(segment, data.size() - s * segment));
    };
    // Two receives are always open, so that the next segment arrives while this one is added.
    const auto receive = [&](std::size_t s) { call.receive(buffers[s % 2], part(mine, s).size_bytes(), left); };
    for (std::size_t s = 0; s < std::min<std::size_t>(2, segments); ++s) receive(s);
    std::array<std::size_t, 2> pending{0, 1};
    for (std::size_t s = 0; s * segment < outgoing.size(); ++s) {
      const auto data = part(outgoing, s);
      call.send(data.data(), data.size_bytes(), right);
    }
    for (std::size_t s = 0; s < segments; ++s) {
      call.wait_for(pending[s % 2]);
      const auto data = part(mine, s);
      combine(data.data(), buffers[s % 2], data.data(), data.size(), op);
      if (s + 2 < segments) {
        pending[s % 2] = call.posted();
        receive(s + 2);
      }
    }
    call.wait();
  }
  // All-gather: the finished chunks go around once more.
  for (int step = 0; step < p - 1; ++step) {
    const auto outgoing = chunk(group.rank + 1 - step), incoming = chunk(group.rank - step);
    call.receive(incoming.data(), incoming.size_bytes(), left);
    call.send(outgoing.data(), outgoing.size_bytes(), right);
    call.wait();
  }
}

}  // namespace

Group::Group(Communicator::State& all, std::span<const int> some)
    : state(all),
      members(some),
      rank(static_cast<int>(std::distance(some.begin(), std::ranges::find(some, all.rank)))),
      size(static_cast<int>(some.size())) {}

template <class T>
void all_reduce(Group group, std::span<T> values, Reduction op) {
  Call call(
      group, "aloni::comm::Communicator::all_reduce",
      {.kind = Kind::all_reduce, .op = op, .type = type_code<T>(), .type_bytes = sizeof(T), .count = values.size()});
  if (group.size == 1) return;
  if (values.size_bytes() <= small_bytes) {
    doubling(group, call, values, op);
  } else {
    ring(group, call, values, op);
  }
}

template void all_reduce(Group, std::span<float>, Reduction);
template void all_reduce(Group, std::span<double>, Reduction);
template void all_reduce(Group, std::span<std::int32_t>, Reduction);
template void all_reduce(Group, std::span<std::int64_t>, Reduction);
template void all_reduce(Group, std::span<std::uint64_t>, Reduction);

void broadcast(Group group, std::span<std::byte> data, int root) {
  Call call(group, "aloni::comm::Communicator::broadcast", {.kind = Kind::broadcast, .count = data.size()});
  const int position = (group.rank - root + group.size) % group.size;
  const auto member = [&](int place) { return (place + root) % group.size; };
  int mask = 1;
  for (; mask < group.size; mask *= 2) {
    if (!(position & mask)) continue;
    const int parent = member(position - mask);
    call.receive_signature(parent);
    call.receive(data.data(), data.size(), parent);
    call.wait();
    break;
  }
  for (mask /= 2; mask > 0; mask /= 2) {
    if (position + mask >= group.size) continue;
    call.send_signature(member(position + mask));
    call.send(data.data(), data.size(), member(position + mask));
  }
  call.wait();
}

void all_gather(Group group, std::int64_t own, std::span<std::int64_t> values) {
  Call call(group, "aloni::comm::Communicator::all_gather", {.kind = Kind::all_gather, .count = values.size()});
  values[0] = own;  // until the end, values[i] is that of rank - i
  for (int have = 1; have < group.size; have *= 2) {
    const auto count = static_cast<std::size_t>(std::min(have, group.size - have));
    const int to = (group.rank + have) % group.size, from = (group.rank - have + group.size) % group.size;
    call.send_signature(to);
    call.send(values.data(), count * sizeof(std::int64_t), to);
    call.receive_signature(from);
    call.receive(values.data() + have, count * sizeof(std::int64_t), from);
    call.wait();
  }
  std::ranges::reverse(values);
  std::ranges::rotate(values, values.begin() + (group.size - 1 - group.rank));
}

void barrier(Group group) {
  Call call(group, "aloni::comm::Communicator::barrier", {.kind = Kind::barrier});
  for (int distance = 1; distance < group.size; distance *= 2) {
    call.send_signature((group.rank + distance) % group.size);
    call.receive_signature((group.rank - distance + group.size) % group.size);
    call.wait();
  }
}

}  // namespace aloni::comm::detail
