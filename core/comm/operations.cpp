#include <aloni/core/comm/operations.hpp>

#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/engine/communicator_state.hpp>
#include <aloni/core/comm/schedule/algorithms.hpp>
#include <aloni/core/error.hpp>

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

namespace aloni::comm {

namespace {

using detail::Prepared;
using detail::UntypedOperation;
using Finish = detail::Engine::Call::Finish;

const char* name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::all_reduce:
      return "aloni::comm::AllReduce";
    case OperationKind::reduce_scatter:
      return "aloni::comm::ReduceScatter";
    case OperationKind::all_gather:
      return "aloni::comm::AllGather";
    case OperationKind::all_to_all:
      return "aloni::comm::AllToAll";
    case OperationKind::broadcast:
      return "aloni::comm::Broadcast";
    case OperationKind::barrier:
      return "aloni::comm::Barrier";
    default:
      return "aloni::comm::UserSchedule";
  }
}

std::size_t count_of(const UntypedOperation& o) { return o.output.size() / o.element_bytes; }

// --- reductions ---

template <class T>
void scale_some(void* output, void*, std::size_t first, std::size_t count, double scale) {
  T* const values = static_cast<T*>(output);
  for (std::size_t i = first; i < first + count; ++i) values[i] *= static_cast<T>(scale);
}

template <class Narrow>
void to_float(const void* from, void* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    static_cast<float*>(to)[i] = static_cast<float>(static_cast<const Narrow*>(from)[i]);
}

template <class Narrow>
void to_narrow(void* output, void* target, std::size_t first, std::size_t count, double scale) {
  const float* const values = static_cast<const float*>(output);
  for (std::size_t i = first; i < first + count; ++i)
    static_cast<Narrow*>(target)[i] = Narrow(values[i] * static_cast<float>(scale));
}

/// A built-in reduction as the engine runs it.
struct Reducible {
  std::span<std::byte> data;
  ElementOperation operation;
  Prepared::Begin begin = {};
  Finish finish = {};
};

/// `block`: the elements of the result that this rank needs.
template <class T>
Reducible reducible(std::span<std::byte> values, Reduction op, const Region& block, const Communicator::State& state) {
  Reducible result{.data = values, .operation = element_operation<T>(op)};
  if constexpr (std::is_floating_point_v<T>) {
    if (op == Reduction::average)
      result.finish = {.f = scale_some<T>,
                       .first = static_cast<std::size_t>(block.offset),
                       .elements = static_cast<std::size_t>(block.count),
                       .scale = 1.0 / state.size};
  }
  return result;
}

/// In float until the end: the order of a sum matters as little as in float.
template <class Narrow>
Reducible reducible_in_float(std::span<std::byte> values, Reduction op, const Region& block,
                             const Communicator::State& state) {
  const std::size_t count = values.size() / sizeof(Narrow), bytes = std::max<std::size_t>(count, 1) * sizeof(float);
  const std::shared_ptr<SharedHeap> heap = state.runtime->heap();
  const std::shared_ptr<void> memory(heap->allocate(bytes, 64),
                                     [heap, bytes](void* p) { heap->deallocate(p, bytes, 64); });
  const bool average = op == Reduction::average;
  Reducible result{.data = {static_cast<std::byte*>(memory.get()), count * sizeof(float)},
                   .operation = element_operation<float>(average ? Reduction::sum : op),
                   .begin = {to_float<Narrow>, values.data(), memory.get(), count},
                   .finish = {to_narrow<Narrow>, values.data(), static_cast<std::size_t>(block.offset),
                              static_cast<std::size_t>(block.count), average ? 1.0 / state.size : 1.0, memory}};
  result.operation.type = element_type<Narrow>();
  result.operation.reduction = op;
  return result;
}
template <>
Reducible reducible<bfloat16>(std::span<std::byte> values, Reduction op, const Region& block,
                              const Communicator::State& state) {
  return reducible_in_float<bfloat16>(values, op, block, state);
}
template <>
Reducible reducible<float16>(std::span<std::byte> values, Reduction op, const Region& block,
                             const Communicator::State& state) {
  return reducible_in_float<float16>(values, op, block, state);
}

Reducible reducible(const Communicator::State& state, const UntypedOperation& o, const Region& block) {
  switch (o.type) {
    case ElementType::float32:
      return reducible<float>(o.output, o.reduction, block, state);
    case ElementType::float64:
      return reducible<double>(o.output, o.reduction, block, state);
    case ElementType::int32:
      return reducible<std::int32_t>(o.output, o.reduction, block, state);
    case ElementType::int64:
      return reducible<std::int64_t>(o.output, o.reduction, block, state);
    case ElementType::uint64:
      return reducible<std::uint64_t>(o.output, o.reduction, block, state);
    case ElementType::float16:
      return reducible<float16>(o.output, o.reduction, block, state);
    default:
      return reducible<bfloat16>(o.output, o.reduction, block, state);
  }
}

void check_function(const UntypedOperation& o) {
  if (o.function->element_bytes != o.element_bytes) {
    throw InvalidArgument(name_of(o.kind), "op",
                          "on elements of " + std::to_string(o.function->element_bytes) + " bytes",
                          std::to_string(o.element_bytes) + " bytes, as the values have");
  }
  if (!o.function->combine)
    throw InvalidArgument(name_of(o.kind), "op", "no function", "a Reduction, or user_operation() of a function");
}

Region whole_of(const UntypedOperation& o) { return {Buffer::output, 0, static_cast<Index>(count_of(o))}; }

Prepared prepare_all_reduce(Communicator::State& state, const UntypedOperation& o) {
  if (o.function) {
    check_function(o);
    return state.prepare_all_reduce(name_of(o.kind), o.output, *o.function, o.options, {});
  }
  const Reducible r = reducible(state, o, whole_of(o));
  Prepared p = state.prepare_all_reduce(name_of(o.kind), r.data, r.operation, o.options, r.finish);
  p.begin = r.begin;
  return p;
}

/// Whether a reduce-scatter runs as an all-reduce: the ring has one order of its own, or is slower by the tuning.
/// `bytes`: of the values as the engine combines them.
bool keeps_a_block_of_all(const Communicator::State& state, const UntypedOperation& o, std::size_t bytes) {
  return o.function || o.options.reproducible || o.options.algorithm != AllReduceAlgorithm::automatic ||
         state.plans.prefers_all_reduce(bytes);
}

Prepared prepare_reduce_scatter(Communicator::State& state, const UntypedOperation& o) {
  if (o.function) return prepare_all_reduce(state, o);
  const Reducible r = reducible(state, o, block_of(whole_of(o), state.rank, state.size));
  Prepared p =
      keeps_a_block_of_all(state, o, r.data.size())
          ? state.prepare_all_reduce(name_of(o.kind), r.data, r.operation, o.options, r.finish)
          : state.prepare(name_of(o.kind), {.kind = o.kind}, r.data, r.operation, r.finish, o.options.priority);
  p.begin = r.begin;
  return p;
}

// --- without arithmetic ---

Prepared prepare_all_to_all(Communicator::State& state, const UntypedOperation& o) {
  const std::size_t count = count_of(o);
  if (count % static_cast<std::size_t>(state.size) != 0 || o.output.size() != o.input.size()) {
    throw InvalidArgument(
        name_of(o.kind), "input, output",
        std::to_string(o.input.size() / o.element_bytes) + " and " + std::to_string(count) + " elements",
        "equal sizes, a multiple of " + std::to_string(state.size) + " elements; or send_counts and receive_counts");
  }
  return state.prepare(name_of(o.kind), {.kind = o.kind}, o.output, {.element_bytes = o.element_bytes}, {},
                       o.options.priority, o.input);
}

Prepared prepare_all_to_all_of_counts(Communicator::State& state, const UntypedOperation& o) {
  const auto p = static_cast<std::size_t>(state.size), r = static_cast<std::size_t>(state.rank);
  const auto check = [&](const char* argument, std::span<const Index> counts, std::size_t bytes) {
    Index sum = 0;
    for (const Index count : counts) {
      if (count < 0) throw InvalidArgument(name_of(o.kind), argument, std::to_string(count), "0 or more elements");
      sum += count;
    }
    if (counts.size() != p || static_cast<std::size_t>(sum) != bytes / o.element_bytes) {
      throw InvalidArgument(name_of(o.kind), argument,
                            std::to_string(counts.size()) + " counts, " + std::to_string(sum) + " elements",
                            std::to_string(p) + " counts, " + std::to_string(bytes / o.element_bytes) + " elements");
    }
  };
  check("send_counts", o.send_counts, o.input.size());
  check("receive_counts", o.receive_counts, o.output.size());
  if (o.send_counts[r] != o.receive_counts[r]) {
    throw InvalidArgument(name_of(o.kind), "receive_counts[" + std::to_string(r) + "]",
                          std::to_string(o.receive_counts[r]),
                          std::to_string(o.send_counts[r]) + ", the number that this rank sends to itself");
  }
  // Of the matrix of all counts a rank needs its row and its column.
  std::vector<std::vector<Index>> counts(p, std::vector<Index>(p));
  for (std::size_t i = 0; i < p; ++i) {
    counts[r][i] = o.send_counts[i];
    counts[i][r] = o.receive_counts[i];
  }
  Builder b(state.rank);
  const Region in = b.input(static_cast<Index>(o.input.size() / o.element_bytes));
  const Region out = b.output(static_cast<Index>(count_of(o)));
  pairwise_all_to_all(b, Team::all(state.rank, state.size), in, out, counts);
  return state.prepare(name_of(o.kind), b.finish(), {.kind = o.kind}, 1, o.input, o.output,
                       {.element_bytes = o.element_bytes}, o.options.priority);
}

Prepared prepare_broadcast(Communicator::State& state, const UntypedOperation& o) {
  if (o.root < 0 || o.root >= state.size) {
    throw InvalidArgument(name_of(o.kind), "root", std::to_string(o.root),
                          "a rank from 0 to " + std::to_string(state.size - 1));
  }
  return state.prepare(name_of(o.kind), {.kind = o.kind, .root = o.root}, o.output, {}, {}, o.options.priority);
}

Prepared prepare_user_schedule(Communicator::State& state, const UntypedOperation& o) {
  const auto check = [&](const char* argument, Index elements, std::size_t bytes) {
    if (static_cast<std::size_t>(elements) * o.element_bytes != bytes) {
      throw InvalidArgument(name_of(o.kind), argument, std::to_string(bytes) + " bytes",
                            std::to_string(elements) + " elements of " + std::to_string(o.element_bytes) +
                                " bytes, as the schedule \"" + *o.name + "\" has");
    }
  };
  check("input", o.schedule->input, o.input.size());
  check("output", o.schedule->output, o.output.size());
  if (o.schedule->rank != state.rank) {
    throw InvalidArgument(name_of(o.kind), "schedule", "of rank " + std::to_string(o.schedule->rank),
                          "the schedule of rank " + std::to_string(state.rank));
  }
  const auto combines = [](const Step& s) { return s.kind == Step::Kind::reduce || s.kind == Step::Kind::combine; };
  if (std::ranges::any_of(o.schedule->steps, combines)) check_function(o);
  ElementOperation op = *o.function;
  op.element_bytes = o.element_bytes;
  std::uint32_t identity = 2166136261u;
  for (const char c : *o.name) identity = (identity ^ static_cast<unsigned char>(c)) * 16777619u;
  return state.prepare(name_of(o.kind), *o.schedule,
                       {.kind = o.kind,
                        .reduction = static_cast<std::uint8_t>(op.reduction),
                        .type = static_cast<std::uint8_t>(op.type),
                        .variant = static_cast<std::uint8_t>(o.direction)},
                       identity, o.input, o.output, op, o.options.priority);
}

/// The contract of a reduce-scatter that runs as an all-reduce is its own. Operations without arithmetic know their
/// element type only here.
Prepared with_contract(Prepared p, const UntypedOperation& o) {
  p.call.contract.kind = o.kind;
  if (o.kind == OperationKind::all_gather || o.kind == OperationKind::all_to_all || o.kind == OperationKind::broadcast)
    p.call.contract.type = static_cast<std::uint8_t>(o.type);
  return p;
}

Prepared prepare_any(Communicator::State& state, const UntypedOperation& o) {
  switch (o.kind) {
    case OperationKind::all_reduce:
      return prepare_all_reduce(state, o);
    case OperationKind::reduce_scatter:
      return prepare_reduce_scatter(state, o);
    case OperationKind::all_to_all:
      return o.send_counts.empty() && o.receive_counts.empty() ? prepare_all_to_all(state, o)
                                                               : prepare_all_to_all_of_counts(state, o);
    case OperationKind::broadcast:
      return prepare_broadcast(state, o);
    case OperationKind::user:
      return prepare_user_schedule(state, o);
    default:
      return state.prepare(name_of(o.kind), {.kind = o.kind}, o.output, {.element_bytes = o.element_bytes}, {},
                           o.options.priority);
  }
}

Prepared prepare(Communicator::State& state, const UntypedOperation& o) {
  return with_contract(prepare_any(state, o), o);
}

}  // namespace

template <class T>
Request Communicator::start_built_in(std::span<T> values, Reduction op, const CollectiveOptions& options) const {
  const Region whole{Buffer::output, 0, static_cast<Index>(values.size())};
  const Reducible r = reducible<T>(std::as_writable_bytes(values), op, whole, *state_);
  r.begin();
  return state_->start_all_reduce(name_of(OperationKind::all_reduce), r.data, r.operation, options, r.finish);
}

#define INSTANTIATE(T) \
  template Request Communicator::start_built_in(std::span<T>, Reduction, const CollectiveOptions&) const;
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(std::int32_t)
INSTANTIATE(std::int64_t)
INSTANTIATE(std::uint64_t)
INSTANTIATE(bfloat16)
INSTANTIATE(float16)
#undef INSTANTIATE

Request Communicator::start_untyped(const UntypedOperation& o) const {
  if (o.kind != OperationKind::all_reduce) return state_->start(prepare(*state_, o));
  check_function(o);  // a built-in one goes through start_built_in()
  return state_->start_all_reduce(name_of(o.kind), o.output, *o.function, o.options, {});
}

// --- persistent operations ---

struct PersistentCollective::Implementation {
  std::shared_ptr<Communicator::State> state;
  Prepared collective;
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
      throw InvalidArgument(collective.call.name, "persistent operation", "started while it runs",
                            "one start after the other; wait for the Request of the previous start");
    }
  }
  return latest = state->start(collective);
}

void PersistentCollective::run() const {
  const Request request = start();
  if (request.pending)
    implementation_->state->wait({request.slot, request.generation}, implementation_->collective.call.name);
}

PersistentCollective Communicator::prepare_untyped(const UntypedOperation& o) const {
  if (o.options.fuse) {
    throw Unsupported(name_of(o.kind), "options.fuse", "true in a persistent operation",
                      "start(), which can fuse, or one persistent operation on all data");
  }
  return PersistentCollective(std::make_shared<PersistentCollective::Implementation>(state_, prepare(*state_, o)));
}

// --- explanations ---

namespace {

void add_costs(Explanation& e, const detail::Program& program, std::size_t element_bytes, std::uint64_t times,
               double& combined_bytes) {
  for (const detail::Program::Instruction& instruction : program.instructions) {
    const Step& step = instruction.step;
    const auto bytes = times * static_cast<std::uint64_t>(step.from.count) * element_bytes;
    if (step.kind == Step::Kind::send) {
      e.messages_sent += times;
      e.bytes_sent += bytes;
    }
    combined_bytes +=
        static_cast<double>(times * element_bytes) * detail::combined_elements(step, program.combined.size());
  }
}

}  // namespace

Explanation Communicator::explain_untyped(const UntypedOperation& o) const {
  const Prepared p = prepare(*state_, o);
  const detail::Engine::Call& call = p.call;
  const std::size_t element_bytes = call.operation.element_bytes;
  Explanation e{.parts = call.parts};
  if (!p.alone) {
    double combined_bytes = 0;
    if (call.parts > 1) add_costs(e, *call.whole, element_bytes, call.parts - 1, combined_bytes);
    add_costs(e, *call.last, element_bytes, 1, combined_bytes);
    e.predicted_seconds =
        state_->plans.predict(static_cast<double>(e.messages_sent), static_cast<double>(e.bytes_sent), combined_bytes);
  }
  const std::size_t bytes = count_of(o) * element_bytes;
  if (o.kind == OperationKind::all_reduce ||
      (o.kind == OperationKind::reduce_scatter && keeps_a_block_of_all(*state_, o, bytes))) {
    const bool ordered = State::keeps_order(o.options, call.operation);
    const detail::AllReduceChoice choice = state_->plans.choose(call.name, o.options.algorithm, bytes, ordered);
    e.algorithm = to_string(choice.algorithm);
    e.reason = choice.reason;
    e.algorithms = state_->plans.reports(bytes, ordered, choice.algorithm);
    for (const AlgorithmReport& report : e.algorithms) {
      if (!report.chosen) continue;
      e.predicted_seconds = report.predicted_seconds;
      e.measured_seconds = report.measured_seconds;
    }
  } else if (o.kind == OperationKind::user) {
    e.algorithm = *o.name;
    e.reason = "the caller's schedule";
  } else if (!o.send_counts.empty()) {
    e.algorithm = "pairwise";
    e.reason = "blocks may differ in size";
  } else {
    const detail::Method method =
        state_->plans.method({.kind = o.kind, .element_bytes = static_cast<std::uint32_t>(element_bytes)},
                             static_cast<Index>(call.contract.count));
    e.algorithm = name(method.kind);
    e.reason = method.reason;
  }
  if (p.alone) {
    e.algorithm = "none";
    e.reason = "a single rank has nothing to send";
  }
  return e;
}

}  // namespace aloni::comm
