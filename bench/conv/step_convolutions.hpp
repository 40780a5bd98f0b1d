#pragma once
// The convolutions of a training step, without all else that a step has between them.
#include "conv/local_run.hpp"

#include <aloni/core/comm/communicator.hpp>
#include <aloni/views/extents.hpp>

#include <memory>
#include <string>
#include <vector>

namespace aloni::bench {

/// A training step on two ranks.
struct TrainingStep {
  std::string name;  ///< made of --model, --input, --batch and --strategy of aloni train
  std::string model;
  views::Extents input;
  Index samples = 1;  ///< of both ranks together
  std::string split;
};

/// The steps whose times docs/performance.md compares with their limits.
std::vector<TrainingStep> training_steps();

/// The convolutions that this rank computes in one phase of the step, one after another. Each has dense data of its
/// own, so no data is in the caches because of the layer before. None is divided into interior and border.
class StepConvolutions {
 public:
  /// `phase`: forward pass, gradients of inputs or gradients of filters.
  /// Runs each convolution once. Throws std::runtime_error if a result is wrong, and InvalidArgument unless `world` has
  /// two ranks.
  StepConvolutions(const comm::Communicator& world, const TrainingStep& step, nn::local::ConvolutionPass phase);

  /// Returns when all are complete.
  void run();
  double flops() const { return flops_; }

 private:
  std::vector<std::unique_ptr<LocalRun<>>> convolutions_;
  double flops_ = 0;
};

}  // namespace aloni::bench
