#pragma once
// What a rank knows of its messages: to or from whom, how long, and how the values travel. Of the forward direction.
#include <aloni/core/comm/exposed_memory.hpp>
#include <aloni/core/index.hpp>
#include <aloni/views/box.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace aloni::halo::detail {

/// The one message that goes to another rank, or comes from it.
struct Peer {
  int rank = 0;
  std::size_t offset = 0, bytes = 0;  ///< in the buffer, if it has room there
  Index first_move = 0, moves = 0;
  bool direct = false, direct_adjoint = false;  ///< nothing is sent: who receives copies from where it lies
  bool on_device = false;                       ///< sent from there, and received
  bool other_node = false;
  std::byte* consolidated = nullptr;  ///< not a message of its own: its place in one of the whole node

  bool is_direct(bool adjoint) const { return adjoint ? direct_adjoint : direct; }
};

/// Where another rank finds the cells of a move: the first of its source box (in the adjoint of its destination box), and how to step. Travels
/// as it is.
struct Place {
  comm::ExposedMemory memory{};
  std::array<Index, views::num_dims> strides{};
  std::int32_t is_packed = 1;  ///< in the buffer, not in the tensor
};

}  // namespace aloni::halo::detail
