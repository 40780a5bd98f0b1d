#pragma once
// The arguments that all ranks pass alike, as values for comm::check_equal. Private to nn.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/core/machine.hpp>
#include <aloni/core/measured_implementations.hpp>
#include <aloni/nn/data/dataset.hpp>
#include <aloni/nn/data/labelled_images.hpp>
#include <aloni/nn/learning_rate.hpp>
#include <aloni/nn/local/element_type.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/optimiser.hpp>
#include <aloni/nn/plan/work.hpp>
#include <aloni/nn/strategy.hpp>

#include <optional>
#include <string>

namespace aloni::nn::detail {

/// "float", "double", "bfloat16", "float16".
template <class T>
std::string element_name() {
  return name(element_type<T>);
}

/// The input, each layer and the loss.
void add_to(comm::ReplicatedValues& values, const NetworkDescription& network);
/// Each rule. The source and its lines are for error texts only and may differ.
void add_to(comm::ReplicatedValues& values, const Strategy& strategy);
/// The kind and all members.
void add_to(comm::ReplicatedValues& values, const Optimiser& optimiser);
/// Each option.
void add_to(comm::ReplicatedValues& values, const UpdateOptions& options);
void add_to(comm::ReplicatedValues& values, const LearningRate& rate);
void add_to(comm::ReplicatedValues& values, const EarlyStop& stop);
/// The number of measured problems, and a checksum of all times.
void add_to(comm::ReplicatedValues& values, const std::string& name, const MeasuredImplementations& measured);
/// Each number; -1 for no value.
void add_to(comm::ReplicatedValues& values, const std::string& name, const std::optional<WorkPerCopiedByte>& work);
/// The extents, the number of images, the normalisation, and checksums of labels and pixels. `set`: "training set".
void add_to(comm::ReplicatedValues& values, const std::string& set, const LabelledImages& images);
/// Number and fingerprint of the samples, kind and fingerprint of the targets, the normalisation. Throws FileError.
void add_to(comm::ReplicatedValues& values, const std::string& name, const Dataset& set);

}  // namespace aloni::nn::detail
