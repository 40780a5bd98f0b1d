#pragma once
// Functions on items of a transfer that do not depend on the element type, and the checks of items.
#include <aloni/core/error.hpp>
#include <aloni/halo/transfer.hpp>

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

namespace aloni::halo::detail {

template <class AnyItem>
const TransferPlan& plan_of(const AnyItem& any) {
  return std::visit([](const auto& item) -> const TransferPlan& { return item.plan; }, any);
}

template <class AnyItem>
std::size_t element_bytes(const AnyItem& any) {
  return std::visit([](const auto& item) { return sizeof(*item.source.data.data()); }, any);
}

template <class T, class MemorySpace>
void check_extents(const TensorRef<T, MemorySpace>& tensor) {
  for (const views::Dim d : views::all_dims) {
    const auto extent = tensor.data.extent(static_cast<std::size_t>(views::position(d)));
    if (static_cast<Index>(extent) != tensor.box.extent(d))
      throw InvalidArgument(
          "aloni::halo::Transfer", std::string("extent of data, ") + views::name(d), std::to_string(extent),
          std::to_string(tensor.box.extent(d)) + ", the extent of the tensor's box " + to_string(tensor.box));
  }
}

template <class T, class MemorySpace>
void check_box(const char* what, const views::Box& box, const TensorRef<T, MemorySpace>& tensor) {
  if (!views::contains(tensor.box, box))
    throw InvalidArgument("aloni::halo::Transfer", what, to_string(box),
                          "a box inside the tensor's " + to_string(tensor.box));
}

inline void check_peer(int peer, int ranks) {
  if (peer < 0 || peer >= ranks)
    throw InvalidArgument("aloni::halo::Transfer", "peer of a message", std::to_string(peer),
                          "a rank of the communicator, from 0 to " + std::to_string(ranks - 1));
}

/// Throws InvalidArgument if a precondition of Transfer's constructor on an item is violated.
template <class T, class MemorySpace>
void check(const TransferItem<T, MemorySpace>& item, int ranks) {
  check_extents(item.source);
  check_extents(item.destination);
  for (const Message& m : item.plan.sends) {
    for (const Move& move : m.moves) check_box("box to send", move.source, item.source);
    check_peer(m.peer, ranks);
  }
  for (const Message& m : item.plan.receives) {
    for (const Move& move : m.moves) check_box("box to receive", move.destination, item.destination);
    check_peer(m.peer, ranks);
  }
  for (const Move& move : item.plan.local) {
    check_box("box to copy", move.source, item.source);
    check_box("box to fill", move.destination, item.destination);
  }
  for (const views::Box& box : item.plan.fills) check_box("box to fill", box, item.destination);
  for (const views::Box& box : item.filled_later) check_box("box filled later", box, item.destination);
}

}  // namespace aloni::halo::detail
