#include <aloni/tasks/detail/tile_mail.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/give_way.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace aloni::tasks::detail {

namespace {

enum TileMailKind : int { request_mail, payload_mail, place_mail, give_back_mail, barrier_mail, failure_mail };

constexpr const char* tile_mail_name = "aloni::tasks::TileMail";
// Looks without work before the thread sleeps, while no task runs: about the time in which an answer comes within a
// node. While tasks run, each look takes time of a worker, and a tile may come later without harm.
constexpr int looks_before_pause = 200, looks_beside_tasks = 4;

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

template <class T>
void append(std::vector<std::byte>& head, std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = std::as_bytes(values);
  head.insert(head.end(), bytes.begin(), bytes.end());
}

/// The head of a mail with a tile: its key, then `First`, then clients. Throws CommunicationError for another size.
template <class First>
std::vector<TileClient> read_head(const comm::Mail& mail, TileKey& tile, First* first) {
  const std::size_t fixed = sizeof tile + (first ? sizeof(First) : 0);
  const std::size_t rest = mail.head.size() - std::min(mail.head.size(), fixed);
  if (mail.head.size() < fixed || rest % sizeof(TileClient) != 0) {
    throw CommunicationError(tile_mail_name, "payload from rank " + std::to_string(mail.source),
                             "a head of " + std::to_string(mail.head.size()) + " bytes", "a key and clients");
  }
  std::memcpy(&tile, mail.head.data(), sizeof tile);
  if (first) std::memcpy(first, mail.head.data() + sizeof tile, sizeof(First));
  std::vector<TileClient> clients(rest / sizeof(TileClient));
  if (rest > 0) std::memcpy(clients.data(), mail.head.data() + fixed, rest);
  return clients;
}

}  // namespace

TileMail::TileMail(const comm::Communicator& comm, TileMemory& memory, const Options& options)
    : comm_(checked(comm)),
      memory_(memory),
      options_(options),
      requests_(comm.rank(), comm.size(), nodes_of(comm)),
      mailbox_(comm, "tiles"),
      nodes_(nodes_of(comm)),
      peers_(static_cast<std::size_t>(comm.size())),
      rounds_(std::bit_width(static_cast<unsigned>(comm.size() - 1))) {
  mailbox_.handle(request_mail, sizeof(TileRequest), [this](const comm::Mail& mail) {
    arrived_from(mail.source);
    TileRequest request;
    std::memcpy(&request, mail.head.data(), sizeof request);
    requests_.request_arrived(request);
  });
  mailbox_.handle(payload_mail, comm::Mailbox::any_size, [this](const comm::Mail& mail) { payload_begins(mail); });
  mailbox_.handle(place_mail, comm::Mailbox::any_size, [this](const comm::Mail& mail) { place_arrives(mail); });
  mailbox_.handle(give_back_mail, sizeof(TileKey), [this](const comm::Mail& mail) { given_back(mail); });
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
void TileMail::need(TileKey tile, int owner, int most_clients) {
  add({.kind = Event::Kind::need, .tile = tile, .owner = owner, .most_clients = most_clients});
}
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
  for (const Event& event : taken_) {
    tasks_ended_ |= event.kind == Event::Kind::tasks_finished || event.kind == Event::Kind::fail;
    if (!failure_) happen(event);
  }
  taken_.clear();
  return any;
}

void TileMail::happen(const Event& event) {
  switch (event.kind) {
    case Event::Kind::produced:
      data_[event.tile] = event.data;
      return requests_.produced(event.tile, event.clients);
    case Event::Kind::need:
      requests_.set_most_clients(std::min(event.most_clients, options_.most_clients));
      return requests_.need(event.tile, event.owner);
    case Event::Kind::released:
      return requests_.released(event.tile);
    case Event::Kind::tasks_finished:
      return requests_.tasks_finished();
    case Event::Kind::fail:
      if (requests_.finished())
        throw InvalidArgument(tile_mail_name, "fail()", "after tasks_finished()", "one of them");
      own_error_ = event.error;
      failure_ = failure_of(mailbox_.rank(), event.error);
      return;
  }
}

void TileMail::send(int peer, int kind, std::span<const std::byte> head, std::span<const std::byte> data,
                    std::function<void()> done, int priority) {
  ++peers_[static_cast<std::size_t>(peer)].sent;
  mailbox_.send(peer, kind, head, data, std::move(done), {.priority = priority});
}

/// The head of a payload has arrived: the tile's key, and the clients that this rank gets with it.
void TileMail::payload_begins(const comm::Mail& mail) {
  TileKey tile = 0;
  std::vector<TileClient> clients = read_head<TileKey>(mail, tile, nullptr);
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

/// Throws PeerFailed if a rank has died. The memory of a process goes before its end can be seen.
void TileMail::blame_a_death() const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  do {
    comm_.check_poison();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (std::chrono::steady_clock::now() < end);
}

/// A tile that this rank reads in the memory of another rank.
void TileMail::place_arrives(const comm::Mail& mail) {
  arrived_from(mail.source);
  TileKey tile = 0;
  Place place;
  const std::vector<TileClient> clients = read_head(mail, tile, &place);
  if (place.owner < 0 || place.owner >= comm_.size() || place.owner == comm_.rank()) {
    throw CommunicationError(tile_mail_name, "place of a tile from rank " + std::to_string(mail.source),
                             "memory of rank " + std::to_string(place.owner), "memory of another rank");
  }
  if (failure_) return;  // the owner may have left

  if (!requests_.awaits(tile)) return requests_.payload_arrived(tile, clients);  // throws
  auto mapping = comm_.open(place.owner, place.memory, place.bytes);
  if (!mapping) {
    blame_a_death();
    throw CommunicationError(
        tile_mail_name, "tile in the memory of rank " + std::to_string(place.owner),
        std::to_string(place.bytes) + " bytes that rank " + std::to_string(comm_.rank()) + " cannot open",
        "a running process of the same user");
  }
  data_[tile] = {mapping.get(), place.bytes};
  borrowed_[tile] = {place, mail.source, std::move(mapping)};
  comm_.count_direct(mail.source, 0, place.bytes);
  ++place_counts_.tiles_in_place;
  place_counts_.bytes_in_place += place.bytes;
  requests_.payload_arrived(tile, clients);
}

void TileMail::given_back(const comm::Mail& mail) {
  arrived_from(mail.source);
  TileKey tile = 0;
  std::memcpy(&tile, mail.head.data(), sizeof tile);
  const auto lent = lent_.find(tile);
  if (lent == lent_.end() || std::erase(lent->second, mail.source) != 1) {
    throw CommunicationError(tile_mail_name, "tile that rank " + std::to_string(mail.source) + " gives back",
                             std::to_string(tile), "a tile that it reads in place, once");
  }
  if (lent->second.empty()) lent_.erase(lent);
  requests_.sent(tile);
}

/// Where `peer` can read the tile; none if it needs a copy.
std::optional<TileMail::Place> TileMail::place_of(TileKey tile, std::span<const std::byte> data, int peer) const {
  const auto node = [&](int rank) { return nodes_[static_cast<std::size_t>(rank)]; };
  if (!options_.read_in_place || data.size() <= comm::Mailbox::inline_bytes || node(peer) != node(comm_.rank()))
    return std::nullopt;
  if (const auto b = borrowed_.find(tile); b != borrowed_.end()) return b->second.place;
  const comm::ExposedMemory memory = comm_.expose(data.data(), data.size(), peer);
  if (memory.kind != comm::ExposedMemory::Kind::shared_heap) return std::nullopt;
  return Place{.owner = comm_.rank(), .bytes = data.size(), .memory = memory};
}

/// Returns whether there is memory for the message.
bool TileMail::send_payload(const TileAction& a) {
  const std::span<const std::byte> data = data_.at(a.tile);
  std::vector<std::byte> head;
  append(head, std::span(&a.tile, 1));
  if (const auto place = place_of(a.tile, data, a.rank)) {
    append(head, std::span(&*place, 1));
    append(head, std::span(a.clients));
    lent_[a.tile].push_back(a.rank);
    comm_.count_direct(a.rank, place->bytes, 0);
    send(a.rank, place_mail, head, {}, {}, 1);
    return true;
  }
  const auto message = memory_.lend(a.tile, data);
  if (!message) return false;
  append(head, std::span(a.clients));
  send(
      a.rank, payload_mail, head, *message,
      [this, tile = a.tile, message = *message] {
        memory_.take_back(message);
        requests_.sent(tile);
      },
      0);
  return true;
}

void TileMail::free_copy(TileKey tile) {
  data_.erase(tile);
  memory_.free_copy(tile);
  const auto b = borrowed_.find(tile);
  if (b == borrowed_.end()) return;
  send(b->second.server, give_back_mail, std::as_bytes(std::span(&tile, 1)), {}, {}, 0);
  borrowed_.erase(b);
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
        free_copy(a.tile);
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

/// Once the tasks of this rank have ended: no task reads other ranks' memory any more. Afterwards this rank sends
/// nothing.
void TileMail::tell_failure() {
  if (!failure_ || !tasks_ended_ || failure_told_) return;
  failure_told_ = true;
  const std::vector<std::byte> text = to_bytes(*failure_);
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
  if (!failure_) {
    failure_ = theirs;
    if (!tasks_ended_) memory_.failed();
  } else if (theirs.rank < failure_->rank) {
    failure_ = theirs;
  }
}

bool TileMail::ended() const {
  if (!failure_) {
    const std::uint32_t all = (std::uint32_t{1} << rounds_) - 1;
    return requests_.finished() && rounds_told_ == rounds_ && rounds_arrived_ == all;
  }
  if (!failure_told_) return false;
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
    tell_failure();
    idle = any ? 0 : idle + 1;
    const int looks = waits_.load(std::memory_order_relaxed) ? looks_before_pause : looks_beside_tasks;
    if (idle < looks) {
      give_way();
    } else {
      pause(idle - looks);
    }
  }
  mailbox_.wait();
}

/// Waits for an event of a task, or some time. `looks`: earlier pauses in a row. Each wake-up takes some 15 us from the
/// workers: every 50 us that is a third of a core. So the pauses become longer, and quickly while tasks run: no worker
/// waits for a message then.
void TileMail::pause(int looks) {
  const bool waits = waits_.load(std::memory_order_relaxed);
  const int looks_per_step = waits ? 16 : 1, longest = waits ? 8 : 16;
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
