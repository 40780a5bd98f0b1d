#include <aloni/core/comm/mailbox.hpp>

#include <aloni/core/comm/engine/communicator_state.hpp>
#include <aloni/core/comm/mpi.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/give_way.hpp>

#include <mpi.h>

#include <array>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace aloni::comm {

namespace {

/// Begins the message of a head. The head follows, then the data if they are inline.
struct MailPrefix {
  std::uint64_t data_bytes = 0;
  std::uint32_t head_bytes = 0, data_inline = 0;
};

static_assert(sizeof(MailPrefix) == Mailbox::prefix_bytes);

constexpr std::size_t most_head_message = sizeof(MailPrefix) + Mailbox::max_head_bytes + Mailbox::inline_bytes;
// progress() looks for failures after so many calls without work, or with work.
constexpr int idle_calls_per_look = 32, busy_calls_per_look = 1024;

}  // namespace

struct Mailbox::Implementation {
  using Engine = detail::Engine;
  using Bytes = std::vector<std::byte>;

  struct Sending {
    Engine::Handle head = {}, data = {};
    bool has_data = false;
    Bytes buffer;
    Done done;
  };
  /// A head that has begun to arrive.
  struct Arriving {
    Engine::Mail mail;
    Engine::Handle handle = {};
    Bytes buffer;
  };
  struct Receiving {
    Engine::Handle handle;
    Done done;
  };
  struct Kind {
    std::size_t head_bytes = 0;
    Handler handler;
  };
  /// Data that were announced by a head and not yet asked for.
  struct Announced {
    std::size_t bytes = 0;
    bool is_inline = false;
    Bytes data;
  };
  struct MailName {
    int source = -1, kind = 0;
    std::uint32_t number = 0;
    bool operator==(const MailName&) const = default;
  };
  struct Hash {
    std::size_t operator()(const MailName& n) const {
      return (std::uint64_t{n.number} << 32 | static_cast<std::uint32_t>(n.source) << 8 |
              static_cast<std::uint32_t>(n.kind)) *
             0x9e3779b97f4a7c15u;
    }
  };

  std::string name;
  Communicator comm;
  Communicator::State& state;
  std::array<Kind, max_kind + 1> kinds{};
  std::vector<std::uint32_t> numbers;  // next number of a mail to each rank
  std::vector<Sending> sending;
  std::vector<Arriving> arriving;
  std::vector<Receiving> receiving;
  std::unordered_map<MailName, Announced, Hash> announced;
  std::vector<Bytes> free_buffers;
  int idle_calls = 0, busy_calls = 0;

  Implementation(const Communicator& parent, std::string n)
      : name("aloni::comm::Mailbox " + std::move(n)),
        comm(parent.split(0, parent.rank())),
        state(*comm.state_),
        numbers(static_cast<std::size_t>(comm.size())) {}

  Bytes take_buffer(std::size_t bytes) {
    Bytes buffer;
    if (!free_buffers.empty()) {
      buffer = std::move(free_buffers.back());
      free_buffers.pop_back();
    }
    buffer.resize(bytes);
    return buffer;
  }

  bool pending() const { return !sending.empty() || !arriving.empty() || !receiving.empty() || !announced.empty(); }

  void check_kind(int kind) const {
    if (kind >= 0 && kind <= max_kind) return;
    throw InvalidArgument(name, "kind", std::to_string(kind), "0 to " + std::to_string(max_kind));
  }
  void check_head(std::size_t bytes) const {
    if (bytes <= max_head_bytes) return;
    throw InvalidArgument(name, "bytes of a head", std::to_string(bytes),
                          "at most " + std::to_string(max_head_bytes) + "; send the rest as data");
  }

  void send(int peer, int kind, std::span<const std::byte> head, std::span<const std::byte> data, Done done,
            const MessageOptions& options) {
    if (peer < 0 || peer >= comm.size()) {
      throw InvalidArgument(name, "peer", std::to_string(peer), "a rank from 0 to " + std::to_string(comm.size() - 1));
    }
    check_kind(kind);
    check_head(head.size());
    if (options.on_device)
      throw InvalidArgument(name, "options.on_device", "true", "data in host memory; copy them there first");
    state.check_poison(name, false);
    const MailPrefix prefix{.data_bytes = data.size(),
                            .head_bytes = static_cast<std::uint32_t>(head.size()),
                            .data_inline = data.size() <= inline_bytes};
    const std::span<const std::byte> inlined = prefix.data_inline ? data : data.first(0);
    Bytes buffer = take_buffer(sizeof prefix + head.size() + inlined.size());
    std::byte* to = buffer.data();
    for (const auto part : {std::as_bytes(std::span(&prefix, 1)), head, inlined}) {
      if (!part.empty()) std::memcpy(to, part.data(), part.size());
      to += part.size();
    }
    const auto k = static_cast<std::uint32_t>(kind);
    const std::uint32_t number = numbers[static_cast<std::size_t>(peer)]++;
    const auto guard = state.runtime->guard();
    state.poisoning([&] {
      Engine& engine = state.runtime->engine();
      Sending& s = sending.emplace_back(
          Sending{.has_data = !prefix.data_inline, .buffer = std::move(buffer), .done = std::move(done)});
      s.head = engine.send_mail(*state.context, s.buffer, peer, k, number, Engine::MailPart::head, options);
      if (s.has_data) s.data = engine.send_mail(*state.context, data, peer, k, number, Engine::MailPart::data, options);
    });
  }

  void receive(const Mail& mail, std::span<std::byte> data, Done done, const MessageOptions& options) {
    const auto found = announced.find({mail.source, mail.kind, mail.number});
    if (found == announced.end()) {
      throw InvalidArgument(name,
                            "mail of kind " + std::to_string(mail.kind) + " from rank " + std::to_string(mail.source),
                            "without data, or they were received", "one receive for each mail with data");
    }
    if (data.size() != found->second.bytes) {
      throw InvalidArgument(name, "data.size()", std::to_string(data.size()),
                            std::to_string(found->second.bytes) + ", the data_bytes of the mail");
    }
    if (options.on_device)
      throw InvalidArgument(name, "options.on_device", "true", "host memory; copy the data from there");
    state.check_poison(name, false);
    const Announced a = std::move(found->second);
    announced.erase(found);
    const auto guard = state.runtime->guard();
    Engine& engine = state.runtime->engine();
    if (a.is_inline) {
      std::memcpy(data.data(), a.data.data(), data.size());
      const Engine::Handle handle = engine.make_handle();
      engine.finish(handle);
      receiving.push_back({handle, std::move(done)});
      return;
    }
    state.poisoning([&] {
      receiving.push_back({engine.receive_mail(*state.context, data, mail.source, static_cast<std::uint32_t>(mail.kind),
                                               mail.number, Engine::MailPart::data, name.c_str(), options),
                           std::move(done)});
    });
  }

  bool progress(bool waits) {
    state.check_poison(name, false);
    std::vector<Done> done;
    std::vector<Arriving> here;
    state.poisoning([&] {
      const auto guard = state.runtime->guard();
      bool any = state.runtime->progress();
      Engine& engine = state.runtime->engine();
      while (const auto mail = engine.next_mail(*state.context)) begin(*mail);
      take_complete(arriving, here, [&](Arriving& a) { return engine.test(a.handle); });
      std::vector<Sending> sent;
      take_complete(sending, sent,
                    [&](Sending& s) { return engine.test(s.head) && (!s.has_data || engine.test(s.data)); });
      for (Sending& s : sent) {
        free_buffers.push_back(std::move(s.buffer));
        if (s.done) done.push_back(std::move(s.done));
      }
      std::vector<Receiving> received;
      take_complete(receiving, received, [&](Receiving& r) { return engine.test(r.handle); });
      for (Receiving& r : received) done.push_back(std::move(r.done));
      any |= !here.empty() || !done.empty();
      idle_calls = any ? 0 : idle_calls + 1;
      if (any ? ++busy_calls % busy_calls_per_look == 0 : idle_calls % idle_calls_per_look == 0) {
        state.runtime->look_around(waits);
        state.check_poison(name, true);
      }
    });
    // A CommunicationError of the caller's functions, too, is one that other ranks cannot see.
    state.poisoning([&] {
      for (Done& f : done)
        if (f) f();
      for (Arriving& a : here) open(a);
    });
    return idle_calls == 0;
  }

  /// Moves the complete operations out of a list, whose order does not matter.
  template <class T, class F>
  static void take_complete(std::vector<T>& list, std::vector<T>& complete, const F& is_complete) {
    for (std::size_t i = 0; i < list.size();) {
      if (!is_complete(list[i])) {
        ++i;
        continue;
      }
      complete.push_back(std::move(list[i]));
      if (i + 1 < list.size()) list[i] = std::move(list.back());
      list.pop_back();
    }
  }

  [[noreturn]] void wrong(const Engine::Mail& mail, const std::string& value, const std::string& expectation) const {
    throw CommunicationError(name,
                             "mail of kind " + std::to_string(mail.kind) + " from rank " + std::to_string(mail.peer),
                             value, expectation);
  }

  /// Receives a head that has begun to arrive.
  void begin(const Engine::Mail& mail) {
    if (mail.bytes < sizeof(MailPrefix) || mail.bytes > most_head_message || mail.kind > max_kind)
      wrong(mail, std::to_string(mail.bytes) + " bytes with the head", "a mail sent by a Mailbox");
    Arriving& a = arriving.emplace_back(Arriving{.mail = mail, .buffer = take_buffer(mail.bytes)});
    a.handle = state.runtime->engine().receive_mail(*state.context, a.buffer, mail.peer, mail.kind, mail.number,
                                                    Engine::MailPart::head, name.c_str());
  }

  /// Calls the handler of a head that has arrived.
  void open(Arriving& a) {
    MailPrefix prefix;
    std::memcpy(&prefix, a.buffer.data(), sizeof prefix);
    const std::span<const std::byte> rest = std::span(std::as_const(a.buffer)).subspan(sizeof prefix);
    const std::size_t inlined = prefix.data_inline ? prefix.data_bytes : 0;
    if (prefix.head_bytes > rest.size() || rest.size() - prefix.head_bytes != inlined)
      wrong(a.mail, std::to_string(a.buffer.size()) + " bytes with the head", "a mail sent by a Mailbox");
    const Kind& kind = kinds[a.mail.kind];
    if (!kind.handler)
      wrong(a.mail, "without a handler on this rank", "a call of handle() on all ranks that may get it");
    if (kind.head_bytes != any_size && kind.head_bytes != prefix.head_bytes) {
      wrong(a.mail, "a head of " + std::to_string(prefix.head_bytes) + " bytes",
            std::to_string(kind.head_bytes) + " bytes, as its handler takes");
    }
    const Mail mail{.source = a.mail.peer,
                    .kind = static_cast<int>(a.mail.kind),
                    .number = a.mail.number,
                    .head = rest.first(prefix.head_bytes),
                    .data_bytes = prefix.data_bytes};
    if (prefix.data_bytes > 0) {
      const auto data = rest.subspan(prefix.head_bytes);
      announced.insert({{mail.source, mail.kind, mail.number},
                        {.bytes = prefix.data_bytes,
                         .is_inline = prefix.data_inline != 0,
                         .data = Bytes(data.begin(), data.end())}});
    }
    kind.handler(mail);
    free_buffers.push_back(std::move(a.buffer));
  }
};

Mailbox::Mailbox(const Communicator& comm, std::string name)
    : implementation_(std::make_unique<Implementation>(comm, std::move(name))) {}

Mailbox::~Mailbox() {
  Implementation& i = *implementation_;
  if (!i.pending() || i.state.runtime->board().poisoned()) return;
  i.comm.poison(i.name + ": ended with mails that have not left or were not received");
}

int Mailbox::rank() const { return implementation_->comm.rank(); }
int Mailbox::size() const { return implementation_->comm.size(); }
int Mailbox::root_rank(int peer) const { return implementation_->state.context->root_of(peer); }

void Mailbox::handle(int kind, std::size_t head_bytes, Handler handler) {
  implementation_->check_kind(kind);
  if (head_bytes != any_size) implementation_->check_head(head_bytes);
  implementation_->kinds[static_cast<std::size_t>(kind)] = {head_bytes, std::move(handler)};
}

void Mailbox::send(int peer, int kind, std::span<const std::byte> head, std::span<const std::byte> data, Done done,
                   const MessageOptions& options) {
  implementation_->send(peer, kind, head, data, std::move(done), options);
}

void Mailbox::receive(const Mail& mail, std::span<std::byte> data, Done done, const MessageOptions& options) {
  implementation_->receive(mail, data, std::move(done), options);
}

bool Mailbox::progress(bool waits) { return implementation_->progress(waits); }

bool Mailbox::idle() const {
  if (implementation_->pending()) return false;
  const auto guard = implementation_->state.runtime->guard();
  return implementation_->state.runtime->engine().flushed();
}

void Mailbox::wait() {
  for (WaitPauses pauses; !idle();) {
    if (progress(true)) {
      pauses.restart();
    } else {
      pauses.pause();
    }
  }
}

void Mailbox::check_thread() const {
  int level = MPI_THREAD_SINGLE, is_main = 0;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  check_mpi(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main");
  if (is_main || level >= MPI_THREAD_SERIALIZED) return;
  throw Unsupported(implementation_->name, "thread of the mailbox", "not the one that started MPI",
                    "that thread, or MPI_Init_thread with MPI_THREAD_MULTIPLE (MPI_THREAD_SERIALIZED if no other "
                    "thread calls MPI meanwhile)");
}

}  // namespace aloni::comm
