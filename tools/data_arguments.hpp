#pragma once
// The options of a training that choose the data and the random changes of training samples.
#include <aloni/core/comm/agreement.hpp>
#include <aloni/nn/data/dataset.hpp>
#include <aloni/nn/models.hpp>
#include <aloni/nn/trainer.hpp>

#include <string>

namespace CLI {
class App;
}

namespace aloni::tools {

class DataArguments {
 public:
  /// Adds the options to `command`. @pre this object outlives `command`
  void add_options(CLI::App& command);
  /// Throws UsageError for a value out of range.
  void check() const;
  /// The options that all ranks must pass alike. Of the folder, only that it is one.
  void add_to(comm::ReplicatedValues& values) const;

  const std::string& name() const { return data_; }  ///< --data
  bool is_synthetic() const { return data_ == "synthetic"; }
  /// The sets of the folder; empty for synthetic data. Not collective. Throws as nn::open_data_sets.
  nn::TrainAndTestSets open() const;
  /// Input and classes of a model for the sets, as far as the sets determine them.
  static nn::ModelOptions model_options(const nn::TrainAndTestSets& sets);
  /// Sets the random changes. Without --shift, only samples with one label for each sample are shifted.
  void set_augmentation(const nn::TrainAndTestSets& sets, nn::TrainOptions& options) const;
  /// "6000 training and 1000 test images of 32x32x3 from data". `sample`: extents as text.
  std::string describe(const nn::TrainAndTestSets& sets, const std::string& sample) const;

 private:
  CLI::App* command_ = nullptr;
  std::string data_;
  // With the linear schedule, a shift of 1 adds a percentage point of accuracy after five epochs of the MNIST subset.
  int shift_ = 1;
  bool flip_ = false;
  double brightness_ = 0, contrast_ = 0;
};

}  // namespace aloni::tools
