#pragma once
// Messages that are large enough aren't sent where the receiver reaches the sender's memory. It copies the cells from where they lie: from
// the tensor itself, or else from the buffer where they are packed.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/halo/detail/message_buffer.hpp>
#include <aloni/halo/transfer.hpp>

#include <cstddef>
#include <vector>

namespace aloni::halo::detail {

/// Collective among neighbours, who send each other where everything lies and whether they can open all of it: sets what the peers say of
/// direct reading, the places and what is opened. Messages shorter than direct_bytes are sent. @pre both are allocated
template <class Exec>
void agree_on_direct_reading(const comm::Communicator& comm, int tag, std::size_t direct_bytes,
                             const std::vector<AnyTransferItem<typename Exec::memory_space>>& items,
                             MessageBuffer<Exec>& outgoing, MessageBuffer<Exec>& incoming);

}  // namespace aloni::halo::detail
