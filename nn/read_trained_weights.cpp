#include <aloni/nn/read_trained_weights.hpp>

#include <aloni/core/error.hpp>
#include <aloni/core/io/file_system.hpp>
#include <aloni/core/nearest_file.hpp>
#include <aloni/nn/checkpoint/archive_parameters.hpp>
#include <aloni/nn/local/detail/activations.hpp>
#include <aloni/nn/weights_file.hpp>

#include <vector>

namespace aloni::nn {

namespace {

constexpr const char* trained_weights_operation = "aloni::nn::read_trained_weights";

/// Learned values and running statistics; the state of the training stays unread.
template <class T, class Exec>
void load_checkpoint(const checkpoint::Checkpoint& saved, const Queue<Exec>& queue, const NetworkDescription& network,
                     const Parameters<T, Exec>& parameters) {
  checkpoint::Loader loader(saved);
  checkpoint::archive_weights(loader, queue, network, parameters);
  std::string average = "none";
  loader.value("average", average);
  if (average != "kept") return;
  std::vector<typename Parameters<T, Exec>::Flat> values;
  for (const auto& segment : parameters.segments()) values.push_back(segment.values);
  checkpoint::archive_flats(loader, queue, parameters, values, ".average");
}

}  // namespace

template <class T, class Exec>
void read_trained_weights(const comm::Communicator& comm, const Queue<Exec>& queue, const NetworkDescription& network,
                          const Parameters<T, Exec>& parameters, const TrainedWeights& weights) {
  if (weights.file.empty() == weights.checkpoints.empty()) {
    throw InvalidArgument(trained_weights_operation, "weights",
                          weights.file.empty() ? "none" : "a file and a folder of checkpoints",
                          "a file of weights, or a folder of checkpoints");
  }
  if (!weights.file.empty()) {
    comm::collectively(comm, trained_weights_operation,
                       [&] { read_weights(queue, network, parameters, weights.file); });
  } else {
    const auto found = checkpoint::find_newest(comm, io::real_file_system(), weights.checkpoints);
    if (!found.checkpoint) {
      throw FileError(trained_weights_operation, weights.checkpoints,
                      found.refused.empty() ? "has no checkpoint" : found.refused.front().reason,
                      "a folder with a whole checkpoint" + did_you_mean_file(weights.checkpoints));
    }
    comm::collectively(comm, trained_weights_operation,
                       [&] { load_checkpoint(*found.checkpoint, queue, network, parameters); });
  }
  parameters.values_changed();
}

#define INSTANTIATE(T, Exec)                                                                         \
  template void read_trained_weights<T, Exec>(const comm::Communicator&, const Queue<Exec>&,         \
                                              const NetworkDescription&, const Parameters<T, Exec>&, \
                                              const TrainedWeights&);
ALONI_INSTANTIATE_PARAMETERS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
