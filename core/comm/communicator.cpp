#include <aloni/core/comm/communicator.hpp>

#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/comm/device/device_collectives.hpp>
#include <aloni/core/comm/engine/communicator_state.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <climits>
#include <utility>

namespace aloni::comm {

namespace {

std::string one_line_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

/// splitmix64. Different pairs of small numbers give different results.
std::uint64_t mix(std::uint64_t h, std::uint64_t value) {
  h = h * 0x9e3779b97f4a7c15u + value;
  h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
  h = (h ^ h >> 27) * 0x94d049bb133111ebu;
  return h ^ h >> 31;
}

void check_peer_and_tag(const char* operation, int peer, int size, int tag) {
  if (peer < 0 || peer >= size) {
    throw InvalidArgument(operation, "peer", std::to_string(peer), "a rank from 0 to " + std::to_string(size - 1));
  }
  if (tag < 0 || tag > Communicator::max_tag) {
    throw InvalidArgument(operation, "tag", std::to_string(tag), "0 to " + std::to_string(Communicator::max_tag));
  }
}

}  // namespace

Communicator::Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}

int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return state_->size; }

// Only the first communicator of a family needs MPI; the others are lists of ranks and a number.

Communicator Communicator::split(int color, int key) const {
  if (color < 0) throw InvalidArgument("aloni::comm::Communicator::split", "color", std::to_string(color), "0 or more");
  const std::vector<std::int64_t> all = all_gather(std::int64_t{color} << 32 | static_cast<std::uint32_t>(key));
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<std::size_t>(r)] >> 32 == color) members.push_back(r);
  }
  std::ranges::stable_sort(members, {},
                           [&](int r) { return static_cast<std::int32_t>(all[static_cast<std::size_t>(r)]); });
  return state_->child(mix(mix(1, ++state_->children), static_cast<std::uint64_t>(color)), members);
}

Communicator Communicator::node() const {
  barrier();
  for (const auto& members : state_->plans.topology().nodes) {
    if (std::ranges::binary_search(members, rank()))
      return state_->child(mix(mix(2, ++state_->children), static_cast<std::uint64_t>(members.front())), members);
  }
  throw CommunicationError("aloni::comm::Communicator::node", "node", "none", "every rank on one");
}

Communicator Communicator::subgroup(const std::vector<int>& members) const {
  const auto wrong = [&](const std::string& expectation) {
    std::string list;
    for (const int member : members) list += (list.empty() ? "" : ",") + std::to_string(member);
    throw InvalidArgument("aloni::comm::Communicator::subgroup", "members", "{" + list + "}", expectation);
  };
  if (std::ranges::adjacent_find(members, std::ranges::greater_equal{}) != members.end()) wrong("an ascending list");
  if (members.empty() || members.front() < 0 || members.back() >= size()) {
    wrong("ranks from 0 to " + std::to_string(size() - 1));
  }
  if (!std::ranges::binary_search(members, rank())) wrong("a list with the calling rank, " + std::to_string(rank()));
  std::uint64_t salt = 3;
  for (const int member : members) salt = mix(salt, static_cast<std::uint64_t>(member));
  Communicator group = state_->child(mix(salt, ++state_->subgroups[salt]), members);
  group.barrier();
  return group;
}

Request Communicator::send(std::span<const std::byte> data, int peer, int tag, const MessageOptions& options) const {
  constexpr const char* operation = "aloni::comm::Communicator::send";
  check_peer_and_tag(operation, peer, size(), tag);
  state_->check_poison(operation, false);
  const auto guard = state_->runtime->guard();
  return state_->poisoning(
      [&] { return detail::request_of(state_->runtime->engine().send(*state_->context, data, peer, tag, options)); });
}

Request Communicator::receive(std::span<std::byte> data, int peer, int tag, const MessageOptions& options) const {
  constexpr const char* operation = "aloni::comm::Communicator::receive";
  check_peer_and_tag(operation, peer, size(), tag);
  state_->check_poison(operation, false);
  const auto guard = state_->runtime->guard();
  return state_->poisoning([&] {
    return detail::request_of(state_->runtime->engine().receive(*state_->context, data, peer, tag, options));
  });
}

std::shared_ptr<detail::DeviceCollectives> Communicator::device_collectives() const {
  if (!state_->device_collectives) {
    state_->device_collectives = detail::make_device_collectives(*this);
    state_->runtime->watch(*state_->device_collectives);
  }
  return *state_->device_collectives;
}

void detail::set_device_collectives(const Communicator& comm, std::shared_ptr<DeviceCollectives> collectives) {
  comm.state_->device_collectives = collectives;
  comm.state_->runtime->watch(std::move(collectives));
}

bool Communicator::carries_device_memory(int peer) const {
  const auto guard = state_->runtime->guard();
  detail::Engine& engine = state_->runtime->engine();
  return !engine.checksums() && engine.route(state_->context->root_of(peer)).carries_device_memory();
}

bool Communicator::has_progress_thread() const { return state_->runtime->has_thread(); }

bool Communicator::has_checksums() const { return state_->runtime->engine().checksums(); }

std::size_t Communicator::largest_fragment_between_nodes() const {
  return std::min(max_message_bytes(), state_->runtime->fragment_bytes());
}

const std::vector<std::vector<int>>& Communicator::ranks_by_node() const { return state_->plans.topology().nodes; }

bool Communicator::progress() const {
  state_->check_poison("aloni::comm::Communicator::progress", false);
  const auto guard = state_->runtime->guard();
  return state_->poisoning([&] { return state_->runtime->progress(); });
}

bool Communicator::test(Request& request) const {
  if (request.pending && state_->test({request.slot, request.generation}, "aloni::comm::Communicator::test"))
    request.pending = false;
  return !request.pending;
}

void Communicator::wait(std::span<Request> requests) const {
  // Any order will do: each wait makes progress on all operations.
  for (Request& request : requests) {
    if (!request.pending) continue;
    state_->wait({request.slot, request.generation}, "aloni::comm::Communicator::wait");
    request.pending = false;
  }
}

std::size_t Communicator::max_message_bytes() const { return state_->runtime->engine().max_fragment_bytes(); }

void Communicator::set_max_message_bytes(std::size_t bytes) {
  if (bytes < 1 || bytes > INT_MAX) {
    throw InvalidArgument("aloni::comm::Communicator::set_max_message_bytes", "bytes", std::to_string(bytes),
                          "1 to " + std::to_string(INT_MAX));
  }
  state_->runtime->engine().set_max_fragment_bytes(bytes);
}

bool Communicator::claim_report() const { return state_->runtime->claim_report(); }

void Communicator::set_stuck_after(std::chrono::milliseconds limit) const {
  if (limit.count() < 0) {
    throw InvalidArgument("aloni::comm::Communicator::set_stuck_after", "limit", std::to_string(limit.count()) + " ms",
                          "0 (never) or more");
  }
  state_->runtime->set_stuck_after(limit);
}

void Communicator::set_longest_wait(std::chrono::milliseconds limit) const {
  if (limit.count() < 0) {
    throw InvalidArgument("aloni::comm::Communicator::set_longest_wait", "limit", std::to_string(limit.count()) + " ms",
                          "0 or more");
  }
  state_->runtime->set_longest_wait(limit);
}

std::shared_ptr<std::pmr::memory_resource> Communicator::shared_memory() const { return state_->runtime->heap(); }

std::shared_ptr<std::pmr::memory_resource> Communicator::device_memory() const {
  return state_->runtime->device_heap();
}

void detail::set_device(const Communicator& comm, std::shared_ptr<DeviceSharing> device) {
  comm.state_->runtime->set_device(std::move(device));
}

ExposedMemory Communicator::expose(const void* data, std::size_t bytes, int peer) const {
  const auto guard = state_->runtime->guard();
  detail::Engine& engine = state_->runtime->engine();
  const auto& node_of = state_->runtime->node_of();
  const int root = state_->context->root_of(peer);
  if (engine.checksums() ||
      node_of[static_cast<std::size_t>(root)] != node_of[static_cast<std::size_t>(state_->runtime->rank())])
    return {};
  if (const SharedAddress shared = engine.route(root).expose(data, bytes); shared.descriptor >= 0)
    return {.kind = ExposedMemory::Kind::shared_heap, .shared = shared};
  const auto& device_heap = state_->runtime->device_heap();
  if (const auto device = device_heap ? device_heap->address_of(data, bytes) : std::nullopt) {
    return {.kind = ExposedMemory::Kind::device,
            .shared = device->users,
            .handle = device->handle,
            .offset = device->offset,
            .generation = device->generation};
  }
  return {};
}

std::shared_ptr<std::byte> Communicator::open(int peer, const ExposedMemory& memory, std::size_t bytes) const {
  if (!memory.reachable()) return nullptr;
  const bool on_device = memory.kind == ExposedMemory::Kind::device;
  const auto& device = state_->runtime->device();
  if (on_device && !device) return nullptr;
  const auto guard = state_->runtime->guard();
  const int root = state_->context->root_of(peer);
  try {
    auto opened = state_->runtime->engine().route(root).open_exposed(root, memory.shared,
                                                                     on_device ? sizeof(detail::SegmentUsers) : bytes);
    if (!on_device) return opened;
    return detail::open_device_memory(
        device, {.handle = memory.handle, .offset = memory.offset, .generation = memory.generation}, std::move(opened));
  } catch (const CommunicationError&) {
    return nullptr;
  }
}

void Communicator::count_direct(int peer, std::size_t bytes_sent, std::size_t bytes_received) const {
  const auto guard = state_->runtime->guard();
  state_->runtime->engine().count_direct(state_->context->root_of(peer), bytes_sent, bytes_received);
}

std::vector<std::pair<std::string, TrafficCounters>> Communicator::traffic() const {
  std::vector<std::pair<std::string, TrafficCounters>> result{{"self", {}}};
  const auto add = [&](const std::string& name, const TrafficCounters& counters) {
    const auto found = std::ranges::find(result, name, &std::pair<std::string, TrafficCounters>::first);
    if (found == result.end()) {
      result.emplace_back(name, counters);
    } else {
      found->second += counters;
    }
  };
  const detail::Engine& engine = state_->runtime->engine();
  for (std::size_t r = 0; r < engine.routes().size(); ++r) {
    add(engine.routes()[r]->name(), engine.traffic()[r].messages);
    if (static_cast<int>(r) != state_->runtime->rank())
      add(engine.routes()[r]->name() + " collectives", engine.traffic()[r].collectives);
  }
  return result;
}

std::vector<PeerTraffic> Communicator::traffic_by_peer() const {
  std::vector<PeerTraffic> result;
  const detail::Engine& engine = state_->runtime->engine();
  for (int r = 0; r < size(); ++r) {
    const auto root = static_cast<std::size_t>(state_->context->root_ranks[static_cast<std::size_t>(r)]);
    result.push_back(
        {r, engine.routes()[root]->name(), engine.traffic()[root].messages, engine.traffic()[root].collectives});
  }
  return result;
}

// --- collectives; operations.cpp has the others ---

std::vector<std::int64_t> Communicator::all_gather(std::int64_t value) const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size()));
  values[static_cast<std::size_t>(rank())] = value;
  run(AllGather{std::span(values)});
  return values;
}

void Communicator::broadcast(std::string& text, int root) const {
  std::uint64_t length = text.size();
  run(Broadcast{std::span(&length, 1), root});
  text.resize(length);
  run(Broadcast{std::span(text), root});
}

void Communicator::set_tuning(const Tuning& tuning) const {
  constexpr const char* name = "aloni::comm::Communicator::set_tuning";
  ReplicatedValues lines;
  std::istringstream text(to_text(tuning));
  int number = 0;
  for (std::string line; std::getline(text, line);)
    lines.add("line " + std::to_string(++number) + " of the tuning", line);
  check_equal(*this, name, lines);
  const auto nodes = static_cast<int>(state_->plans.topology().nodes.size());
  if (tuning.ranks != size() || tuning.nodes != nodes) {
    throw InvalidArgument(name, "tuning",
                          "of " + std::to_string(tuning.ranks) + " ranks on " + std::to_string(tuning.nodes) + " nodes",
                          "one of " + std::to_string(size()) + " ranks on " + std::to_string(nodes) + " nodes");
  }
  state_->plans.set_tuning(tuning);
}

std::optional<std::string> Communicator::unsupported_reason(AllReduceAlgorithm algorithm) const {
  try {
    (void)state_->plans.choose("aloni::comm::Communicator::unsupported_reason", algorithm, 0, false);
    return std::nullopt;
  } catch (const Unsupported& error) {
    return error.expectation();
  }
}

const std::optional<Tuning>& Communicator::tuning() const { return state_->plans.tuning(); }

void Communicator::poison(std::string_view message) const noexcept { state_->runtime->poison(message); }

void Communicator::check_poison(bool waits) const {
  {
    const auto guard = state_->runtime->guard();
    state_->poisoning([&] { state_->runtime->look_around(waits); });
  }
  state_->check_poison("aloni::comm::Communicator::check_poison", true);
}

void Communicator::agree(std::string_view operation, std::exception_ptr local_error) const {
  int failed = 0;
  std::string message;
  try {
    failed = static_cast<int>(all_reduce(std::int64_t{local_error ? rank() : size()}, Reduction::min));
    if (failed == size()) return;
    if (failed == rank()) message = one_line_of(local_error);
    broadcast(message, failed);
  } catch (const Error&) {
    if (local_error) std::rethrow_exception(local_error);  // says more than the failure of the other ranks
    throw;
  }
  if (local_error) std::rethrow_exception(local_error);
  throw PeerFailed(std::string(operation), failed, message,
                   state_->context->root_ranks[static_cast<std::size_t>(failed)]);
}

}  // namespace aloni::comm
