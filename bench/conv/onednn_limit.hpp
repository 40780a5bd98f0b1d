#pragma once
// oneDNN alone on a whole layer, in one process with several threads, without Kokkos and MPI. It is the limit for a
// layer that is split over as many ranks. Activations are channels-last. Weights are in oneDNN's own order, reordered
// before the clock starts. oneDNN chooses the implementation of its direct algorithm; transposed layers use its
// deconvolution.
#include "conv/layers.hpp"

#include <memory>
#include <string>

namespace aloni::bench {

class OnednnLimit {
 public:
  /// Runs the pass once with `threads` threads. Throws std::runtime_error if the result is wrong, dnnl::error if oneDNN
  /// does not support the layer.
  OnednnLimit(const Layer& layer, nn::local::ConvolutionPass pass, int threads);
  ~OnednnLimit();

  /// One pass; returns when it is complete.
  void run();
  /// oneDNN's name of the implementation.
  std::string implementation() const;

 private:
  struct Primitive;
  std::unique_ptr<Primitive> primitive_;
};

}  // namespace aloni::bench
