#include <aloni/core/comm/message.hpp>

#include <aloni/core/comm/collectives.hpp>
#include <aloni/core/comm/reduction.hpp>

#include <array>

namespace aloni::comm {

std::string_view name(OperationKind kind) {
  constexpr std::array names{"message", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all",
                             "barrier", "schedule",   "poison",         "transfer",   "mail"};
  return static_cast<std::size_t>(kind) < names.size() ? names[static_cast<std::size_t>(kind)] : "";
}

std::string describe(const Contract& c) {
  constexpr std::array reductions{"sum", "min", "max", "product", "average"};
  constexpr std::array directions{"set-up", "forward", "adjoint"};
  constexpr std::array types{"bytes", "float", "double", "int32", "int64", "uint64", "bfloat16", "float16", "user"};
  std::string text(name(c.kind));
  if (text.empty() || c.type >= types.size() || c.reduction >= reductions.size()) return "an unknown operation";
  if (c.kind == OperationKind::barrier) return text;
  text += "(";
  // Counts of broadcasts, transfers and messages are bytes.
  const bool in_bytes = c.kind == OperationKind::broadcast || c.kind == OperationKind::transfer ||
                        c.kind == OperationKind::message || c.kind == OperationKind::mail;
  const std::string elements = std::string(in_bytes && c.type > 0 ? "bytes of " : "") + types[c.type];
  if (c.kind == OperationKind::all_reduce || c.kind == OperationKind::reduce_scatter) {
    const auto algorithm = static_cast<AllReduceAlgorithm>(c.variant / Contract::algorithm_unit);
    if ((c.variant & Contract::fused) != 0) text += "fused ";
    text += std::string(reductions[c.reduction]) + " of " + std::to_string(c.count) + " " + elements;
    if (algorithm > AllReduceAlgorithm::automatic && algorithm <= AllReduceAlgorithm::hierarchical)
      text += " by " + to_string(algorithm);
    if ((c.variant & Contract::reproducible) != 0) text += ", reproducible";
    return text + ")";
  }
  const bool is_directed = c.kind == OperationKind::transfer || (c.kind == OperationKind::user && c.variant > 0);
  if (is_directed && c.variant < directions.size()) text += directions[c.variant] + std::string(", ");
  text += std::to_string(c.count) + " " + elements;
  if (c.kind == OperationKind::broadcast) text += ", root " + std::to_string(c.variant);
  if (c.kind == OperationKind::message) text += ", tag " + std::to_string(c.plan);
  if (c.kind == OperationKind::mail) text += ", kind " + std::to_string(c.plan);
  return text + ")";
}

}  // namespace aloni::comm
