#include <aloni/core/comm/communicator.hpp>

#include <aloni/core/comm/device/device_memory.hpp>
#include <aloni/core/comm/engine/communicator_state.hpp>
#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <climits>
#include <type_traits>
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

std::uint64_t mix(std::uint64_t h,
                  std::uint64_t value) {  // splitmix64; of small numbers no two pairs come out the same
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
  if (!std::ranges::binary_search(members, rank()))
    wrong("the calling rank, " + std::to_string(rank()) + ", among them");
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

bool Communicator::carries_device_memory(int peer) const {
  const auto guard = state_->runtime->guard();
  detail::Engine& engine = state_->runtime->engine();
  return !engine.checksums() && engine.route(state_->context->root_of(peer)).carries_device_memory();
}

bool Communicator::has_progress_thread() const { return state_->runtime->has_thread(); }

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
  // In any order would do: each wait makes progress on all.
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

void Communicator::set_stuck_after(std::chrono::milliseconds limit) const {
  if (limit.count() < 0) {
    throw InvalidArgument("aloni::comm::Communicator::set_stuck_after", "limit", std::to_string(limit.count()) + " ms",
                          "0 (never) or more");
  }
  state_->runtime->set_stuck_after(limit);
}

std::shared_ptr<std::pmr::memory_resource> Communicator::shared_memory() const { return state_->runtime->heap(); }

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
  if (const auto device = detail::share_device_memory(data))
    return {.kind = ExposedMemory::Kind::device, .handle = device->handle, .offset = device->offset};
  return {};
}

std::shared_ptr<std::byte> Communicator::open(int peer, const ExposedMemory& memory, std::size_t bytes) const {
  if (memory.kind == ExposedMemory::Kind::device)
    return detail::open_device_memory({.handle = memory.handle, .offset = memory.offset});
  if (memory.kind != ExposedMemory::Kind::shared_heap) return nullptr;
  const auto guard = state_->runtime->guard();
  const int root = state_->context->root_of(peer);
  try {
    std::byte* const p = state_->runtime->engine().route(root).exposed(root, memory.shared, bytes);
    return {state_->runtime, p};  // the transport keeps it mapped
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

// --- collectives ---

namespace {

constexpr const char* all_reduce_name = "aloni::comm::Communicator::all_reduce";

template <class T>
void scale_some(void* output, void*, std::size_t first, std::size_t count, double scale) {
  T* const values = static_cast<T*>(output);
  for (std::size_t i = first; i < first + count; ++i) values[i] *= static_cast<T>(scale);
}

void to_float(const void* from, void* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    static_cast<float*>(to)[i] = static_cast<float>(static_cast<const bfloat16*>(from)[i]);
}

void to_bfloat16(void* output, void* target, std::size_t first, std::size_t count, double scale) {
  const float* const values = static_cast<const float*>(output);
  for (std::size_t i = first; i < first + count; ++i)
    static_cast<bfloat16*>(target)[i] = bfloat16(values[i] * static_cast<float>(scale));
}

/// What the engine is given for a reduction over so many ranks, of which those from `first` on are wanted.
struct Reducible {
  std::span<std::byte> data;
  ElementOperation operation;
  detail::Prepared::Begin begin = {};
  detail::Engine::Call::Finish finish = {};
};

template <class T>
Reducible reducible(std::span<T> values, Reduction op, int ranks, std::size_t first, std::size_t count,
                    const std::shared_ptr<SharedHeap>&) {
  Reducible result{.data = std::as_writable_bytes(values), .operation = element_operation<T>(op)};
  if constexpr (std::is_floating_point_v<T>) {
    if (op == Reduction::average)
      result.finish = {.f = scale_some<T>, .first = first, .elements = count, .scale = 1.0 / ranks};
  }
  return result;
}

/// In float until the end, so that the order of sums matters as little as in float.
Reducible reducible(std::span<bfloat16> values, Reduction op, int ranks, std::size_t first, std::size_t count,
                    const std::shared_ptr<SharedHeap>& heap) {
  const std::size_t bytes = std::max<std::size_t>(values.size(), 1) * sizeof(float);
  const std::shared_ptr<void> memory(heap->allocate(bytes, 64),
                                     [heap, bytes](void* p) { heap->deallocate(p, bytes, 64); });
  const bool average = op == Reduction::average;
  Reducible result{.data = {static_cast<std::byte*>(memory.get()), values.size() * sizeof(float)},
                   .operation = element_operation<float>(average ? Reduction::sum : op),
                   .begin = {to_float, values.data(), memory.get(), values.size()},
                   .finish = {to_bfloat16, values.data(), first, count, average ? 1.0 / ranks : 1.0, memory}};
  result.operation.type = ElementType::bfloat16;
  result.operation.reduction = op;
  return result;
}

std::size_t count_of(const char* operation, std::size_t bytes, std::size_t element_bytes) {
  if (element_bytes < 1 || bytes % element_bytes != 0) {
    throw InvalidArgument(operation, "data", std::to_string(bytes) + " bytes",
                          "whole elements of " + std::to_string(element_bytes) + " bytes");
  }
  return bytes / element_bytes;
}

void check_element_bytes(std::size_t element_bytes, const ElementOperation& op) {
  if (op.element_bytes == element_bytes) return;
  throw InvalidArgument(all_reduce_name, "operation", "on elements of " + std::to_string(op.element_bytes) + " bytes",
                        "the values' " + std::to_string(element_bytes));
}

void check_not_fused(const CollectiveOptions& options) {
  if (!options.fuse) return;
  throw Unsupported(all_reduce_name, "options.fuse", "true for a persistent one",
                    "start_all_reduce, which can be fused, or one persistent all-reduce of all data");
}

}  // namespace

Request Communicator::start_all_reduce(std::span<std::byte> data, std::size_t element_bytes, const ElementOperation& op,
                                       const CollectiveOptions& options) const {
  check_element_bytes(element_bytes, op);
  return state_->start_all_reduce(all_reduce_name, data, op, options, {});
}

template <class T>
Request Communicator::start_all_reduce(std::span<T> values, Reduction op, const CollectiveOptions& options) const {
  const Reducible o = reducible(values, op, size(), 0, values.size(), state_->runtime->heap());
  o.begin();
  return state_->start_all_reduce(all_reduce_name, o.data, o.operation, options, o.finish);
}

template <class T>
detail::Prepared Communicator::prepare_reduce_scatter(std::span<T> values, Reduction op,
                                                      const CollectiveOptions& options) const {
  constexpr const char* name = "aloni::comm::Communicator::reduce_scatter";
  const Region block = block_of({Buffer::output, 0, static_cast<Index>(values.size())}, rank(), size());
  const Reducible o = reducible(values, op, size(), static_cast<std::size_t>(block.offset),
                                static_cast<std::size_t>(block.count), state_->runtime->heap());
  const bool part_of_all = options.reproducible || options.algorithm != AllReduceAlgorithm::automatic;
  detail::Prepared p = part_of_all ? state_->prepare_all_reduce(name, o.data, o.operation, options, o.finish)
                                   : state_->prepare(name, {.kind = OperationKind::reduce_scatter}, o.data, o.operation,
                                                     o.finish, options.priority);
  p.begin = o.begin;
  return p;
}

template <class T>
Request Communicator::start_reduce_scatter(std::span<T> values, Reduction op, const CollectiveOptions& options) const {
  return state_->start(prepare_reduce_scatter(values, op, options));
}

// --- persistent ones ---

struct PersistentCollective::Implementation {
  std::shared_ptr<Communicator::State> state;
  detail::Prepared collective;
  Request latest = {};
};

PersistentCollective::PersistentCollective(std::shared_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

Request PersistentCollective::start() const {
  if (!implementation_) return {};
  auto& [state, collective, latest] = *implementation_;
  if (latest.pending) {
    const auto guard = state->runtime->guard();
    if (!state->runtime->engine().spent({latest.slot, latest.generation})) {
      throw InvalidArgument(collective.call.name, "persistent collective", "started while it is under way",
                            "one start after the other; wait for the Request that it gave");
    }
  }
  return latest = state->start(collective);
}

void PersistentCollective::run() const {
  const Request request = start();
  if (request.pending)
    implementation_->state->wait({request.slot, request.generation}, implementation_->collective.call.name);
}

PersistentCollective Communicator::persistent(detail::Prepared&& collective) const {
  return PersistentCollective(std::make_shared<PersistentCollective::Implementation>(state_, std::move(collective)));
}

template <class T>
PersistentCollective Communicator::persistent_all_reduce(std::span<T> values, Reduction op,
                                                         const CollectiveOptions& options) const {
  check_not_fused(options);
  const Reducible o = reducible(values, op, size(), 0, values.size(), state_->runtime->heap());
  detail::Prepared p = state_->prepare_all_reduce(all_reduce_name, o.data, o.operation, options, o.finish);
  p.begin = o.begin;
  return persistent(std::move(p));
}

PersistentCollective Communicator::persistent_all_reduce(std::span<std::byte> data, std::size_t element_bytes,
                                                         const ElementOperation& op,
                                                         const CollectiveOptions& options) const {
  check_not_fused(options);
  check_element_bytes(element_bytes, op);
  return persistent(state_->prepare_all_reduce(all_reduce_name, data, op, options, {}));
}

template <class T>
PersistentCollective Communicator::persistent_reduce_scatter(std::span<T> values, Reduction op,
                                                             const CollectiveOptions& options) const {
  return persistent(prepare_reduce_scatter(values, op, options));
}

#define INSTANTIATE(T)                                                                                                 \
  template Request Communicator::start_all_reduce(std::span<T>, Reduction, const CollectiveOptions&) const;            \
  template PersistentCollective Communicator::persistent_all_reduce(std::span<T>, Reduction, const CollectiveOptions&) \
      const;                                                                                                           \
  template Request Communicator::start_reduce_scatter(std::span<T>, Reduction, const CollectiveOptions&) const;        \
  template PersistentCollective Communicator::persistent_reduce_scatter(std::span<T>, Reduction,                       \
                                                                        const CollectiveOptions&) const;
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(std::int32_t)
INSTANTIATE(std::int64_t)
INSTANTIATE(std::uint64_t)
INSTANTIATE(bfloat16)
#undef INSTANTIATE

// --- without arithmetic ---

detail::Prepared Communicator::prepare_all_gather(std::span<std::byte> data, std::size_t element_bytes) const {
  constexpr const char* name = "aloni::comm::Communicator::all_gather";
  (void)count_of(name, data.size(), element_bytes);
  return state_->prepare(name, {.kind = OperationKind::all_gather}, data, {.element_bytes = element_bytes});
}

Request Communicator::start_all_gather(std::span<std::byte> data, std::size_t element_bytes) const {
  return state_->start(prepare_all_gather(data, element_bytes));
}

PersistentCollective Communicator::persistent_all_gather(std::span<std::byte> data, std::size_t element_bytes) const {
  return persistent(prepare_all_gather(data, element_bytes));
}

std::vector<std::int64_t> Communicator::all_gather(std::int64_t value) const {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size()));
  values[static_cast<std::size_t>(rank())] = value;
  all_gather(std::as_writable_bytes(std::span(values)), sizeof value);
  return values;
}

detail::Prepared Communicator::prepare_all_to_all(std::span<const std::byte> input, std::span<std::byte> output,
                                                  std::size_t element_bytes) const {
  constexpr const char* name = "aloni::comm::Communicator::all_to_all";
  const std::size_t count = count_of(name, input.size(), element_bytes);
  if (count % static_cast<std::size_t>(size()) != 0 || output.size() != input.size()) {
    throw InvalidArgument(name, "input, output",
                          std::to_string(input.size()) + " and " + std::to_string(output.size()) + " bytes",
                          "equal sizes, a multiple of " + std::to_string(size()) + " elements");
  }
  return state_->prepare(name, {.kind = OperationKind::all_to_all}, output, {.element_bytes = element_bytes}, {}, 0,
                         input);
}

Request Communicator::start_all_to_all(std::span<const std::byte> input, std::span<std::byte> output,
                                       std::size_t element_bytes) const {
  return state_->start(prepare_all_to_all(input, output, element_bytes));
}

PersistentCollective Communicator::persistent_all_to_all(std::span<const std::byte> input, std::span<std::byte> output,
                                                         std::size_t element_bytes) const {
  return persistent(prepare_all_to_all(input, output, element_bytes));
}

detail::Prepared Communicator::prepare_all_to_all(std::span<const std::byte> input, std::span<const Index> send_counts,
                                                  std::span<std::byte> output, std::span<const Index> receive_counts,
                                                  std::size_t element_bytes) const {
  constexpr const char* name = "aloni::comm::Communicator::all_to_all";
  const auto p = static_cast<std::size_t>(size()), r = static_cast<std::size_t>(rank());
  const auto check = [&](const char* what, std::span<const Index> counts, std::size_t bytes) {
    Index sum = 0;
    for (const Index count : counts) {
      if (count < 0) throw InvalidArgument(name, what, std::to_string(count), "0 or more elements");
      sum += count;
    }
    if (counts.size() != p || static_cast<std::size_t>(sum) != count_of(name, bytes, element_bytes)) {
      throw InvalidArgument(name, what, std::to_string(counts.size()) + " counts, " + std::to_string(sum) + " elements",
                            std::to_string(p) + " counts, " + std::to_string(bytes / element_bytes) + " elements");
    }
  };
  check("send_counts", send_counts, input.size());
  check("receive_counts", receive_counts, output.size());
  if (send_counts[r] != receive_counts[r]) {
    throw InvalidArgument(name, "receive_counts[" + std::to_string(r) + "]", std::to_string(receive_counts[r]),
                          "as many as this rank sends to itself, " + std::to_string(send_counts[r]));
  }
  // Of the matrix of all counts a rank needs its row and its column.
  std::vector<std::vector<Index>> counts(p, std::vector<Index>(p));
  for (std::size_t i = 0; i < p; ++i) {
    counts[r][i] = send_counts[i];
    counts[i][r] = receive_counts[i];
  }
  Builder b(rank());
  const Region in = b.input(static_cast<Index>(input.size() / element_bytes));
  const Region out = b.output(static_cast<Index>(output.size() / element_bytes));
  pairwise_all_to_all(b, Team::all(rank(), size()), in, out, counts);
  return state_->prepare(name, b.finish(), {.kind = OperationKind::all_to_all}, 1, input, output,
                         {.element_bytes = element_bytes}, 0);
}

Request Communicator::start_all_to_all(std::span<const std::byte> input, std::span<const Index> send_counts,
                                       std::span<std::byte> output, std::span<const Index> receive_counts,
                                       std::size_t element_bytes) const {
  return state_->start(prepare_all_to_all(input, send_counts, output, receive_counts, element_bytes));
}

PersistentCollective Communicator::persistent_all_to_all(std::span<const std::byte> input,
                                                         std::span<const Index> send_counts,
                                                         std::span<std::byte> output,
                                                         std::span<const Index> receive_counts,
                                                         std::size_t element_bytes) const {
  return persistent(prepare_all_to_all(input, send_counts, output, receive_counts, element_bytes));
}

detail::Prepared Communicator::prepare_broadcast(std::span<std::byte> data, int root) const {
  constexpr const char* name = "aloni::comm::Communicator::broadcast";
  if (root < 0 || root >= size())
    throw InvalidArgument(name, "root", std::to_string(root), "a rank from 0 to " + std::to_string(size() - 1));
  return state_->prepare(name, {.kind = OperationKind::broadcast, .root = root}, data, {});
}

Request Communicator::start_broadcast(std::span<std::byte> data, int root) const {
  return state_->start(prepare_broadcast(data, root));
}

PersistentCollective Communicator::persistent_broadcast(std::span<std::byte> data, int root) const {
  return persistent(prepare_broadcast(data, root));
}

void Communicator::broadcast(std::string& text, int root) const {
  std::uint64_t length = text.size();
  broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  text.resize(length);
  broadcast(std::as_writable_bytes(std::span(text.data(), text.size())), root);
}

detail::Prepared Communicator::prepare_barrier() const {
  return state_->prepare("aloni::comm::Communicator::barrier", {.kind = OperationKind::barrier}, {}, {});
}

Request Communicator::start_barrier() const { return state_->start(prepare_barrier()); }

PersistentCollective Communicator::persistent_barrier() const { return persistent(prepare_barrier()); }

detail::Prepared Communicator::prepare(const UserSchedule& user, std::span<const std::byte> input,
                                       std::span<std::byte> output, const ElementOperation& op, int priority) const {
  constexpr const char* name = "aloni::comm::Communicator::start";
  const auto check = [&](const char* what, Index elements, std::size_t bytes) {
    if (static_cast<std::size_t>(elements) * op.element_bytes != bytes) {
      throw InvalidArgument(name, what, std::to_string(bytes) + " bytes",
                            std::to_string(elements) + " elements of " + std::to_string(op.element_bytes) + ", as " +
                                user.name + " says");
    }
  };
  check("input", user.schedule.input, input.size());
  check("output", user.schedule.output, output.size());
  if (user.schedule.rank != rank())
    throw InvalidArgument(name, "schedule", "of rank " + std::to_string(user.schedule.rank),
                          "that of rank " + std::to_string(rank()));
  std::uint32_t identity = 2166136261u;
  for (const char c : user.name) identity = (identity ^ static_cast<unsigned char>(c)) * 16777619u;
  return state_->prepare(name, user.schedule,
                         {.kind = OperationKind::user,
                          .reduction = static_cast<std::uint8_t>(op.reduction),
                          .type = static_cast<std::uint8_t>(op.type)},
                         identity, input, output, op, priority);
}

Request Communicator::start(const UserSchedule& schedule, std::span<const std::byte> input, std::span<std::byte> output,
                            const ElementOperation& op, int priority) const {
  return state_->start(prepare(schedule, input, output, op, priority));
}

PersistentCollective Communicator::persistent(const UserSchedule& schedule, std::span<const std::byte> input,
                                              std::span<std::byte> output, const ElementOperation& op,
                                              int priority) const {
  return persistent(prepare(schedule, input, output, op, priority));
}

void Communicator::set_tuning(const Tuning& tuning) const {
  constexpr const char* name = "aloni::comm::Communicator::set_tuning";
  const auto nodes = static_cast<int>(state_->plans.topology().nodes.size());
  if (tuning.ranks != size() || tuning.nodes != nodes) {
    throw InvalidArgument(name, "tuning",
                          "of " + std::to_string(tuning.ranks) + " ranks on " + std::to_string(tuning.nodes) + " nodes",
                          "one of " + std::to_string(size()) + " ranks on " + std::to_string(nodes) + " nodes");
  }
  std::string first = to_text(tuning);
  const std::string own = first;
  broadcast(first, 0);
  if (all_reduce(std::int64_t{first == own ? size() : rank()}, Reduction::min) < size()) {
    state_->poisoning([&] {
      throw CommunicationError(name, "tuning", first == own ? "another one on some rank" : "another one than on rank 0",
                               "the same on all ranks");
    });
  }
  state_->plans.set_tuning(tuning);
}

std::vector<AlgorithmReport> Communicator::explain_all_reduce(std::size_t bytes, bool reproducible) const {
  return state_->plans.explain(bytes, reproducible);
}

void Communicator::poison(std::string_view message) const noexcept { state_->runtime->poison(message); }

void Communicator::check_poison() const {
  {
    const auto guard = state_->runtime->guard();
    state_->poisoning([&] { state_->runtime->look_around(false); });
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
    if (local_error) std::rethrow_exception(local_error);  // says more than that others have failed too
    throw;
  }
  if (local_error) std::rethrow_exception(local_error);
  throw PeerFailed(std::string(operation), failed, message,
                   state_->context->root_ranks[static_cast<std::size_t>(failed)]);
}

}  // namespace aloni::comm
