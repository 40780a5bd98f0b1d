#pragma once
// Direct reading: large messages are not sent if the receiver can reach the sender's memory. The receiver copies the
// cells from the sender's tensor, or from the sender's buffer of packed cells.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/comm/transfer_messages.hpp>
#include <aloni/halo/detail/message_buffer.hpp>
#include <aloni/halo/transfer.hpp>

#include <cstddef>
#include <vector>

namespace aloni::halo::detail {

/// Sets the peers' flags for direct reading, the places, and the opened memory. Neighbours send each other where cells
/// are, and whether they could open all of this memory. Messages shorter than direct_bytes are sent. Collective among
/// neighbours. @pre both buffers are allocated
template <class Exec>
void agree_on_direct_reading(const comm::Communicator& comm, const comm::TransferMessages& messages,
                             std::size_t direct_bytes,
                             const std::vector<AnyTransferItem<typename Exec::memory_space>>& items,
                             MessageBuffer<Exec>& outgoing, MessageBuffer<Exec>& incoming);

}  // namespace aloni::halo::detail
