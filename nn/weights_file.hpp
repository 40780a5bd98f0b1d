#pragma once
// The weights of a network as a file for other programs, in the format safetensors.
//
//   write_weights(comm, queue, net, parameters, "weights.safetensors");
//   read_weights(queue, net, parameters, "weights.safetensors");
//
// A file has the parameters and the running statistics, by name: "conv1.weight", "bn1.gamma", "bn1.running_mean".
// A shape has the five extents of the tensor. Filters have the number of filters, kernel depth, height, width, and
// channels. PyTorch has the channels in the second place.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/parameters.hpp>

#include <string>

namespace aloni::nn {

/// Writes float32 or float64, the type of the parameters; running statistics are float64. Rank 0 writes the file.
/// Collective. @pre the parameters are made for `network`; running statistics are equal on all ranks
/// Throws FileError on rank 0 and PeerFailed on the others.
template <class T, class Exec>
void write_weights(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
                   const Parameters<T, Exec>& parameters, const std::string& path);

/// Reads the boxes that this rank keeps; the optimiser's states do not change. The file has exactly the tensors of the
/// network, in float32, float64, bfloat16 or float16. Extents of 1 do not count: a shape [6, 5, 5] fits filters of
/// [6, 1, 5, 5, 1].
/// Not collective. @pre the parameters are made for `network`
/// Throws InvalidArgument, naming the tensor, if a tensor is missing, unknown, or has another shape or type. Throws
/// FileError.
template <class T, class Exec>
void read_weights(const Queue<Exec>& queue, const NetworkDescription& network, const Parameters<T, Exec>& parameters,
                  const std::string& path);

}  // namespace aloni::nn
