#pragma once
// Convolution through oneDNN on dense host memory: the only file pair that knows oneDNN. No Kokkos, so that the C++ compiler builds
// it in every configuration.
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/filter_orders.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace aloni::nn::local::detail {

/// Elements of x, y and their gradients. With bfloat16 the weights are rounded on the way to oneDNN's order; sums, bias and the gradients of weights
/// and bias stay float.
enum class OnednnActivations : std::uint8_t { float32, bfloat16 };

/// What oneDNN is given: the part of a problem's input that is read at all, and zeros around it.
struct OnednnProblem {
  Index samples = 0, channels = 0, filters = 0, groups = 1;
  std::array<Index, 3> first{0, 0, 0};  ///< where this part starts in the problem's input
  std::array<Index, 3> input{0, 0, 0}, output{0, 0, 0};
  std::array<Index, 3> kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1};
  std::array<Index, 3> padding_before{0, 0, 0}, padding_after{0, 0, 0};  ///< ≥ 0
};

OnednnProblem onednn_problem(const ConvolutionProblem& problem);

/// Why oneDNN must not be asked for this pass; none when it may.
std::optional<std::string> onednn_unsupported_reason(const ConvolutionProblem& problem, ConvolutionPass pass,
                                                     OnednnActivations activations);

/// Whether oneDNN has kernels for bfloat16 on this processor.
bool onednn_has_bfloat16();

/// Weights in oneDNN's orders, for the convolutions that are given it.
std::shared_ptr<FilterOrders> make_onednn_filter_orders();

/// Primitives, weights in oneDNN's order and scratch memory, made once. Arguments of calls are dense channels-last arrays of
/// the problem's shape, those of activations of the type given; calls return when the work is done.
class OnednnConvolution {
 public:
  /// `orders`: null, or made above; null gives it some of its own.
  OnednnConvolution(const OnednnProblem& problem, ConvolutionPasses passes, OnednnActivations activations,
                    const std::shared_ptr<FilterOrders>& orders);
  ~OnednnConvolution();

  /// bias: filters, not null. Weights at the place and of the version, unless it is 0, that the order holds already are not reordered again.
  void forward(const void* x, const float* w, const float* bias, void* y, std::uint64_t version = 0);
  void backward_data(const void* dy, const float* w, void* dx, std::uint64_t version = 0);
  /// db: filters, not null.
  void backward_filter(const void* x, const void* dy, float* dw, float* db);

  std::string implementation(ConvolutionPass pass) const;
  /// Without those of the `orders` given.
  std::size_t workspace_bytes() const;

 private:
  struct Primitives;
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace aloni::nn::local::detail
