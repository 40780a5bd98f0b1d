#include <aloni/nn/data/data_sets.hpp>
#include <aloni/tools/data_arguments.hpp>
#include <aloni/tools/option.hpp>
#include <aloni/tools/together.hpp>

#include <fmt/format.h>

#include <utility>

namespace aloni::tools {

void DataArguments::add_options(CLI::App& command) {
  command_ = &command;
  add_option(command, "--data", data_,
             "Folder with data of MNIST (train-images-idx3-ubyte), of CIFAR-10 (data_batch_1.bin), or own arrays. Own "
             "arrays are images with labels, masks or targets, as .npy or .json, or in one file .h5 (docs/data.md). "
             "`synthetic`: made-up data for any network, without a test set, to measure time and memory; needs --steps",
             "DIR|synthetic")
      ->required();
  add_option(command, "--shift", shift_,
             "Largest random shift of training samples, pixels; new in each epoch; 0: none. Default without labels of "
             "samples: 0",
             "N");
  command.add_flag("--flip", flip_, "Mirror half of the training samples, drawn anew in each epoch");
  add_option(command, "--brightness", brightness_, "Largest random change of brightness, from 0 to 1", "X");
  add_option(command, "--contrast", contrast_, "Largest random change of contrast, from 0 to 1", "X");
}

void DataArguments::check() const {
  if (data_.empty()) refuse("--data", "\"\"", "the path of a folder, or synthetic");
  if (shift_ < 0 || shift_ > 1000) refuse("--shift", std::to_string(shift_), "from 0 to 1000");
  for (const auto& [option, value] : {std::pair("--brightness", brightness_), std::pair("--contrast", contrast_)})
    if (!(value >= 0 && value <= 1)) refuse(option, fmt::format("{}", value), "from 0 to 1");
}

void DataArguments::add_to(comm::ReplicatedValues& values) const {
  values.add("--data", std::string(is_synthetic() ? "synthetic" : "a folder"));
  values.add("--shift", shift_).add("--flip", flip_).add("--brightness", brightness_).add("--contrast", contrast_);
}

nn::TrainAndTestSets DataArguments::open() const {
  return is_synthetic() ? nn::TrainAndTestSets{} : nn::open_data_sets(data_);
}

nn::ModelOptions DataArguments::model_options(const nn::TrainAndTestSets& sets) {
  const nn::Dataset& set = sets.train;
  nn::ModelOptions options{.input = set.inputs->extents()};
  if (set.target_kind == nn::TargetKind::sample_labels) options.classes = set.classes;
  if (set.target_kind == nn::TargetKind::elements) options.classes = set.targets->extents()[views::Dim::channel];
  return options;
}

void DataArguments::set_augmentation(const nn::TrainAndTestSets& sets, nn::TrainOptions& options) const {
  const bool shifts = command_->count("--shift") > 0 || sets.train.target_kind == nn::TargetKind::sample_labels;
  options.shift = shifts ? shift_ : 0;
  options.flip = flip_;
  options.brightness = brightness_;
  options.contrast = contrast_;
}

std::string DataArguments::describe(const nn::TrainAndTestSets& sets, const std::string& sample) const {
  const std::string test = sets.test ? fmt::format("{} test", sets.test->size()) : "no test";
  return fmt::format("{} training and {} images of {} from {}", sets.train.size(), test, sample, data_);
}

}  // namespace aloni::tools
