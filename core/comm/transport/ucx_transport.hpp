#pragma once
// Through UCX, between any ranks: InfiniBand, RoCE, TCP, whatever UCX finds and its variables (UCX_TLS, UCX_NET_DEVICES, …) leave.
// As over MPI, envelopes with payloads of a few KiB in them go to a ring of posted receives; a larger payload follows as a message of its
// own. The 64-bit tag of a message names its sender, and of a payload also its number.
//
// All peers are connected at the start, since UCX finishes a connection with the help of both sides. When one breaks away, what
// concerns it fails some time later: a peer that fails says so by poison as a rule, which tells more than a lost connection, and one
// that has come to its end has said so.
#include <aloni/core/comm/transport.hpp>
#include <aloni/core/comm/transport/all_gather.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace aloni::comm::detail {

/// Returns when all ranks have called it; calls `progress` while it waits.
using Meet = std::function<void(const std::function<void()>& progress)>;

/// Collective over all ranks; `peers` are those with which messages will be exchanged, which name this one in turn. Throws
/// CommunicationError on all ranks when UCX fails on any. Defined in builds with aloni_ENABLE_UCX. To be destroyed when nobody waits for
/// messages of this rank any more; waits for no peer.
std::unique_ptr<Transport> make_ucx_transport(int rank, std::span<const int> peers, const AllGather& all_gather,
                                              const Meet& meet);

}  // namespace aloni::comm::detail
