#include <aloni/core/comm/message.hpp>

#include <aloni/core/comm/reduction.hpp>

#include <array>

namespace aloni::comm {

std::string describe(const Contract& c) {
  constexpr std::array kinds{"message",    "all_reduce", "reduce_scatter", "all_gather", "broadcast",
                             "all_to_all", "barrier",    "schedule",       "poison"};
  constexpr std::array reductions{"sum", "min", "max", "product", "average"};
  constexpr std::array types{"byte", "float", "double", "int32", "int64", "uint64", "bfloat16", "user"};
  const auto kind = static_cast<std::size_t>(c.kind);
  if (kind >= kinds.size() || c.type >= types.size() || c.reduction >= reductions.size()) return "an unknown operation";
  std::string text = kinds[kind];
  if (c.kind == OperationKind::barrier) return text;
  text += "(";
  if (c.kind == OperationKind::all_reduce || c.kind == OperationKind::reduce_scatter)
    text += std::string(reductions[c.reduction]) + " of ";
  text += std::to_string(c.count) + " " + types[c.type];
  if (c.kind == OperationKind::broadcast) text += ", root " + std::to_string(c.root);
  if (c.kind == OperationKind::message) text += ", tag " + std::to_string(c.plan);
  return text + ")";
}

}  // namespace aloni::comm
