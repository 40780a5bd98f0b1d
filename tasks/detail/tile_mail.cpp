#include <aloni/tasks/detail/tile_mail.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace aloni::tasks::detail {

namespace {

enum TileMailKind : int { request_mail, payload_mail, barrier_mail, failure_mail };

constexpr const char* tile_mail_name = "aloni::tasks::TileMail";
// Looks without work before the thread sleeps: about the time in which an answer comes within a node.
constexpr int looks_before_pause = 200;

static_assert(std::is_trivially_copyable_v<TileRequest> && std::is_trivially_copyable_v<TileClient>);

/// A communicator of few enough ranks.
const comm::Communicator& checked(const comm::Communicator& comm) {
  if (comm.size() <= TileMail::max_ranks) return comm;
  throw Unsupported(tile_mail_name, "ranks", std::to_string(comm.size()),
                    "at most " + std::to_string(TileMail::max_ranks) + "; run the tasks on a part of the ranks");
}

std::vector<int> nodes_of(const comm::Communicator& comm) {
  std::vector<int> nodes(static_cast<std::size_t>(comm.size()));
  int node = 0;
  for (const std::vector<int>& ranks : comm.ranks_by_node()) {
    for (const int r : ranks) nodes[static_cast<std::size_t>(r)] = node;
    ++node;
  }
  return nodes;
}

}  // namespace

TileMail::TileMail(const comm::Communicator& comm, TileMemory& memory, const Options& options)
    : comm_(checked(comm)),
      memory_(memory),
      options_(options),
      requests_(comm.rank(), comm.size(), nodes_of(comm)),
      mailbox_(comm, "tiles"),
      peers_(static_cast<std::size_t>(comm.size())),
      rounds_(std::bit_width(static_cast<unsigned>(comm.size() - 1))) {
  requests_.set_most_clients(options.most_clients);
  mailbox_.handle(request_mail, sizeof(TileRequest), [this](const comm::Mail& mail) {
    arrived_from(mail.source);
    TileRequest request;
    std::memcpy(&request, mail.head.data(), sizeof request);
    requests_.request_arrived(request);
  });
  mailbox_.handle(payload_mail, comm::Mailbox::any_size, [this](const comm::Mail& mail) { payload_begins(mail); });
  mailbox_.handle(barrier_mail, sizeof(std::uint32_t), [this](const comm::Mail& mail) { barrier_mail_arrived(mail); });
  mailbox_.handle(failure_mail, comm::Mailbox::any_size, [this](const comm::Mail& mail) { failure_arrived(mail); });
}

void TileMail::add(Event event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  wake_.notify_one();
}

void TileMail::produced(TileKey tile, std::span<const std::byte> data, std::vector<int> clients) {
  add({.kind = Event::Kind::produced, .tile = tile, .data = data, .clients = std::move(clients)});
}
void TileMail::need(TileKey tile, int owner) { add({.kind = Event::Kind::need, .tile = tile, .owner = owner}); }
void TileMail::released(TileKey tile) { add({.kind = Event::Kind::released, .tile = tile}); }
void TileMail::tasks_finished() {
  set_waiting(true);
  add({.kind = Event::Kind::tasks_finished});
}
void TileMail::fail(std::exception_ptr error) { add({.kind = Event::Kind::fail, .error = std::move(error)}); }

bool TileMail::take_events() {
  {
    const std::lock_guard lock(mutex_);
    taken_.swap(events_);
  }
  const bool any = !taken_.empty();
  for (const Event& event : taken_)
    if (!failure_) happen(event);
  taken_.clear();
  return any;
}

void TileMail::happen(const Event& event) {
  switch (event.kind) {
    case Event::Kind::produced:
      data_[event.tile] = event.data;
      return requests_.produced(event.tile, event.clients);
    case Event::Kind::need:
      return requests_.need(event.tile, event.owner);
    case Event::Kind::released:
      return requests_.released(event.tile);
    case Event::Kind::tasks_finished:
      return requests_.tasks_finished();
    case Event::Kind::fail:
      if (requests_.finished())
        throw InvalidArgument(tile_mail_name, "fail()", "after tasks_finished()", "one of them");
      own_error_ = event.error;
      return tell_failure(failure_of(mailbox_.rank(), event.error));
  }
}

void TileMail::send(int peer, int kind, std::span<const std::byte> head, std::span<const std::byte> data,
                    std::function<void()> done, int priority) {
  ++peers_[static_cast<std::size_t>(peer)].sent;
  mailbox_.send(peer, kind, head, data, std::move(done), {.priority = priority});
}

/// The head of a payload has arrived: the tile's key, and the clients that this rank gets with it.
void TileMail::payload_begins(const comm::Mail& mail) {
  const std::size_t rest = mail.head.size() - std::min(mail.head.size(), sizeof(TileKey));
  if (mail.head.size() < sizeof(TileKey) || rest % sizeof(TileClient) != 0) {
    throw CommunicationError(tile_mail_name, "payload from rank " + std::to_string(mail.source),
                             "a head of " + std::to_string(mail.head.size()) + " bytes", "a key and clients");
  }
  TileKey tile = 0;
  std::memcpy(&tile, mail.head.data(), sizeof tile);
  std::vector<TileClient> clients(rest / sizeof(TileClient));
  if (rest > 0) std::memcpy(clients.data(), mail.head.data() + sizeof tile, rest);
  if (mail.data_bytes == 0 || !requests_.awaits(tile)) {  // payload_arrived() throws for the latter
    arrived_from(mail.source);
    requests_.payload_arrived(tile, clients);
    data_[tile] = {};
    return;
  }
  const std::span<std::byte> room = memory_.room(tile, mail.data_bytes);
  mailbox_.receive(mail, room, [this, tile, room, source = mail.source, clients = std::move(clients)] {
    arrived_from(source);
    data_[tile] = room;
    requests_.payload_arrived(tile, clients);
  });
}

/// Returns whether there is memory for the message.
bool TileMail::send_payload(const TileAction& a) {
  const auto data = memory_.lend(a.tile, data_.at(a.tile));
  if (!data) return false;
  std::vector<std::byte> head(sizeof a.tile + a.clients.size() * sizeof(TileClient));
  std::memcpy(head.data(), &a.tile, sizeof a.tile);
  if (!a.clients.empty())
    std::memcpy(head.data() + sizeof a.tile, a.clients.data(), a.clients.size() * sizeof(TileClient));
  send(
      a.rank, payload_mail, head, *data,
      [this, tile = a.tile, data = *data] {
        memory_.take_back(data);
        requests_.sent(tile);
      },
      0);
  return true;
}

void TileMail::act() {
  if (failure_) return;
  while (!postponed_.empty() && send_payload(postponed_.front())) postponed_.pop_front();
  for (const TileAction& a : requests_.take_actions()) {
    switch (a.kind) {
      case TileAction::Kind::send_request:
      case TileAction::Kind::forward_request:
        // Before payloads: a request is short, and its answer takes long.
        send(a.rank, request_mail, std::as_bytes(std::span(&a.request, 1)), {}, {}, 1);
        break;
      case TileAction::Kind::send_payload:
        if (!postponed_.empty() || !send_payload(a)) postponed_.push_back(a);
        break;
      case TileAction::Kind::deliver:
        memory_.arrived(a.tile, data_.at(a.tile));
        break;
      case TileAction::Kind::free_copy:
        data_.erase(a.tile);
        memory_.free_copy(a.tile);
        break;
      case TileAction::Kind::served:
        data_.erase(a.tile);
        memory_.served(a.tile);
        break;
      case TileAction::Kind::finished:
        break;
    }
  }
}

// --- the end ---

void TileMail::go_on_with_barrier() {
  if (failure_ || !requests_.finished()) return;
  while (rounds_told_ < rounds_ && (rounds_told_ == 0 || (rounds_arrived_ >> (rounds_told_ - 1) & 1) != 0)) {
    const auto round = static_cast<std::uint32_t>(rounds_told_++);
    const int peer =
        static_cast<int>((static_cast<std::int64_t>(mailbox_.rank()) + (std::int64_t{1} << round)) % mailbox_.size());
    send(peer, barrier_mail, std::as_bytes(std::span(&round, 1)), {}, {}, 0);
  }
}

void TileMail::barrier_mail_arrived(const comm::Mail& mail) {
  arrived_from(mail.source);
  std::uint32_t round = 0;
  std::memcpy(&round, mail.head.data(), sizeof round);
  if (round >= static_cast<std::uint32_t>(rounds_) || (rounds_arrived_ >> round & 1) != 0) {
    throw CommunicationError(tile_mail_name, "barrier mail of rank " + std::to_string(mail.source),
                             "round " + std::to_string(round), "each of " + std::to_string(rounds_) + " rounds once");
  }
  rounds_arrived_ |= std::uint32_t{1} << round;
}

/// Afterwards this rank sends nothing.
void TileMail::tell_failure(const RankFailure& failure) {
  failure_ = failure;
  const std::vector<std::byte> text = to_bytes(failure);
  for (int peer = 0; peer < mailbox_.size(); ++peer) {
    if (peer == mailbox_.rank()) continue;
    const std::uint64_t sent = peers_[static_cast<std::size_t>(peer)].sent;
    const auto number = std::as_bytes(std::span(&sent, 1));
    std::vector<std::byte> head(number.begin(), number.end());
    head.insert(head.end(), text.begin(), text.end());
    mailbox_.send(peer, failure_mail, head, {}, {}, {.priority = 1});
  }
}

void TileMail::failure_arrived(const comm::Mail& mail) {
  std::uint64_t sent = 0;
  const std::size_t first = std::min(mail.head.size(), sizeof sent);
  const RankFailure theirs = failure_from(mail.head.subspan(first), mail.source);  // throws if the head is too short
  std::memcpy(&sent, mail.head.data(), sizeof sent);
  std::optional<std::uint64_t>& announced = peers_[static_cast<std::size_t>(mail.source)].announced;
  if (announced) {
    throw CommunicationError(tile_mail_name, "failure of rank " + std::to_string(mail.source), "arrived twice",
                             "one mail of each rank");
  }
  announced = sent;
  if (!failure_) return tell_failure(theirs);
  if (theirs.rank < failure_->rank) failure_ = theirs;
}

bool TileMail::ended() const {
  if (!failure_) {
    const std::uint32_t all = (std::uint32_t{1} << rounds_) - 1;
    return requests_.finished() && rounds_told_ == rounds_ && rounds_arrived_ == all;
  }
  for (int peer = 0; peer < mailbox_.size(); ++peer) {
    const Peer& p = peers_[static_cast<std::size_t>(peer)];
    if (peer != mailbox_.rank() && p.arrived != p.announced) return false;
  }
  return true;
}

void TileMail::communicate() {
  for (int idle = 0; !ended();) {
    bool any = take_events();
    act();
    go_on_with_barrier();
    any |= mailbox_.progress(failure_ || waits_.load(std::memory_order_relaxed));
    act();
    go_on_with_barrier();
    idle = any ? 0 : idle + 1;
    if (idle < looks_before_pause) {
      std::this_thread::yield();
    } else {
      pause(idle - looks_before_pause);
    }
  }
  mailbox_.wait();
}

/// Waits for an event of a task, or some time. `looks`: earlier pauses in a row. Each wake-up takes some microseconds
/// from the workers: at 50 us that is several per cent of a core.
void TileMail::pause(int looks) {
  constexpr int looks_per_step = 16, longest = 8;
  const auto time = options_.pause * std::min(1 + looks / looks_per_step, longest);
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, time, [this] { return !events_.empty(); });
}

void TileMail::run() {
  mailbox_.check_thread();
  try {
    communicate();
  } catch (const PeerFailed&) {
    throw;
  } catch (const std::exception& error) {  // only this rank sees it
    comm_.poison(error.what());
    throw;
  }
  if (!failure_) return;
  if (failure_->rank == mailbox_.rank() && !failure_->of_factorisation) std::rethrow_exception(own_error_);
  throw_failure(tile_mail_name, *failure_, mailbox_.root_rank(failure_->rank));
}

}  // namespace aloni::tasks::detail
