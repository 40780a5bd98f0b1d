#pragma once
// oneDNN itself on a whole layer, in one process with several threads: the limit that a layer split among as many ranks is compared with.
// Channels-last activations; weights in oneDNN's own order, reordered beforehand; its direct algorithm with whatever implementation it
// takes, its deconvolution for transposed layers. No Kokkos, no MPI.
#include "conv/layers.hpp"

#include <memory>
#include <string>

namespace aloni::bench {

class OnednnLimit {
 public:
  /// Runs once and checks what comes out: throws std::runtime_error when it is wrong, dnnl::error when oneDNN can't.
  OnednnLimit(const Layer& layer, nn::local::ConvolutionPass pass, int threads);
  ~OnednnLimit();

  void run();
  std::string implementation() const;

 private:
  struct Primitive;
  std::unique_ptr<Primitive> primitive_;
};

}  // namespace aloni::bench
