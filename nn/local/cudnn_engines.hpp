#pragma once
// The engines of cuDNN that can run a convolution on the device of this process, to be measured
// (model/measure_convolutions.hpp).
//
//   const ConvolutionEngines engines;
//   for (const ConvolutionEngine& e : engines.of(convolution, Index{1} << 30)) e.engine, e.workspace_bytes;
#include <aloni/nn/local/convolution_times.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace aloni::nn::local {

namespace detail {
class CudnnDevice;
class CudnnHandle;
}  // namespace detail

struct ConvolutionEngine {
  std::int64_t engine = 0;  ///< cuDNN's number of it, ConvolutionImplementation::engine
  Index workspace_bytes = 0;

  friend bool operator==(const ConvolutionEngine&, const ConvolutionEngine&) = default;
};

class ConvolutionEngines {
 public:
  /// Throws Unsupported without cuDNN, and Error without a device.
  ConvolutionEngines();
  /// In cuDNN's order of expected speed, each engine once, for tensors without gaps. Without engines whose products
  /// have fewer bits than the type: the convolution does not use them either. Throws Error if cuDNN refuses a
  /// description.
  std::vector<ConvolutionEngine> of(const ConvolutionCase& convolution, Index most_workspace_bytes) const;

 private:
  std::shared_ptr<detail::CudnnHandle> handle_;
};

namespace detail {

/// The same for any device that is described.
std::vector<ConvolutionEngine> engines_of(const ConvolutionCase& convolution, const CudnnDevice& device,
                                          Index most_workspace_bytes);

}  // namespace detail

}  // namespace aloni::nn::local
