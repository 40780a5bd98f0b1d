#include <aloni/core/comm/engine/engine.hpp>

#include <aloni/core/comm/engine/message_index.hpp>
#include <aloni/core/comm/transport/crc32c.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <cstring>

namespace aloni::comm::detail {

namespace {

// Work up to this size runs at once: it costs less than a search for more urgent work.
constexpr std::size_t small_bytes = 4096;
// Early fragments (without a posted receive) up to this size are copied, so that the sender's memory is free.
constexpr std::size_t stored_bytes = 128 * 1024;
constexpr std::size_t default_run_ahead_bytes = std::size_t{4} << 20;

/// Bytes that an early fragment costs its receiver. Larger fragments stay in the sender's memory.
constexpr std::uint64_t charge(std::size_t bytes) { return 256 + (bytes <= stored_bytes ? bytes : 0); }

constexpr std::uint32_t is_stored = std::uint32_t{1} << 31;  // flag in values of the table: a slot of stored_

Contract contract_of_message(int tag, const MessageOptions& options) {
  return {.kind = OperationKind::message,
          .type = static_cast<std::uint8_t>(options.type),
          .plan = static_cast<std::uint32_t>(tag)};
}

MessageKey key_of_mail(const Engine::Context& c, std::uint32_t kind, std::uint32_t number, Engine::MailPart part) {
  return {c.id, kind, number, part == Engine::MailPart::head ? mail_head_index : mail_data_index};
}

Contract contract_of_mail(std::uint32_t kind) { return {.kind = OperationKind::mail, .plan = kind}; }

/// Whether two contracts are equal, or differ only in the element types of messages, of which one fits any type.
bool fit(const Contract& theirs, Contract ours) {
  const auto fits_any = [](const Contract& c) {
    const auto type = static_cast<ElementType>(c.type);
    return type == ElementType::bytes || type == ElementType::user;
  };
  if (ours.kind == OperationKind::message && (fits_any(theirs) || fits_any(ours))) ours.type = theirs.type;
  return theirs == ours;
}

}  // namespace

int Engine::Context::rank_of(int root_rank) const {
  const auto found = std::ranges::find(root_ranks, root_rank);
  return found == root_ranks.end() ? -1 : static_cast<int>(found - root_ranks.begin());
}

Engine::Engine(int rank, std::vector<Transport*> routes, std::pmr::memory_resource& memory)
    : rank_(rank),
      routes_(std::move(routes)),
      memory_(memory),
      max_fragment_bytes_(std::size_t{1} << 30),
      run_ahead_bytes_(default_run_ahead_bytes),
      traffic_(routes_.size()),
      credits_(routes_.size()) {
  for (Transport* t : routes_) {
    if (std::ranges::find(transports_, t) == transports_.end()) transports_.push_back(t);
  }
}

Engine::~Engine() {
  for (Part& p : parts_.all) {
    if (p.scratch) memory_.deallocate(p.scratch, p.scratch_bytes, 64);
  }
}

Engine::Context& Engine::add_context(std::uint32_t id, std::vector<int> root_ranks) {
  if (context_of(id)) {
    throw Unsupported("aloni::comm::Engine", "number of a new communicator", std::to_string(id),
                      "an unused number; create the communicator again, or destroy others first");
  }
  auto c = std::make_unique<Context>();
  c->id = id;
  c->root_ranks = std::move(root_ranks);
  c->rank = c->rank_of(rank_);
  Context& added = *contexts_.emplace_back(std::move(c));
  // Mails of ranks that have made the communicator earlier. Of a message in fragments the table knows the first.
  for (std::uint32_t i = 0; num_stored_ > 0 && i < stored_.all.size(); ++i) {
    const Stored& s = stored_[i];
    if (s.free || s.fragment.header.context != id || s.fragment.header.index != mail_head_index) continue;
    const std::uint32_t* const first = table_.find(s.fragment.peer, s.fragment.header.key());
    if (first && *first == (i | is_stored)) note_mail(added, s.fragment);
  }
  return added;
}

template <class F>
void Engine::drop_stored(F&& which) {
  if (num_stored_ == 0) return;
  for (std::uint32_t i = 0; i < stored_.all.size(); ++i) {
    Stored& s = stored_[i];
    if (s.free || !which(s.fragment.header)) continue;
    if (table_.find(s.fragment.peer, s.fragment.header.key())) table_.erase(s.fragment.peer, s.fragment.header.key());
    consumed(s.fragment.peer, s.fragment.header.bytes);
    s.free = true;
    stored_.free.push_back(i);
    --num_stored_;
  }
}

void Engine::remove_context(Context& context) {
  drop_stored([&](const Header& h) { return h.context == context.id; });
  std::erase_if(contexts_, [&](const auto& c) { return c.get() == &context; });
}

Engine::Context* Engine::context_of(std::uint32_t id) {
  for (const auto& c : contexts_) {
    if (c->id == id) return c.get();
  }
  return nullptr;
}

// --- handles ---

std::uint32_t Engine::add_pending() {
  const std::uint32_t i = pending_.take();
  pending_[i].done = false;
  return i;
}

bool Engine::test(Handle h) {
  if (spent(h)) return true;
  Pending& p = pending_[h.slot];
  if (!p.done) return false;
  ++p.generation;
  pending_.free.push_back(h.slot);
  return true;
}

// --- messages ---

namespace {

/// The key of Context::numbers: the number of messages with this tag so far.
MessageKey key_of_number(std::uint32_t tag, bool is_send) { return {0, tag, is_send ? 1u : 0u, 0}; }

}  // namespace

std::uint32_t Engine::next_number(Context& c, int peer, int tag, bool is_send) {
  const MessageKey key = key_of_number(static_cast<std::uint32_t>(tag), is_send);
  if (std::uint32_t* const number = c.numbers.find(peer, key)) return (*number)++;
  c.numbers.insert(peer, key, 1);
  return 0;
}

Engine::Handle Engine::send(Context& c, std::span<const std::byte> data, int peer, int tag,
                            const MessageOptions& options) {
  const int root = c.root_of(peer);
  return send(c, data, {c.id, static_cast<std::uint32_t>(tag), next_number(c, root, tag, true), message_index},
              contract_of_message(tag, options), root, options);
}

Engine::Handle Engine::receive(Context& c, std::span<std::byte> data, int peer, int tag,
                               const MessageOptions& options) {
  const int root = c.root_of(peer);
  return receive(c, data, {c.id, static_cast<std::uint32_t>(tag), next_number(c, root, tag, false), message_index},
                 contract_of_message(tag, options), "aloni::comm::Communicator::receive", root, options);
}

/// `peer`: rank of the root communicator. `contract`: without the count.
Engine::Handle Engine::send(Context&, std::span<const std::byte> data, const MessageKey& key, const Contract& contract,
                            int peer, const MessageOptions& options) {
  const std::uint32_t pending = add_pending(), i = outgoing_.take();
  Outgoing& m = outgoing_[i];
  m = {.peer = peer,
       .key = key,
       .contract = contract,
       .data = data.data(),
       .bytes = data.size(),
       .priority = options.priority,
       .pending = pending,
       .on_device = options.on_device};
  m.contract.count = data.size();
  post(i);
  drain();
  return {pending, pending_[pending].generation};
}

Engine::Handle Engine::receive(Context& c, std::span<std::byte> data, const MessageKey& key, const Contract& contract,
                               const char* name, int peer, const MessageOptions& options) {
  const std::uint32_t pending = add_pending(), i = incoming_.take();
  Incoming& m = incoming_[i];
  m = {.peer = peer,
       .key = key,
       .contract = contract,
       .context = &c,
       .name = name,
       .to = data.data(),
       .bytes = data.size(),
       .priority = options.priority,
       .pending = pending,
       .on_device = options.on_device};
  m.contract.count = data.size();
  post_incoming(i);
  drain();
  return {pending, pending_[pending].generation};
}

// --- mails ---

Engine::Handle Engine::send_mail(Context& c, std::span<const std::byte> data, int peer, std::uint32_t kind,
                                 std::uint32_t number, MailPart part, const MessageOptions& options) {
  return send(c, data, key_of_mail(c, kind, number, part), contract_of_mail(kind), c.root_of(peer), options);
}

Engine::Handle Engine::receive_mail(Context& c, std::span<std::byte> data, int peer, std::uint32_t kind,
                                    std::uint32_t number, MailPart part, const char* name,
                                    const MessageOptions& options) {
  return receive(c, data, key_of_mail(c, kind, number, part), contract_of_mail(kind), name, c.root_of(peer), options);
}

std::optional<Engine::Mail> Engine::next_mail(Context& c) {
  if (c.mails.empty()) return std::nullopt;
  const Mail mail = c.mails.front();
  c.mails.pop_front();
  return mail;
}

void Engine::note_mail(Context& c, const Transport::Fragment& fragment) {
  const Header& h = fragment.header;
  c.mails.push_back({.peer = c.rank_of(fragment.peer),
                     .kind = h.operation,
                     .number = h.part,
                     .bytes = static_cast<std::size_t>(h.contract.count)});
}

// --- transfers ---

MessageKey Engine::key_of(const Transfer& t, std::uint32_t kind) {
  return {t.context->id, t.number, 2 * (t.rounds - 1) + kind, transfer_index};
}

std::uint32_t Engine::add_transfer(Context& c, std::uint32_t number, const Contract& types, const char* name) {
  const std::uint32_t i = transfers_.take();
  transfers_[i] = {.context = &c, .name = name, .number = number, .contract = types};
  transfers_[i].contract.kind = OperationKind::transfer;
  transfers_by_number_.insert(0, {c.id, number, 0, transfer_index}, i);
  return i;
}

void Engine::remove_transfer(std::uint32_t i) {
  Transfer& t = transfers_[i];
  const std::uint32_t context = t.context->id;
  drop_stored(
      [&](const Header& h) { return h.index == transfer_index && h.context == context && h.operation == t.number; });
  transfers_by_number_.erase(0, {context, t.number, 0, transfer_index});
  t.context = nullptr;
  transfers_.free.push_back(i);
}

void Engine::begin_round(std::uint32_t i, TransferDirection direction) {
  Transfer& t = transfers_[i];
  t.directions[t.rounds++ % t.directions.size()] = direction;
  t.contract.variant = static_cast<std::uint8_t>(direction);
  if (num_stored_ == 0) return;
  for (const Stored& s : stored_.all) {
    if (!s.free && s.fragment.header.index == transfer_index) check_early_transfer(s.fragment);
  }
}

Engine::Handle Engine::send(std::uint32_t transfer, std::span<const std::byte> data, int peer, std::uint32_t kind,
                            const MessageOptions& options) {
  const Transfer& t = transfers_[transfer];
  return send(*t.context, data, key_of(t, kind), t.contract, t.context->root_of(peer), options);
}

Engine::Handle Engine::receive(std::uint32_t transfer, std::span<std::byte> data, int peer, std::uint32_t kind,
                               const MessageOptions& options) {
  const Transfer& t = transfers_[transfer];
  return receive(*t.context, data, key_of(t, kind), t.contract, t.name, t.context->root_of(peer), options);
}

/// A rank sends in one direction, and this rank has begun the round in the other. Needed where this rank expects no
/// message of the sender: otherwise the receive compares the contracts.
void Engine::check_early_transfer(const Transport::Fragment& fragment) {
  const Header& h = fragment.header;
  const std::uint32_t* const found = transfers_by_number_.find(0, {h.context, h.operation, 0, transfer_index});
  if (!found) return;
  const Transfer& t = transfers_[*found];
  const std::uint32_t ago = t.rounds - h.part / 2;   // 1: the current round
  if (ago < 1 || ago > t.directions.size()) return;  // not begun here yet, or too old
  Contract ours = t.contract;
  ours.variant = static_cast<std::uint8_t>(t.directions[h.part / 2 % t.directions.size()]);
  ours.count = h.contract.count;
  if (!(ours == h.contract)) mismatch(t.name, *t.context, fragment.peer, h.contract, ours);
}

/// Whether a message tells another rank where this rank's memory is, instead of carrying values.
bool Engine::carries_address(std::uint32_t part, int instruction) const {
  return part != none && parts_[part].program->instructions[static_cast<std::size_t>(instruction)].exposed_slot >= 0;
}

void Engine::post(std::uint32_t i) {
  const Outgoing& m = outgoing_[i];
  Traffic& t = traffic_[static_cast<std::size_t>(m.peer)];
  TrafficCounters& counters = m.part == none ? t.messages : t.collectives;
  ++counters.messages_sent;
  if (!carries_address(m.part, m.instruction)) counters.bytes_sent += m.bytes;
  if (!push(i)) {
    const auto place = std::ranges::upper_bound(blocked_, m.priority, std::greater{},
                                                [&](std::uint32_t other) { return outgoing_[other].priority; });
    blocked_.insert(place, i);
  }
}

/// Sends the remaining fragments; false if the transport had no room for all of them.
bool Engine::push(std::uint32_t i) {
  Outgoing& m = outgoing_[i];
  Transport& transport = *routes_[static_cast<std::size_t>(m.peer)];
  while (m.next < m.bytes || !m.begun) {
    const std::byte* const data = m.data + m.next;
    const std::size_t rest = m.bytes - m.next;
    std::size_t bytes = rest;
    const std::size_t limit =
        std::min(max_fragment_bytes_, rest > 0 ? transport.largest_fragment(m.peer, data, rest) : 1);
    if (rest > limit) bytes = std::max(limit / m.unit, std::size_t{1}) * m.unit;
    const Header header{.context = m.key.context,
                        .operation = m.key.operation,
                        .part = m.key.part,
                        .index = m.key.index,
                        .path = m.on_device ? Header::device_path : std::uint8_t{0},
                        .last = bytes == rest,
                        .contract = m.contract,
                        .offset = m.next,
                        .bytes = static_cast<std::uint32_t>(bytes),
                        .checksum = checksums_ ? crc32c(data, bytes) : 0};
    const Transport::Sent result = transport.send(m.peer, header, data, i);
    if (result == Transport::Sent::no_room) return false;
    if (result == Transport::Sent::pending) ++m.in_use;
    m.begun = true;
    m.next += bytes;
    m.end = credits_[static_cast<std::size_t>(m.peer)].sent += charge(bytes);
  }
  if (m.in_use == 0) all_left(i);
  return true;
}

void Engine::sent(std::uint32_t ticket) {
  if (ticket == none) return;  // ticket of a note
  ++advances_;
  Outgoing& m = outgoing_[ticket];
  if (--m.in_use == 0 && m.next == m.bytes && m.begun) all_left(ticket);
}

void Engine::all_left(std::uint32_t i) {
  const Outgoing& m = outgoing_[i];
  // No flow control for messages to this rank itself: it cannot receive them while it waits here.
  if (m.peer == rank_ || m.end <= credits_[static_cast<std::size_t>(m.peer)].consumed_there + run_ahead_bytes_)
    return finish_outgoing(i);
  ahead_.push_back(i);
}

void Engine::consumed(int peer, std::size_t bytes) {
  if (peer == rank_) return;
  Credit& credit = credits_[static_cast<std::size_t>(peer)];
  credit.consumed += charge(bytes);
  if (credit.consumed - credit.announced >= run_ahead_bytes_ / 4 && std::ranges::find(owed_, peer) == owed_.end())
    owed_.push_back(peer);
}

/// Sends an acknowledgement; false if the transport had no room.
bool Engine::send_credit(int peer) {
  const auto p = static_cast<std::size_t>(peer);
  const Header note{.index = credit_index, .offset = credits_[p].consumed};
  if (routes_[p]->send(peer, note, nullptr, none) == Transport::Sent::no_room) return false;
  credits_[p].announced = credits_[p].consumed;
  return true;
}

void Engine::on_credit(int peer, std::uint64_t consumed) {
  std::uint64_t& consumed_there = credits_[static_cast<std::size_t>(peer)].consumed_there;
  consumed_there = std::max(consumed_there, consumed);
  // Remove a message from the list before finishing it: finishing may start sends that append to the list.
  const auto complete = [&](std::uint32_t i) {
    return outgoing_[i].peer == peer && outgoing_[i].end <= consumed_there + run_ahead_bytes_;
  };
  for (auto found = std::ranges::find_if(ahead_, complete); found != ahead_.end();
       found = std::ranges::find_if(ahead_, complete)) {
    const std::uint32_t i = *found;
    ahead_.erase(found);
    finish_outgoing(i);
  }
}

void Engine::finish_outgoing(std::uint32_t i) {
  ++advances_;
  const Outgoing& m = outgoing_[i];
  const std::uint32_t part = m.part, pending = m.pending;
  const int instruction = m.instruction;
  outgoing_[i].peer = -1;
  outgoing_.free.push_back(i);
  if (part != none) {
    complete(part, instruction);
  } else {
    finish_pending(pending);
  }
}

void Engine::post_incoming(std::uint32_t i) {
  const Incoming& m = incoming_[i];
  std::uint32_t* const found = table_.find(m.peer, m.key);
  if (!found) return table_.insert(m.peer, m.key, i);
  std::uint32_t early = *found & ~is_stored;
  *found = i;
  while (early != none) {
    Stored& s = stored_[early];
    const std::uint32_t next = s.next;
    take(i, s.fragment);
    s.free = true;
    stored_.free.push_back(early);
    --num_stored_;
    early = next;
  }
}

void Engine::arrived(const Transport::Fragment& fragment) {
  const MessageKey key = fragment.header.key();
  if (key.index == credit_index) return on_credit(fragment.peer, fragment.header.offset);
  if (key.index == wait_index) return on_wait(fragment);
  std::uint32_t* const found = table_.find(fragment.peer, key);
  if (found && !(*found & is_stored)) return take(*found, fragment);
  check_early(fragment);
  if (key.index == note_index) return;
  const bool is_first = !found;
  store(fragment, found);
  if (key.index != mail_head_index || !is_first) return;
  if (Context* const c = context_of(key.context)) note_mail(*c, fragment);
}

void Engine::store(const Transport::Fragment& fragment, std::uint32_t* list) {
  const std::uint32_t i = stored_.take();
  ++num_stored_;
  Stored& s = stored_[i];
  s.free = false;
  s.fragment = fragment;
  s.next = none;
  const std::size_t bytes = fragment.header.bytes;
  if (fragment.data && bytes > 0 && (!fragment.stays || bytes <= stored_bytes)) {
    s.copy.assign(fragment.data, fragment.data + bytes);
    s.fragment.data = s.copy.data();
    s.fragment.stays = false;
    if (fragment.stays) routes_[static_cast<std::size_t>(fragment.peer)]->release(fragment);
  }
  if (list) {
    std::uint32_t last = *list & ~is_stored;
    while (stored_[last].next != none) last = stored_[last].next;
    stored_[last].next = i;
  } else {
    table_.insert(fragment.peer, fragment.header.key(), i | is_stored);
  }
}

void Engine::mismatch(const char* name, const Context& c, int peer, const Contract& theirs, const Contract& ours) {
  const int rank = c.rank_of(peer);
  const bool message = theirs.kind == OperationKind::message && ours.kind == OperationKind::message;
  std::string who = (message ? "message from rank " : "call of rank ") + std::to_string(rank < 0 ? peer : rank);
  if (rank >= 0 && rank != peer) who += " (rank " + std::to_string(peer) + " of the root communicator)";
  if (message) {
    const bool types = theirs.count == ours.count;
    throw CommunicationError(name, who + ", tag " + std::to_string(ours.plan),
                             types ? describe(theirs) : std::to_string(theirs.count) + " bytes",
                             types ? describe(ours) : std::to_string(ours.count) + " bytes");
  }
  std::string what = describe(theirs);
  const bool is_sum = ours.kind == OperationKind::all_reduce || ours.kind == OperationKind::reduce_scatter;
  if (theirs.kind == ours.kind && theirs.count == ours.count && theirs.type == ours.type &&
      theirs.reduction == ours.reduction && theirs.variant == ours.variant) {
    what += ours.kind == OperationKind::transfer              ? " and other element types after the first"
            : (ours.variant & Contract::fused) != 0 && is_sum ? " of another list of all-reduces"
                                                              : " with another plan";
  }
  throw CommunicationError(name, who, what, describe(ours) + ", the call of this rank");
}

void Engine::check(const Incoming& m, const Transport::Fragment& fragment) const {
  const Header& h = fragment.header;
  if (!(h.contract == m.contract) && !fit(h.contract, m.contract))
    mismatch(m.name, *m.context, m.peer, h.contract, m.contract);
  const std::size_t end = h.offset + h.bytes;
  if (end > m.bytes || (h.last && end != m.bytes)) {
    throw CommunicationError(m.name, "message from rank " + std::to_string(m.context->rank_of(m.peer)),
                             std::to_string(end) + " bytes", std::to_string(m.bytes) + " bytes");
  }
}

void Engine::check_sum(const Incoming& m, const std::byte* data, std::size_t bytes, std::uint32_t checksum) const {
  const std::uint32_t found = crc32c(data, bytes);
  if (found == checksum) return;
  throw CommunicationError(
      m.name, "checksum of " + std::to_string(bytes) + " bytes from rank " + std::to_string(m.context->rank_of(m.peer)),
      std::to_string(found), std::to_string(checksum) + ", the checksum of the sender");
}

void Engine::check_fused_next(const Context& c, const Transport::Fragment& fragment) {
  const Contract& theirs = fragment.header.contract;
  if (c.fused_next.kind != OperationKind::all_reduce) return;
  if (theirs.kind == OperationKind::all_reduce && (theirs.variant & Contract::fused) != 0) return;
  mismatch("aloni::comm::AllReduce", c, fragment.peer, theirs, c.fused_next);
}

void Engine::expect_fused(Context& c, const Contract& member) {
  c.fused_next = member;
  if (num_stored_ == 0) return;
  for (const Stored& s : stored_.all) {
    const Header& h = s.fragment.header;
    if (!s.free && h.context == c.id && h.operation == c.next_operation && h.index < first_special_index)
      check_fused_next(c, s.fragment);
  }
}

void Engine::check_early(const Transport::Fragment& fragment) {
  const Header& h = fragment.header;
  if (h.index == message_index || h.index == mail_head_index || h.index == mail_data_index) return;
  if (h.index == transfer_index) return check_early_transfer(fragment);
  for (const auto& c : contexts_) {
    if (c->id != h.context) continue;
    const std::uint32_t ago = c->next_operation - h.operation;  // 1: the latest operation
    if (ago == 0) check_fused_next(*c, fragment);
    if (ago < 1 || ago > c->recent.size()) return;  // not started here yet, or too old
    const Contract& ours = c->recent[h.operation % c->recent.size()];
    if (!(ours == h.contract)) mismatch("aloni::comm::Communicator", *c, fragment.peer, h.contract, ours);
    return;
  }
}

void Engine::take(std::uint32_t i, const Transport::Fragment& fragment) {
  Incoming& m = incoming_[i];
  check(m, fragment);
  const std::size_t bytes = fragment.header.bytes;
  if (bytes == 0) return landed(i, 0);
  if (!fragment.data) {
    const std::uint32_t ticket = fetches_.take();
    fetches_[ticket] = {i, fragment.header.checksum, fragment.header.offset, bytes};
    return routes_[static_cast<std::size_t>(m.peer)]->fetch(fragment, m.to + fragment.header.offset, ticket);
  }
  if (!fragment.stays || bytes <= small_bytes) return consume(i, fragment);
  defer({m.priority, order_++, i, -1, fragment});
}

void Engine::consume(std::uint32_t i, const Transport::Fragment& fragment) {
  Incoming& m = incoming_[i];
  if (checksums_) check_sum(m, fragment.data, fragment.header.bytes, fragment.header.checksum);
  absorb(m, fragment.header.offset, fragment.data, fragment.header.bytes);
  if (fragment.stays) routes_[static_cast<std::size_t>(m.peer)]->release(fragment);
  landed(i, fragment.header.bytes);
}

void Engine::fetched(std::uint32_t ticket) {
  const Fetch f = fetches_[ticket];
  fetches_.free.push_back(ticket);
  Incoming& m = incoming_[f.incoming];
  if (checksums_) check_sum(m, m.to + f.offset, f.bytes, f.checksum);
  absorb(m, f.offset, nullptr, f.bytes);
  landed(f.incoming, f.bytes);
}

/// Copies the payload to its destination, or reduces it into its destination. `data` null: the payload lies in m.to.
void Engine::absorb(Incoming& m, std::size_t offset, const std::byte* data, std::size_t bytes) {
  const Program::Instruction* sum = nullptr;
  if (m.part != none) {
    const Part& p = parts_[m.part];
    const int fused = p.program->instructions[static_cast<std::size_t>(m.instruction)].fused;
    // Reduce on arrival only if this receive is the last dependency of the reduction.
    if (m.mode == Incoming::Mode::undecided) {
      m.mode =
          fused >= 0 && p.waiting[static_cast<std::size_t>(fused)] == 1 ? Incoming::Mode::fused : Incoming::Mode::plain;
    }
    if (m.mode == Incoming::Mode::fused) sum = &p.program->instructions[static_cast<std::size_t>(fused)];
  }
  if (!sum) {
    if (data && m.on_device) {
      throw CommunicationError(m.name, "payload from rank " + std::to_string(m.context->rank_of(m.peer)),
                               "in host memory", "device memory on both ranks (MessageOptions::on_device)");
    }
    if (data) std::memcpy(m.to + offset, data, bytes);
    return;
  }
  const Part& p = parts_[m.part];
  const ElementOperation& e = operations_[p.operation].call.operation;
  std::byte* const to = address(p, sum->step.to) + offset;
  const std::byte* const from = data ? data : m.to + offset;
  const bool first = sum->step.operands == Operands::from_first;
  e.combine(e.state.get(), to, first ? from : to, first ? to : from, bytes / e.element_bytes);
}

void Engine::landed(std::uint32_t i, std::size_t bytes) {
  Incoming& m = incoming_[i];
  ++advances_;
  consumed(m.peer, bytes);
  m.got += bytes;
  if (m.got < m.bytes) return;
  table_.erase(m.peer, m.key);
  Traffic& t = traffic_[static_cast<std::size_t>(m.peer)];
  TrafficCounters& counters = m.part == none ? t.messages : t.collectives;
  ++counters.messages_received;
  if (!carries_address(m.part, m.instruction)) counters.bytes_received += m.bytes;
  const std::uint32_t part = m.part, pending = m.pending;
  int instruction = m.instruction;
  const bool fused = m.mode == Incoming::Mode::fused;
  m.context = nullptr;
  incoming_.free.push_back(i);
  if (part == none) return finish_pending(pending);
  if (fused) {
    --parts_[part].left;  // counts the receive; the reduction is its only dependent
    instruction = parts_[part].program->instructions[static_cast<std::size_t>(instruction)].fused;
  }
  complete(part, instruction);
}

// --- operations ---

Engine::Handle Engine::start(Context& c, Call submitted) {
  const std::uint32_t pending = add_pending(), i = operations_.take();
  Operation& o = operations_[i];
  o = {.call = std::move(submitted), .context = &c, .number = c.next_operation++, .pending = pending};
  const Call& call = o.call;
  c.fused_next = {};
  c.recent[o.number % c.recent.size()] = call.contract;
  if (journal_) {
    journal_->store((1 + static_cast<std::uint64_t>(call.contract.kind)) << 32 | o.number, std::memory_order_relaxed);
  }
  if (num_stored_ > 0) {
    for (const Stored& s : stored_.all) {
      const Header& h = s.fragment.header;
      if (!s.free && h.context == c.id && h.operation == o.number && h.index < first_special_index &&
          !(h.contract == call.contract))
        mismatch(call.name, c, s.fragment.peer, h.contract, call.contract);
    }
  }
  // A part without steps finishes at once and starts the next part.
  for (std::uint32_t n = parts_in_flight; n > 0 && o.next_part < call.parts; --n) start_part(i);
  drain();
  return {pending, pending_[pending].generation};
}

void Engine::start_part(std::uint32_t operation) {
  Operation& o = operations_[operation];
  const std::uint32_t i = parts_.take();
  Part& p = parts_[i];
  p.operation = operation;
  // Every second operation runs its parts backwards: it starts with the data that the last operation left in the cache.
  const std::uint32_t turn = o.next_part++;
  p.number = o.number % 2 == 0 ? turn : o.call.parts - 1 - turn;
  p.program = p.number + 1 == o.call.parts ? o.call.last : o.call.whole;
  const std::size_t unit = o.call.operation.element_bytes;
  const std::size_t offset = static_cast<std::size_t>(o.call.part_elements) * p.number * unit;
  p.input = static_cast<const std::byte*>(o.call.input) + offset;
  p.output = static_cast<std::byte*>(o.call.output) + offset;
  if (const std::size_t bytes = static_cast<std::size_t>(p.program->scratch) * unit; bytes > p.scratch_bytes) {
    if (p.scratch) memory_.deallocate(p.scratch, p.scratch_bytes, 64);
    p.scratch = nullptr;
    p.scratch = static_cast<std::byte*>(memory_.allocate(bytes, 64));
    p.scratch_bytes = bytes;
  }
  p.waiting = p.program->waiting;
  p.left = p.program->instructions.size();
  if (!p.program->combined.empty()) {
    const Region& r = p.program->exposed;
    for (const int rank : p.program->combined) {
      if (rank == rank_) continue;
      p.own = routes_[static_cast<std::size_t>(rank)]->expose(address(p, r), static_cast<std::size_t>(r.count) * unit);
      break;
    }
    p.exposed.resize(p.program->combined.size());
  }
  if (p.left == 0) return finish_part(i);
  for (const int instruction : p.program->first) ready_.emplace_back(i, instruction);
}

void Engine::finish_part(std::uint32_t part) {
  const std::uint32_t i = parts_[part].operation;
  parts_.free.push_back(part);
  Operation& o = operations_[i];
  ++o.finished_parts;
  if (o.next_part < o.call.parts) return start_part(i);
  if (o.finished_parts < o.call.parts) return;
  o.call.finish(o.call.output);
  finish_pending(o.pending);
  o.call = {};
  o.context = nullptr;
  operations_.free.push_back(i);
}

std::byte* Engine::address(const Part& p, const Region& r) const {
  const std::size_t offset = static_cast<std::size_t>(r.offset) * operations_[p.operation].call.operation.element_bytes;
  switch (r.buffer) {
    case Buffer::input:
      return const_cast<std::byte*>(p.input) + offset;  // no step writes to it: the verifier checks this
    case Buffer::output:
      return p.output + offset;
    case Buffer::scratch:
      break;
  }
  return p.scratch + offset;
}

void Engine::drain() {
  while (!ready_.empty()) {
    const auto [part, instruction] = ready_.back();
    ready_.pop_back();
    execute(part, instruction);
  }
}

void Engine::execute(std::uint32_t part, int number) {
  Part& p = parts_[part];
  const Operation& o = operations_[p.operation];
  const Program::Instruction& instruction = p.program->instructions[static_cast<std::size_t>(number)];
  const Step& s = instruction.step;
  const std::size_t unit = o.call.operation.element_bytes;
  const MessageKey key{o.context->id, o.number, p.number, instruction.index};
  if (s.kind == Step::Kind::send) {
    const std::uint32_t i = outgoing_.take();
    Outgoing& m = outgoing_[i];
    m = {.peer = s.peer,
         .key = key,
         .contract = o.call.contract,
         .data = address(p, s.from),
         .bytes = static_cast<std::size_t>(s.from.count) * unit,
         .unit = unit,
         .priority = o.call.priority,
         .part = part,
         .instruction = number};
    if (instruction.exposed_slot >= 0) {
      m.data = reinterpret_cast<const std::byte*>(&p.own);
      m.bytes = sizeof p.own;
    }
    return post(i);
  }
  if (s.kind == Step::Kind::receive) {
    const std::uint32_t i = incoming_.take();
    Incoming& m = incoming_[i];
    m = {.peer = s.peer,
         .key = key,
         .contract = o.call.contract,
         .context = o.context,
         .name = o.call.name,
         .to = address(p, s.to),
         .bytes = static_cast<std::size_t>(s.to.count) * unit,
         .priority = o.call.priority,
         .part = part,
         .instruction = number};
    if (instruction.exposed_slot >= 0) {
      m.to = reinterpret_cast<std::byte*>(&p.exposed[static_cast<std::size_t>(instruction.exposed_slot)]);
      m.bytes = sizeof(SharedAddress);
    }
    return post_incoming(i);
  }
  if (static_cast<std::size_t>(s.to.count) * unit <= small_bytes) return run(part, number);
  defer({o.call.priority, order_++, part, number, {}});
}

void Engine::run(std::uint32_t part, int number) {
  const Part& p = parts_[part];
  const ElementOperation& e = operations_[p.operation].call.operation;
  const Step& s = p.program->instructions[static_cast<std::size_t>(number)].step;
  const auto count = static_cast<std::size_t>(s.to.count);
  std::byte* const to = address(p, s.to);
  if (s.kind == Step::Kind::copy) {
    std::memcpy(to, address(p, s.from), count * e.element_bytes);
  } else if (s.kind == Step::Kind::reduce) {
    const std::byte* const from = address(p, s.from);
    const bool first = s.operands == Operands::from_first;
    e.combine(e.state.get(), to, first ? from : to, first ? to : from, count);
  } else {
    const std::size_t place = static_cast<std::size_t>(s.place) * e.element_bytes;
    operands_.clear();
    for (std::size_t i = 0; i < p.program->combined.size(); ++i) {
      if (static_cast<int>(i) == p.program->own_slot) {
        operands_.push_back(to);
        continue;
      }
      SharedAddress where = p.exposed[i];
      where.offset += place;
      const int peer = p.program->combined[i];
      operands_.push_back(routes_[static_cast<std::size_t>(peer)]->exposed(peer, where, count * e.element_bytes));
      // Both ranks read the values of their block from the other, and write the result of their block to it.
      const Region whole{Buffer::output, 0, p.program->exposed.count};
      const Index its = block_of(whole, static_cast<int>(i), static_cast<int>(p.program->combined.size())).count;
      const std::size_t bytes = (count + static_cast<std::size_t>(its)) * e.element_bytes;
      TrafficCounters& counters = traffic_[static_cast<std::size_t>(peer)].collectives;
      counters.bytes_sent += bytes;
      counters.bytes_received += bytes;
    }
    combine_all(e, operands_, count);
  }
  complete(part, number);
}

void Engine::complete(std::uint32_t part, int number) {
  ++advances_;
  Part& p = parts_[part];
  const Program& program = *p.program;
  const auto dependents = program.dependents_of(program.instructions[static_cast<std::size_t>(number)]);
  for (std::size_t i = dependents.size(); i-- > 0;) {
    if (--p.waiting[static_cast<std::size_t>(dependents[i])] == 0) ready_.emplace_back(part, dependents[i]);
  }
  if (--p.left == 0) finish_part(part);
}

// --- progress ---

void Engine::defer(Work work) {
  work_.push_back(std::move(work));
  std::ranges::push_heap(work_, Work::later);
}

bool Engine::progress() {
  bool any = false;
  for (Transport* const t : transports_) any |= t->poll(*this);
  if (!owed_.empty()) any |= std::erase_if(owed_, [&](int peer) { return send_credit(peer); }) > 0;
  if (!blocked_.empty()) {
    retried_.swap(blocked_);
    for (const std::uint32_t i : retried_) {
      if (push(i)) {
        any = true;
      } else {
        blocked_.push_back(i);
      }
    }
    retried_.clear();
  }
  drain();
  if (work_.empty()) return any;
  std::ranges::pop_heap(work_, Work::later);
  const Work w = std::move(work_.back());
  work_.pop_back();
  if (w.instruction >= 0) {
    run(w.slot, w.instruction);
  } else {
    consume(w.slot, w.fragment);
  }
  drain();
  return true;
}

void Engine::compare_notes() {
  for (const Incoming& m : incoming_.all) {
    if (!m.context || m.part == none) continue;
    const Header note{.context = m.key.context,
                      .operation = m.key.operation,
                      .part = m.key.part,
                      .index = note_index,
                      .contract = m.contract};
    // Without room, the note is dropped: the next call sends another.
    routes_[static_cast<std::size_t>(m.peer)]->send(m.peer, note, nullptr, none);
  }
  for (const Incoming& m : incoming_.all) {
    if (m.context && m.peer != rank_ && needed_by_wait(m)) tell_wait(m, waits_, false);
  }
}

/// Whether the wait of this rank cannot end before this message has arrived.
bool Engine::needed_by_wait(const Incoming& m) const {
  if (!waits_now_ || spent(wait_) || pending_[wait_.slot].done) return false;
  return (m.part == none ? m.pending : operations_[parts_[m.part].operation].pending) == wait_.slot;
}

/// Whether this rank surely has not started the operation in which it sends this message, and starts it only after its
/// wait. Fused all-reduces may start during a wait.
bool Engine::not_started(const MessageKey& key, int peer) {
  Context* const c = context_of(key.context);
  if (!c || c->fused_next.kind == OperationKind::all_reduce) return false;
  if (key.index == mail_head_index || key.index == mail_data_index) return false;
  if (key.index == message_index) {
    const std::uint32_t* const sent = c->numbers.find(peer, key_of_number(key.operation, true));
    return (sent ? *sent : 0) <= key.part;
  }
  if (key.index == transfer_index) {
    const std::uint32_t* const found = transfers_by_number_.find(0, {key.context, key.operation, 0, transfer_index});
    return found && transfers_[*found].rounds <= key.part / 2;
  }
  return static_cast<std::int32_t>(key.operation - c->next_operation) >= 0;
}

void Engine::tell_wait(const Incoming& m, std::uint32_t waits, bool answer) {
  const Header note{.context = m.key.context,
                    .operation = m.key.operation,
                    .part = m.key.part,
                    .index = wait_index,
                    .contract = m.contract,
                    .offset = std::uint64_t{waits} << 32 | (answer ? 0x10000u : 0u) | m.key.index};
  routes_[static_cast<std::size_t>(m.peer)]->send(m.peer, note, nullptr, none);
}

/// A rank A waits for a message of this rank B, which B has not started. B waits too, for a message of A: B answers
/// with that message. If A is still in the same wait and has not started it, neither can: A throws.
void Engine::on_wait(const Transport::Fragment& fragment) {
  const Header& h = fragment.header;
  MessageKey key = h.key();
  key.index = static_cast<std::uint16_t>(h.offset & 0xffff);
  const auto waits = static_cast<std::uint32_t>(h.offset >> 32);
  const bool answer = (h.offset & 0x10000) != 0;
  if (!waits_now_ || (answer && waits != waits_) || !not_started(key, fragment.peer)) return;
  for (const Incoming& m : incoming_.all) {
    if (!m.context || m.peer != fragment.peer || !needed_by_wait(m)) continue;
    if (!answer) return tell_wait(m, waits, true);
    const int rank = m.context->rank_of(fragment.peer);
    throw CommunicationError(
        m.name,
        "call of rank " + std::to_string(rank) +
            (rank == fragment.peer ? "" : " (rank " + std::to_string(fragment.peer) + " of the root communicator)"),
        describe(h.contract) + " in another communicator or order; each rank waits for the other",
        describe(m.contract) + ", the call of this rank");
  }
}

std::vector<int> Engine::ranks_waited_for() const {
  std::vector<int> ranks;
  const auto add = [&](int rank) {
    if (std::ranges::find(ranks, rank) == ranks.end()) ranks.push_back(rank);
  };
  for (const Incoming& m : incoming_.all) {
    if (m.context) add(m.peer);
  }
  for (const Outgoing& m : outgoing_.all) {
    if (m.peer >= 0) add(m.peer);
  }
  return ranks;
}

std::string Engine::waiting_for() const {
  std::string text;
  const auto add = [&](const std::string& line) { text += (text.empty() ? "" : "; ") + line; };
  const auto name = [&](int root, const Context* c) {
    const int rank = c ? c->rank_of(root) : root;
    return "rank " + std::to_string(rank < 0 ? root : rank);
  };
  for (const Operation& o : operations_.all) {
    if (o.context) add(describe(o.call.contract) + ", operation " + std::to_string(o.number));
  }
  for (const Incoming& m : incoming_.all) {
    if (!m.context) continue;
    add((m.part == none ? describe(m.contract) + " from " : "a message from ") + name(m.peer, m.context) +
        (m.bytes == 0 ? "" : " (" + std::to_string(m.got) + " of " + std::to_string(m.bytes) + " bytes received)"));
  }
  for (const Outgoing& m : outgoing_.all) {
    if (m.peer >= 0) add("the send of its " + describe(m.contract) + " to " + name(m.peer, nullptr));
  }
  return text.empty() ? "the other ranks" : text;
}

}  // namespace aloni::comm::detail
