#pragma once
// A trained network without training: its results on a test set, and its outputs for new inputs.
//
//   const TrainedWeights weights{.file = "weights.safetensors"};
//   TestResult result = evaluate<float>(comm, network, strategy, weights, test_set);
//   predict<float>(comm, network, strategy, weights, {.inputs = open_npy("x.npy")}, "y.npy");
//
// Both make networks with NetworkOptions::inference: no gradients, and activations only until their last reader is
// done. Each rank reads the boxes of the samples that it owns, in mini-batches that are read ahead, and writes its
// boxes of the output. So no sample is whole on one rank unless the strategy says so.
#include <aloni/core/comm/communicator.hpp>
#include <aloni/nn/data/dataset.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/metrics.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/nn/trained_weights.hpp>

#include <string>

namespace aloni::nn {

struct InferenceOptions {
  Index batch = 64;  ///< samples at a time, of all ranks together; fewer if there are fewer
  local::ConvolutionBackend backend = local::ConvolutionBackend::automatic;
};

/// Loss and metrics of a test set. With the mini-batches of a training these are its last results for the set.
/// T: float, double, comm::bfloat16 or comm::float16, as for train() (nn/trainer.hpp).
/// Collective; the result is equal on all ranks. All ranks pass equal arguments; they compare them.
/// Throws InvalidArgument on all ranks for a wrong argument, or one that differs between ranks. Also for a set that
/// does not fit the network (check_fits() in nn/data/host_batch.hpp). Throws as read_trained_weights(). A file of
/// samples that cannot be read throws FileError on its rank, and PeerFailed on the others. A loss that is not finite is
/// returned.
template <class T>
TestResult evaluate(const comm::Communicator& comm, const NetworkDescription& network, const Strategy& strategy,
                    const TrainedWeights& weights, const Dataset& test_set, const InferenceOptions& options = {});

/// Writes the output of the last layer for each sample of `inputs` to the .npy file `output` (nn/data/npy_file.hpp), as
/// float32. For a loss of labels, binary cross-entropy and Dice these are logits. Targets of `inputs` are not read. An
/// older file `output` stays until all values are on the disk.
/// Collective. All ranks pass equal arguments, and see the same files; they compare the arguments. Throws as
/// evaluate(), and FileError or PeerFailed if the output cannot be written; the older file then still has its contents.
template <class T>
void predict(const comm::Communicator& comm, const NetworkDescription& network, const Strategy& strategy,
             const TrainedWeights& weights, const Dataset& inputs, const std::string& output,
             const InferenceOptions& options = {});

}  // namespace aloni::nn
