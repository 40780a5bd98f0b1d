#pragma once
// The local kernels of one convolution on one rank, and the weights by which they multiply.
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/work.hpp>
#include <aloni/views/local_view.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace aloni::nn::detail {

/// The weights of one part, of type T: in place in the layer's weights, or a dense copy.
template <class T, class Exec>
struct PartWeights {
  using View = views::LocalView<T, typename Exec::memory_space>;
  ConvolutionPart part;
  View w, dw = {};
  View original_w = {}, original_dw = {};  ///< empty unless copied
  std::shared_ptr<Kokkos::View<T*, typename Exec::memory_space>> memory = {}, gradient_memory = {};
  bool copied() const { return memory != nullptr; }
};

/// Local kernels by problem, implementation, pass, filters and stream; equal ones are shared. Parts with equal extents
/// have separate kernels, because a kernel may cache its filters. Kernels with the same filters share that cache, if
/// they are of one stream. Those of two streams may run at the same time, so they share no memory.
template <class T, class Exec>
class ConvolutionKernels {
 public:
  using View = views::LocalView<T, typename Exec::memory_space>;
  using Local = std::shared_ptr<local::LocalConvolution<T, Exec>>;

  /// By stream: shared by all kernels of a stream, also by those of other objects. The caller counts the bytes.
  using Scratches = std::vector<std::shared_ptr<local::Scratch>>;

  ConvolutionKernels(const Exec& exec, Scratches scratches) : exec_(exec), scratches_(std::move(scratches)) {}

  /// `input`, `output`: views that the kernel will get for these sides of the problem. `filters`: address of the
  /// filters that it will get, null if they are its result. `stream`: on which it will run; it has a scratch memory.
  Local of(const ConvolutionCall& call, local::ConvolutionPass pass, const View& input, const View& output,
           const void* filters, int stream, bool relu = false) {
    const local::ConvolutionPasses wanted{.forward = pass == local::ConvolutionPass::forward,
                                          .backward_data = pass == local::ConvolutionPass::backward_data,
                                          .backward_filter = pass == local::ConvolutionPass::backward_filter,
                                          .relu = relu,
                                          .dense_input = views::is_dense(input),
                                          .dense_output = views::is_dense(output),
                                          .tf32 = call.tf32,
                                          .engine = call.engine};
    for (const Cached& known : all_)
      if (known.filters == filters && known.stream == stream && known.backend == call.backend &&
          known.kernel->passes() == wanted && known.kernel->problem() == call.problem)
        return known.kernel;
    std::shared_ptr<local::FilterOrders>& orders = orders_[{filters, stream}];
    if (!orders) orders = local::make_filter_orders(scratches_.at(static_cast<std::size_t>(stream)));
    all_.push_back({local::make_local_convolution<T, Exec>(call.backend, call.problem, exec_, wanted, orders),
                    call.backend, filters, stream});
    return all_.back().kernel;
  }
  void set_filter_version(std::uint64_t version) {
    for (const Cached& known : all_) known.kernel->set_filter_version(version);
  }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Cached& known : all_) sum += known.kernel->workspace_bytes();
    for (const auto& [place, orders] : orders_) sum += orders->bytes();
    return sum;
  }

 private:
  struct Cached {
    Local kernel;
    local::ConvolutionBackend backend;
    const void* filters;
    int stream;
  };

  Exec exec_;
  Scratches scratches_;
  std::vector<Cached> all_;
  std::map<std::pair<const void*, int>, std::shared_ptr<local::FilterOrders>> orders_;  ///< by filters and stream
};

}  // namespace aloni::nn::detail
