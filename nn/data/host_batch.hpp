#pragma once
// The part of a mini-batch that a rank owns, in host memory: the result of reading, decoding and augmenting.
#include <aloni/nn/data/augmentation.hpp>
#include <aloni/nn/data/dataset.hpp>
#include <aloni/nn/network_description.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace aloni::nn {

/// Values are dense, channels last. Of labels and targets one is empty, as the loss says.
template <class T>
struct HostBatch {
  std::vector<T> input;     ///< of BatchPart::input
  std::vector<int> labels;  ///< of the samples, or of the pixels, of BatchPart::output
  std::vector<T> targets;   ///< of the elements of BatchPart::output
};

/// The boxes of a rank in a mini-batch, and the kind of targets of the loss. Samples count within the mini-batch.
struct BatchPart {
  views::Box input;   ///< Network::input_box()
  views::Box output;  ///< Network::output_box(); empty: no labels and no targets are read
  LossTargets targets = LossTargets::sample_labels;
  Index classes = 0;  ///< labels are below it: the number of logits
};

/// How samples change: with the seed and the epoch of the draws. No options: not at all.
struct AugmentationDraws {
  AugmentationOptions options = {};
  std::uint64_t seed = 0, epoch = 0;
};

/// Reads `part` of the mini-batch that consists of the samples `chosen` of the set. `batch` uses its memory again.
/// Not collective. Throws FileError as SampleArray::read, and for a label that is no class.
/// @pre check_fits() has accepted the set, and `chosen` has a sample for each sample of the mini-batch
template <class T>
void read_batch(const Dataset& set, const AugmentationDraws& draws, std::span<const Index> chosen,
                const BatchPart& part, HostBatch<T>& batch);

/// Throws InvalidArgument with `operation`, naming the extents or kinds that differ, if a network cannot learn from the
/// set. Either the samples have other extents than its input. Or the targets have another kind than its loss, other
/// extents than its output, or more classes than logits. Also throws for shifts of targets whose extents in space
/// differ from those of the input. `set_name`: "training set". @pre check(set)
void check_fits(const Dataset& set, const std::string& set_name, const NetworkDescription& network,
                const AugmentationOptions& augmentation, const std::string& operation);

}  // namespace aloni::nn
