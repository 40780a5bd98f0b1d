#pragma once
// A layer spread over all ranks: one pass of it, or a step, made, run once and checked, then run as often as one likes.
#include "conv/layers.hpp"
#include "conv/local_run.hpp"

#include <aloni/nn/distributed_convolution.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace aloni::bench {

/// What of a layer is run. The last three are forward and both backward passes: whole, without the exchanges, the exchanges alone.
enum class SplitWork { forward, backward_data, backward_filter, step, computation, communication };

class SplitRun {
 public:
  /// Collective. `split` as in a strategy; with blocks of samples the layer has as many samples. The gradient of the filters is that of each rank:
  /// their sum over ranks is left out, its bytes don't depend on the pixels. The filters stay what they are. Throws std::runtime_error when a
  /// result is wrong.
  SplitRun(const comm::Communicator& world, const Layer& layer, SplitWork work, const nn::LayerSplit& split);

  /// Collective. Ends with the work done.
  void run();
  /// Of all ranks together.
  double flops() const { return nn::local::flops(layer_.problem); }
  /// That this rank sends in one run.
  std::uint64_t sent_bytes() const { return sent_bytes_; }
  /// Of this rank, besides activations and filters.
  std::size_t workspace_bytes() const { return convolution_->workspace_bytes(); }

 private:
  using Tensor = nn::Tensor<float, Exec::memory_space>;

  /// The ghosts of x, which the gradient of the filters finds there: they came with the forward pass.
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
  nn::Step<Exec> step_;  ///< what is timed
  Stopwatch stopwatch_;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace aloni::bench
