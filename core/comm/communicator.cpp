#include <aloni/core/comm/communicator.hpp>

#include <aloni/core/comm/detail/state.hpp>
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

std::uint64_t mix(std::uint64_t h, std::uint64_t value) {  // as splitmix64 does
  h = (h ^ (value + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
  return h ^ h >> 31;
}

Request request_of(detail::Engine::Handle h) { return {h.slot, h.generation, true}; }

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

// The making of communicators needs MPI only for the first one of a family: the others are lists of ranks and a number.

Communicator Communicator::split(int color, int key) const {
  if (color < 0) throw InvalidArgument("aloni::comm::Communicator::split", "color", std::to_string(color), "0 or more");
  const std::vector<std::int64_t> all = all_gather(std::int64_t{color} << 32 | static_cast<std::uint32_t>(key));
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<std::size_t>(r)] >> 32 == color) members.push_back(r);
  }
  std::ranges::stable_sort(members, {},
                           [&](int r) { return static_cast<std::int32_t>(all[static_cast<std::size_t>(r)]); });
  return state_->child(mix(mix(1, state_->context->next_operation), static_cast<std::uint64_t>(color)), members);
}

Communicator Communicator::node() const {
  barrier();
  for (const auto& members : state_->plans.topology().nodes) {
    if (std::ranges::binary_search(members, rank()))
      return state_->child(mix(mix(2, state_->context->next_operation), static_cast<std::uint64_t>(members.front())),
                           members);
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
  if (!std::ranges::binary_search(members, rank()))
    wrong("the calling rank, " + std::to_string(rank()) + ", among them");
  std::uint64_t salt = 3;
  for (const int member : members) salt = mix(salt, static_cast<std::uint64_t>(member));
  Communicator group = state_->child(mix(salt, ++state_->subgroups[salt]), members);
  group.barrier();
  return group;
}

Request Communicator::send(std::span<const std::byte> data, int peer, int tag) const {
  constexpr const char* operation = "aloni::comm::Communicator::send";
  check_peer_and_tag(operation, peer, size(), tag);
  state_->check_poison(operation, false);
  return state_->poisoning(
      [&] { return request_of(state_->family->engine().send(*state_->context, data, peer, tag)); });
}

Request Communicator::receive(std::span<std::byte> data, int peer, int tag) const {
  constexpr const char* operation = "aloni::comm::Communicator::receive";
  check_peer_and_tag(operation, peer, size(), tag);
  state_->check_poison(operation, false);
  return state_->poisoning(
      [&] { return request_of(state_->family->engine().receive(*state_->context, data, peer, tag)); });
}

bool Communicator::test(Request& request) const {
  if (request.pending && state_->test({request.slot, request.generation}, "aloni::comm::Communicator::test"))
    request.pending = false;
  return !request.pending;
}

void Communicator::wait(std::span<Request> requests) const {
  // In any order would do: each wait makes progress on all.
  for (Request& request : requests) {
    if (!request.pending) continue;
    state_->wait({request.slot, request.generation}, "aloni::comm::Communicator::wait");
    request.pending = false;
  }
}

std::size_t Communicator::max_message_bytes() const { return state_->family->engine().max_fragment_bytes(); }

void Communicator::set_max_message_bytes(std::size_t bytes) {
  if (bytes < 1 || bytes > INT_MAX) {
    throw InvalidArgument("aloni::comm::Communicator::set_max_message_bytes", "bytes", std::to_string(bytes),
                          "1 to " + std::to_string(INT_MAX));
  }
  state_->family->engine().set_max_fragment_bytes(bytes);
}

void Communicator::set_stuck_after(std::chrono::milliseconds limit) const {
  if (limit.count() < 0) {
    throw InvalidArgument("aloni::comm::Communicator::set_stuck_after", "limit", std::to_string(limit.count()) + " ms",
                          "0 (never) or more");
  }
  state_->family->set_stuck_after(limit);
}

std::shared_ptr<std::pmr::memory_resource> Communicator::shared_memory() const { return state_->family->heap(); }

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
  const detail::Engine& engine = state_->family->engine();
  for (std::size_t r = 0; r < engine.routes().size(); ++r) {
    add(engine.routes()[r]->name(), engine.traffic()[r].messages);
    if (static_cast<int>(r) != state_->family->rank())
      add(engine.routes()[r]->name() + " collectives", engine.traffic()[r].collectives);
  }
  return result;
}

std::vector<PeerTraffic> Communicator::traffic_by_peer() const {
  std::vector<PeerTraffic> result;
  const detail::Engine& engine = state_->family->engine();
  for (int r = 0; r < size(); ++r) {
    const auto root = static_cast<std::size_t>(state_->context->root_ranks[static_cast<std::size_t>(r)]);
    result.push_back(
        {r, engine.routes()[root]->name(), engine.traffic()[root].messages, engine.traffic()[root].collectives});
  }
  return result;
}

template <class T>
Request Communicator::start_all_reduce(std::span<T> values, Reduction op, const CollectiveOptions& options) const {
  constexpr const char* operation = "aloni::comm::Communicator::all_reduce";
  state_->check_poison(operation, false);
  if (size() == 1) return {};
  detail::Plans& plans = state_->plans;
  const AllReduceAlgorithm algorithm = plans.choose(options.algorithm, values.size_bytes());
  const bool staged = algorithm == AllReduceAlgorithm::direct &&
                      state_->family->heap()->address_of(values.data(), values.size_bytes()).descriptor < 0;
  const auto plan = plans.get({.kind = OperationKind::all_reduce,
                               .algorithm = algorithm,
                               .staged = staged,
                               .element_bytes = sizeof(T),
                               .count = static_cast<Index>(values.size()),
                               .part_elements = options.part_elements});
  const Contract contract{.kind = OperationKind::all_reduce,
                          .reduction = static_cast<std::uint8_t>(op),
                          .type = static_cast<std::uint8_t>(element_type<T>()),
                          .count = values.size()};
  return request_of(state_->start(operation, plan, contract, values.data(), values.data(),
                                  detail::reducer_for(element_type<T>(), op), options.priority));
}

template Request Communicator::start_all_reduce(std::span<float>, Reduction, const CollectiveOptions&) const;
template Request Communicator::start_all_reduce(std::span<double>, Reduction, const CollectiveOptions&) const;
template Request Communicator::start_all_reduce(std::span<std::int32_t>, Reduction, const CollectiveOptions&) const;
template Request Communicator::start_all_reduce(std::span<std::int64_t>, Reduction, const CollectiveOptions&) const;
template Request Communicator::start_all_reduce(std::span<std::uint64_t>, Reduction, const CollectiveOptions&) const;

void Communicator::broadcast(std::span<std::byte> data, int root) const {
  if (root < 0 || root >= size()) {
    throw InvalidArgument("aloni::comm::Communicator::broadcast", "root", std::to_string(root),
                          "a rank from 0 to " + std::to_string(size() - 1));
  }
  state_->run("aloni::comm::Communicator::broadcast", {.kind = OperationKind::broadcast, .root = root}, data);
}

void Communicator::broadcast(std::string& text, int root) const {
  std::uint64_t length = text.size();
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  text.resize(length);
  broadcast(std::as_writable_bytes(std::span(text.data(), text.size())), root);
}

std::vector<std::int64_t> Communicator::all_gather(std::int64_t value) const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size()));
  values[static_cast<std::size_t>(rank())] = value;
  state_->run("aloni::comm::Communicator::all_gather", {.kind = OperationKind::all_gather},
              std::as_writable_bytes(std::span(values)));
  return values;
}

void Communicator::barrier() const {
  state_->run("aloni::comm::Communicator::barrier", {.kind = OperationKind::barrier}, {});
}

void Communicator::poison(std::string_view message) const noexcept { state_->family->board().poison(message); }

void Communicator::check_poison() const { state_->check_poison("aloni::comm::Communicator::check_poison", true); }

void Communicator::agree(std::string_view operation, std::exception_ptr local_error) const {
  int failed = 0;
  std::string message;
  try {
    failed = static_cast<int>(all_reduce(std::int64_t{local_error ? rank() : size()}, Reduction::min));
    if (failed == size()) return;
    if (failed == rank()) message = one_line_of(local_error);
    broadcast(message, failed);
  } catch (const Error&) {
    if (local_error) std::rethrow_exception(local_error);  // says more than that others have failed too
    throw;
  }
  if (local_error) std::rethrow_exception(local_error);
  throw PeerFailed(std::string(operation), failed, message,
                   state_->context->root_ranks[static_cast<std::size_t>(failed)]);
}

}  // namespace aloni::comm
