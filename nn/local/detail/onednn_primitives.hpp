#pragma once
// Convolution through oneDNN on dense host memory. Only this header's .cpp includes oneDNN. It does not include Kokkos,
// so the C++ compiler builds it in every configuration.
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/detail/onednn_problem.hpp>
#include <aloni/nn/local/filter_orders.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace aloni::nn::local::detail {

/// Why this pass must not run through oneDNN; none if it may.
std::optional<std::string> onednn_unsupported_reason(const ConvolutionProblem& problem, ConvolutionPass pass,
                                                     OnednnActivations activations);

/// Whether oneDNN has kernels for bfloat16 on this processor.
bool onednn_has_bfloat16();

/// c += aᵀ·b for row-major matrices. a: k × m, b: k × n, c: m × n. Strides: between rows. On the calling thread if it
/// is one of several in a parallel region, otherwise on the threads of OpenMP.
void onednn_add_product(Index m, Index n, Index k, const float* a, Index a_stride, const float* b, Index b_stride,
                        float* c, Index c_stride);

/// A store of weights in oneDNN's orders, shared by the convolutions that get it.
std::shared_ptr<FilterOrders> make_onednn_filter_orders(const std::shared_ptr<Scratch>& scratch);

/// Primitives, weights in oneDNN's order and scratch memory, made once. Arguments of calls are dense channels-last
/// arrays with the shape of the problem and the given type of activations. Calls return when the work is done.
class OnednnConvolution {
 public:
  /// Calls the function for each number from 0 to the given one, on the threads of the caller, and returns behind all.
  using ShareOut = std::function<void(Index, const std::function<void(Index)>&)>;

  /// `orders`: null, or from make_onednn_filter_orders(). Null: the object has a store of its own.
  OnednnConvolution(const PaddedProblem& problem, ConvolutionPasses passes, OnednnActivations activations,
                    const std::shared_ptr<FilterOrders>& orders, ShareOut share_out);
  ~OnednnConvolution();

  /// bias: `filters` elements, not null. Weights with the address and version of the last reordering are not reordered
  /// again; version 0 disables caching.
  void forward(const void* x, const float* w, const float* bias, void* y, std::uint64_t version = 0);
  void backward_data(const void* dy, const float* w, void* dx, std::uint64_t version = 0);
  /// db: `filters` elements, not null.
  void backward_filter(const void* x, const void* dy, float* dw, float* db);

  std::string implementation(ConvolutionPass pass) const;
  /// Bytes that calls use from the start of the scratch memory of `orders`; a multiple of Scratch::alignment.
  std::size_t scratch_bytes() const;
  /// Without the bytes of the given `orders` and of their scratch memory.
  std::size_t workspace_bytes() const;

 private:
  struct Primitives;
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace aloni::nn::local::detail
