#pragma once
// Transport over UCX, between any ranks. UCX chooses the network (InfiniBand, RoCE, TCP, …); its variables (UCX_TLS,
// UCX_NET_DEVICES, …) restrict the choice. As over MPI, envelopes with payloads of up to 4 KiB arrive in a ring of
// posted receives. A larger payload follows as a separate message. The 64-bit tag of a message contains the sender, and
// for a payload its number.
//
// All peers are connected at the start, because UCX needs both sides to complete a connection. A lost connection
// becomes an error only after a delay. Before it, a failing peer usually sends poison, which says more, and a peer that
// ends normally sends a farewell.
#include <aloni/core/comm/transport.hpp>
#include <aloni/core/comm/transport/gather_bytes.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace aloni::comm::detail {

/// A barrier that calls `progress` while it waits. Collective.
using Meet = std::function<void(const std::function<void()>& progress)>;

/// Makes a UCX transport. `peers`: the ranks to exchange messages with; the relation is symmetric. Destroy the
/// transport when no rank waits for messages of this rank any more; the destructor waits for no peer.
/// Collective over all ranks. Throws CommunicationError on all ranks if UCX fails on any rank. Defined in builds with
/// aloni_ENABLE_UCX.
std::unique_ptr<Transport> make_ucx_transport(int rank, std::span<const int> peers, const GatherBytes& all_gather,
                                              const Meet& meet);

}  // namespace aloni::comm::detail
