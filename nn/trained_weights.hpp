#pragma once
// Where a network that only evaluates gets its parameters from: a file of weights, or the checkpoints of a training.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/parameters.hpp>

#include <string>

namespace aloni::nn {

/// One of the two is given.
struct TrainedWeights {
  std::string file = {};         ///< as nn/weights_file.hpp
  std::string checkpoints = {};  ///< folder of a training (docs/checkpoint.md): its newest whole checkpoint
};

/// Throws InvalidArgument with `operation` unless one of the two is given.
void check(const TrainedWeights& weights, const char* operation);

/// Sets the boxes of the parameters that each rank keeps, and the running statistics. If the training kept a moving
/// average of the parameters, these are its values: the training has tested with them.
/// Collective. @pre the parameters are made for `network`; all ranks pass equal arguments and see equal files
/// Throws InvalidArgument, naming the tensor, on each rank that lacks a tensor of this shape. Throws FileError on each
/// rank whose file cannot be read, and PeerFailed on the others. Throws FileError on all ranks if no checkpoint is
/// whole.
template <class T, class Exec>
void read_trained_weights(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
                          const Parameters<T, Exec>& parameters, const TrainedWeights& weights);

}  // namespace aloni::nn
