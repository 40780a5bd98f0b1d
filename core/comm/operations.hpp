#pragma once
// Collective operations as values: data and options. A Communicator runs, starts, prepares or explains them. Pure.
//
//   comm.run(AllReduce{std::span(gradients), Reduction::sum});                     // blocks
//   Request r = comm.start(Broadcast{std::span(weights), 0});                      // asynchronous; comm.wait(r)
//   PersistentCollective p = comm.persistent(AllGather{std::span(blocks)});        // p.run(), any number of times
//   comm.run(AllReduce{std::span(errors), Reduction::max, {.priority = 1}});       // with options
//   comm.run(AllReduce<float>{.values = gradients, .op = Reduction::sum});         // with names
//   std::puts(comm.explain(AllGather{std::span(blocks)}).reason.c_str());
//
// Element types are deduced from positional arguments by every compiler. GCC deduces them from designated initialisers
// too; nvcc 13 and Clang 14 need `AllReduce<float>{.values = …}` there.
//
// Shapes. Counts are in elements. "Block r" is block_of() in schedule/schedule.hpp: about equal blocks, larger first.
// Types. Reductions take float, double, std::int32_t, std::int64_t, std::uint64_t, bfloat16 and float16, or with an
// ElementOperation (user_operation() in reduction.hpp) any trivially copyable type. Other operations take any trivially
// copyable type.
// Ranks. Operation, element type, count, root and options are equal on all ranks. The counts of AllToAll may differ.
// Memory. Data are host memory. They belong to the operation from start() until wait() or test() has seen it complete.
#include <aloni/core/comm/collectives.hpp>
#include <aloni/core/comm/message.hpp>
#include <aloni/core/comm/reduction.hpp>
#include <aloni/core/comm/schedule/schedule.hpp>
#include <aloni/core/comm/tuning.hpp>
#include <aloni/core/index.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace aloni::comm {

/// How elements are combined: built in, or by a function of the user's.
template <class Op>
concept ReductionOperation = std::same_as<Op, Reduction> || std::same_as<Op, ElementOperation>;

/// Elements that `Op` can combine.
template <class T, class Op = Reduction>
concept ReducibleElement = !std::is_const_v<T> && std::is_trivially_copyable_v<T> &&
                           (std::same_as<Op, ElementOperation> ||
                            (element_type<T>() != ElementType::user && element_type<T>() != ElementType::bytes));

/// In place: every rank gets the reduction of all ranks' values, with equal bits.
template <class T, ReductionOperation Op = Reduction>
struct AllReduce {
  static_assert(ReducibleElement<T, Op>,
                "float, double, int32, int64, uint64, bfloat16, float16, or an ElementOperation");

  std::span<T> values;
  Op op = {};
  CollectiveOptions options = {};
};
template <class T, std::size_t N, ReductionOperation Op>
AllReduce(std::span<T, N>, Op, CollectiveOptions = {}) -> AllReduce<T, Op>;

/// Options of a reduce-scatter; see CollectiveOptions.
struct ReduceScatterOptions {
  /// automatic: a ring, or an all-reduce that the tuning has as faster. Others, and ElementOperations: an all-reduce.
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::automatic;
  bool reproducible = false;
  int priority = 0;
};

/// In place: on rank r, block r becomes the reduction of all ranks' values. The other blocks are undefined afterwards.
template <class T, ReductionOperation Op = Reduction>
struct ReduceScatter {
  static_assert(ReducibleElement<T, Op>,
                "float, double, int32, int64, uint64, bfloat16, float16, or an ElementOperation");

  std::span<T> values;
  Op op = {};
  ReduceScatterOptions options = {};
};
template <class T, std::size_t N, ReductionOperation Op>
ReduceScatter(std::span<T, N>, Op, ReduceScatterOptions = {}) -> ReduceScatter<T, Op>;

/// In place: rank r gives block r, every rank gets all blocks.
template <class T>
struct AllGather {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "elements travel as bytes, in place");

  std::span<T> values;
  int priority = 0;
};
template <class T, std::size_t N>
AllGather(std::span<T, N>, int = 0) -> AllGather<T>;

/// Block i of `input` goes to rank i; block i of `output` comes from there. @pre input and output don't overlap
/// Without counts, blocks are equal: both spans have the same size, a multiple of the number of ranks.
/// With counts, blocks lie one after the other: send_counts[i] elements to rank i, receive_counts[i] from it.
template <class T>
struct AllToAll {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "elements travel as bytes");

  std::span<const T> input;
  std::span<T> output;
  std::span<const Index> send_counts = {}, receive_counts = {};
  int priority = 0;
};
template <class T, std::size_t N>
AllToAll(std::type_identity_t<std::span<const T>>, std::span<T, N>, std::span<const Index> = {},
         std::span<const Index> = {}, int = 0) -> AllToAll<T>;
template <class T, std::size_t N, class... Options>  // for designated initialisers that leave out some
AllToAll(std::type_identity_t<std::span<const T>>, std::span<T, N>, Options...)->AllToAll<T>;

/// Every rank gets the values of rank `root`. @pre 0 ≤ root < size()
template <class T>
struct Broadcast {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "elements travel as bytes, in place");

  std::span<T> values;
  int root = 0;
  int priority = 0;
};
template <class T, std::size_t N>
Broadcast(std::span<T, N>, int, int = 0) -> Broadcast<T>;

/// Completes when all ranks have started it.
struct Barrier {
  int priority = 0;
};

/// A schedule of the user's (docs/collectives.md): this rank's part, on its buffers. `name` is equal on all ranks.
/// start() compiles the schedule at each call; persistent() compiles it once. Both throw Unsupported for more than
/// 65,529 messages to or from one rank, on the ranks of these messages only: divide the schedule.
/// @pre the schedule is of this rank; output and input have its sizes
template <class T = std::byte>
struct UserSchedule {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>, "elements travel as bytes");

  std::string name;
  Schedule schedule;
  std::span<T> output = {};
  ElementOperation op = {};  ///< of reduce and combine steps
  std::span<const T> input = {};
  int priority = 0;
  TransferDirection direction = {};  ///< of messages of a halo transfer; errors name it
};
template <class T, std::size_t N, class... Options>
UserSchedule(std::string, Schedule, std::span<T, N>, Options...) -> UserSchedule<T>;
template <class T, std::size_t N>
UserSchedule(std::string, Schedule, std::span<T, N>, ElementOperation, std::type_identity_t<std::span<const T>> = {},
             int = 0, TransferDirection = {}) -> UserSchedule<T>;

/// How run() would do an operation, why, and at which cost.
struct Explanation {
  std::string algorithm = {};  ///< "ring", "bruck" …; "none" on one rank; a user's schedule: its name
  std::string reason = {};     ///< one line
  std::uint32_t parts = 1;     ///< pipeline stages
  /// Messages of this rank and bytes of their payloads. Direct access to shared memory is no message.
  std::uint64_t messages_sent = 0, bytes_sent = 0;
  /// Seconds by the tuning's model: of an all-reduce on the slowest rank, otherwise on this one. Negative without
  /// tuning.
  double predicted_seconds = -1;
  double measured_seconds = -1;                  ///< of an all-reduce, by the tuning; negative without
  std::vector<AlgorithmReport> algorithms = {};  ///< of an all-reduce: all that could be taken; of others empty
};

namespace detail {

/// Any operation without its element type. Refers to the operation it was made from.
struct UntypedOperation {
  OperationKind kind{};
  ElementType type = ElementType::bytes;
  std::size_t element_bytes = 1;
  std::span<std::byte> output = {};
  std::span<const std::byte> input = {};
  Reduction reduction{};
  const ElementOperation* function = nullptr;  ///< null: `reduction`
  CollectiveOptions options = {};
  int root = 0;
  std::span<const Index> send_counts = {}, receive_counts = {};
  const std::string* name = nullptr;
  const Schedule* schedule = nullptr;
  TransferDirection direction = {};  ///< of a UserSchedule
};

template <class T, class Op>
UntypedOperation untyped(OperationKind kind, std::span<T> values, const Op& op, const CollectiveOptions& options) {
  UntypedOperation o{.kind = kind,
                     .type = element_type<T>(),
                     .element_bytes = sizeof(T),
                     .output = std::as_writable_bytes(values),
                     .options = options};
  if constexpr (std::same_as<Op, Reduction>) {
    o.reduction = op;
  } else {
    o.function = &op;
  }
  return o;
}
template <class T, class Op>
UntypedOperation untyped(const AllReduce<T, Op>& o) {
  return untyped(OperationKind::all_reduce, o.values, o.op, o.options);
}
template <class T, class Op>
UntypedOperation untyped(const ReduceScatter<T, Op>& o) {
  return untyped(
      OperationKind::reduce_scatter, o.values, o.op,
      {.algorithm = o.options.algorithm, .reproducible = o.options.reproducible, .priority = o.options.priority});
}
template <class T>
UntypedOperation untyped(const AllGather<T>& o) {
  return {.kind = OperationKind::all_gather,
          .type = element_type<T>(),
          .element_bytes = sizeof(T),
          .output = std::as_writable_bytes(o.values),
          .options = {.priority = o.priority}};
}
template <class T>
UntypedOperation untyped(const AllToAll<T>& o) {
  return {.kind = OperationKind::all_to_all,
          .type = element_type<T>(),
          .element_bytes = sizeof(T),
          .output = std::as_writable_bytes(o.output),
          .input = std::as_bytes(o.input),
          .options = {.priority = o.priority},
          .send_counts = o.send_counts,
          .receive_counts = o.receive_counts};
}
template <class T>
UntypedOperation untyped(const Broadcast<T>& o) {
  return {.kind = OperationKind::broadcast,
          .type = element_type<T>(),
          .output = std::as_writable_bytes(o.values),
          .options = {.priority = o.priority},
          .root = o.root};
}
inline UntypedOperation untyped(const Barrier& o) {
  return {.kind = OperationKind::barrier, .options = {.priority = o.priority}};
}
template <class T>
UntypedOperation untyped(const UserSchedule<T>& o) {
  return {.kind = OperationKind::user,
          .element_bytes = sizeof(T),
          .output = std::as_writable_bytes(o.output),
          .input = std::as_bytes(o.input),
          .function = &o.op,
          .options = {.priority = o.priority},
          .name = &o.name,
          .schedule = &o.schedule,
          .direction = o.direction};
}

}  // namespace detail

/// AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast, Barrier, UserSchedule.
template <class O>
concept CollectiveOperation = requires(const O& operation) {
  { detail::untyped(operation) } -> std::same_as<detail::UntypedOperation>;
};

}  // namespace aloni::comm
