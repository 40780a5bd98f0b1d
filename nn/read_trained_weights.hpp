#pragma once
// Reads the parameters of a network that only evaluates.
//
//   Parameters<float> parameters(comm, queue, net, splits, 1, ParameterUse::inference);
//   read_trained_weights(comm, queue, net, parameters, {.checkpoints = "my_run/checkpoints"});
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/parameters.hpp>
#include <aloni/nn/trained_weights.hpp>

namespace aloni::nn {

/// Sets the boxes of the parameters that each rank keeps, and the running statistics. If the training kept a moving
/// average of the parameters, these are its values: the training has tested with them.
/// Collective. @pre the parameters are made for `network`; all ranks pass equal arguments and see equal files
/// Throws InvalidArgument on all ranks unless one of the two sources is given. Throws InvalidArgument, naming the
/// tensor, on each rank that lacks a tensor of this shape. Throws FileError on each rank whose file cannot be read, and
/// PeerFailed on the others. Throws FileError on all ranks if no checkpoint is whole.
template <class T, class Exec>
void read_trained_weights(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
                          const Parameters<T, Exec>& parameters, const TrainedWeights& weights);

}  // namespace aloni::nn
