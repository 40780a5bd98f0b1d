#pragma once
// One pass of a layer split over all ranks, or a step of it. The constructor runs and checks it once; run() repeats it.
#include "conv/layers.hpp"
#include "conv/local_run.hpp"

#include <aloni/nn/distributed_convolution.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace aloni::bench {

/// A network with this layer only.
nn::NetworkDescription network_of(const Layer& layer);

/// Work of a run. `step` is forward and both backward passes; `computation` is the step without its exchanges,
/// `communication` is the exchanges of the step alone.
enum class SplitWork { forward, backward_data, backward_filter, step, computation, communication };

class SplitRun {
 public:
  /// Runs the work once. `split` is as in a strategy; a split of samples gives the layer one sample per block. The
  /// filters never change. backward_filter computes each rank's own contribution. The run omits the all-reduce of
  /// these contributions, because its bytes do not depend on the number of pixels. Collective. Throws
  /// std::runtime_error if a result is wrong; computation and communication alone are not checked.
  SplitRun(const comm::Communicator& world, const Layer& layer, SplitWork work, const nn::LayerSplit& split);

  /// One run; returns when it is complete. Collective.
  void run();
  /// Floating-point operations of one pass, all ranks together.
  double flops() const { return nn::local::flops(layer_.problem); }
  /// Bytes that this rank sends in one run.
  std::uint64_t sent_bytes() const { return sent_bytes_; }
  /// Memory of this rank in bytes, without activations and filters.
  std::size_t workspace_bytes() const { return convolution_->workspace_bytes(); }

 private:
  using Tensor = nn::Tensor<float, Exec::memory_space>;

  /// Fills the ghosts of x. backward_filter needs them; in a network the forward pass has filled them.
  void exchange_input();
  Tensor make(const std::string& label, const views::Box& owned, const views::Box& box, unsigned seed,
              const views::Extents& whole) const;
  void check(nn::local::ConvolutionPass pass, const Tensor& result, const views::Distribution& distribution) const;

  comm::Communicator world_;
  Queue<Exec> queue_;
  Layer layer_;
  nn::LayerPlan plan_;
  nn::ConvolutionTensors<float, Exec> tensors_;
  Tensor w_, dw_;
  std::unique_ptr<nn::DistributedConvolution<float>> convolution_;
  nn::Step<Exec> step_;  ///< the timed work
  Stopwatch stopwatch_;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace aloni::bench
