#pragma once
// A data set: inputs, and the targets with which the loss compares the output of a network.
//
//   const Dataset set{.inputs = open_npy("images.npy"), .targets = open_npy("masks.npy"),
//                     .target_kind = TargetKind::pixel_labels};
//   TrainReport report = train<float>(comm, network, strategy, set, std::nullopt, {.batch = 8});
//
// Nothing is read before it is needed, and then only the box of a rank. nn/data/data_sets.hpp opens a folder.
#include <aloni/nn/data/sample_array.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace aloni::nn {

struct LabelledImages;

/// sample_labels: one integer for each sample. pixel_labels: one integer for each pixel, in arrays with one channel.
/// elements: the wanted value of each element of the output.
enum class TargetKind { none, sample_labels, pixel_labels, elements };
/// "none", "sample_labels", …
const char* name(TargetKind kind);

/// value = (stored · scale - mean) / deviation, computed in double. `mean` and `deviation` have one element for all
/// channels, or one for each channel.
struct Normalisation {
  double scale = 1;
  std::vector<double> mean{0}, deviation{1};
};

struct Dataset {
  std::shared_ptr<const SampleArray> inputs;
  std::shared_ptr<const SampleArray> targets = nullptr;  ///< as many samples as inputs
  TargetKind target_kind = TargetKind::none;
  Index classes = 0;  ///< labels are below it; 0: unknown, the network decides
  Normalisation normalisation = {};

  Index size() const { return inputs ? inputs->size() : 0; }
};

struct TrainAndTestSets {
  Dataset train;
  std::optional<Dataset> test = {};
};

/// Throws InvalidArgument with `operation` for a set without inputs, targets without a kind or of another size, and
/// labels that are no integers. Also for several labels of a sample or a pixel, and a deviation that is not above 0.
void check(const Dataset& set, const std::string& operation);

/// Stored values of `type` in their usual range: bytes are multiplied by 1/255, all others stay.
Normalisation usual_normalisation(StoredType type);

/// The images as a data set, not copied. `images` outlives the result.
Dataset as_dataset(const LabelledImages& images);

}  // namespace aloni::nn
