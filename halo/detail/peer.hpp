#pragma once
// The peers of a rank in a transfer: length of the message, and how its values travel. In the forward direction.
#include <aloni/core/comm/exposed_memory.hpp>
#include <aloni/core/index.hpp>
#include <aloni/views/box.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace aloni::comm::detail {
class DeviceEvent;
}

namespace aloni::halo::detail {

/// Which operation of the device library carries a message, and how long it is. The sender tells the receiver through
/// the host (MessageGroup).
struct Turn {
  std::uint64_t number = 0, bytes = 0;
};

/// The message to or from another rank.
struct Peer {
  int rank = 0;
  std::size_t offset = 0, bytes = 0;  ///< in the buffer, if the message lies there
  Index first_move = 0, moves = 0;
  bool direct = false, direct_adjoint = false;  ///< not sent: the receiver copies from the sender's memory
  bool on_device = false;                       ///< sent from and received in device memory
  bool other_node = false;
  Turn* turn = nullptr;               ///< of a message in a group of the device library; null: another way
  std::byte* consolidated = nullptr;  ///< position in a consolidated message; null: a message of its own
  /// The peer's events (EventOrder), for direct reading in both directions. Null: the hosts wait.
  comm::detail::DeviceEvent *ready = nullptr, *read = nullptr;

  bool grouped() const { return turn != nullptr; }
  bool by_events() const { return ready && read; }
  bool is_direct(bool adjoint) const { return adjoint ? direct_adjoint : direct; }
};

/// Where another rank finds the cells of a move: the first cell of the source box, and strides. In the adjoint: of the
/// destination box. Ranks send it as raw bytes.
struct Place {
  comm::ExposedMemory memory{};
  std::array<Index, views::num_dims> strides{};
  std::int32_t is_packed = 1;  ///< 1: in the buffer; 0: in the tensor
};

}  // namespace aloni::halo::detail
