#pragma once
// Running statistics of batch normalisation as means over the ranks.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/parameters.hpp>

namespace aloni::nn::detail {

/// Replaces the running mean and variance of each channel by their means over the ranks that own the channel in the
/// output of the layer. A channel that no rank owns, as in a mini-batch without samples, keeps its values.
/// Collective. Throws PeerFailed.
template <class T, class Exec>
void average_statistics(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkPlan& plan,
                        const Parameters<T, Exec>& parameters);

}  // namespace aloni::nn::detail
