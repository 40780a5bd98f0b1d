#pragma once
// cuDNN called directly on dense tensors: the limit for the local convolution of a device. Of all plans that cuDNN has
// for the pass, in float without TF32, the one that is fastest on this device. CUDA builds with cuDNN only.
#include "conv/local_run.hpp"

#include <aloni/nn/local/convolution_problem.hpp>

#include <memory>
#include <string>

namespace aloni::bench {

class CudnnLimit {
 public:
  /// Runs and times every plan. Throws std::runtime_error if cuDNN has none, or if the result is wrong.
  CudnnLimit(const nn::local::ConvolutionProblem& problem, nn::local::ConvolutionPass pass);
  ~CudnnLimit();

  /// One pass; returns when it is complete.
  void run();
  /// Number of the engine, and of the plans that were tried.
  std::string implementation() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace aloni::bench
