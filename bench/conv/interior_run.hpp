#pragma once
// The forward pass of one rank of a split layer, without messages: in one call, or the interior and then its border, as
// the step plan of that rank has them. The ratio of the times is the price of computing the interior first. The ranks
// of the split need not exist. The constructor runs and checks it once; run() repeats it.
#include "conv/layers.hpp"
#include "conv/local_run.hpp"

#include <aloni/nn/layer_split.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/plan/work.hpp>

#include <memory>
#include <vector>

namespace aloni::bench {

class InteriorRun {
 public:
  /// `split`: in space only. `interior_first`: interior and border; otherwise one call. Runs the pass once. Throws
  /// std::runtime_error if the result is wrong, or if the plan has no interior.
  InteriorRun(const Layer& layer, const nn::LayerSplit& split, int rank, bool interior_first);

  /// One pass; returns when it is complete.
  void run();
  /// Floating-point operations of one pass.
  double flops() const { return flops_; }
  int calls() const { return static_cast<int>(calls_.size()); }

 private:
  InteriorRun(const Layer& layer, const nn::ConvolutionCall& whole, const std::vector<nn::ConvolutionCall>& calls);

  struct Call {
    std::unique_ptr<nn::local::LocalConvolution<float>> convolution;
    nn::local::Tensor<float, Exec> x, y;
  };

  Queue<Exec> queue_;
  double flops_ = 0;
  Field<float> x_, y_, w_;
  std::vector<Call> calls_;
};

}  // namespace aloni::bench
