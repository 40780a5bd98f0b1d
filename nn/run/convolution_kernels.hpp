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

/// Local kernels by problem, implementation, pass and filters; equal ones are shared. Parts with equal extents have
/// separate kernels, because a kernel may cache its filters. Kernels with the same filters share that cache.
template <class T, class Exec>
class ConvolutionKernels {
 public:
  using View = views::LocalView<T, typename Exec::memory_space>;
  using Local = std::shared_ptr<local::LocalConvolution<T, Exec>>;

  /// `scratch`: shared by all kernels of the queue. The caller counts its bytes.
  ConvolutionKernels(const Exec& exec, std::shared_ptr<local::Scratch> scratch)
      : exec_(exec), scratch_(std::move(scratch)) {}

  /// `input`, `output`: views that the kernel will get for these sides of the problem. `filters`: address of the
  /// filters that it will get, null if they are its result.
  Local of(const ConvolutionCall& call, local::ConvolutionPass pass, const View& input, const View& output,
           const void* filters, bool relu = false) {
    const local::ConvolutionPasses wanted{.forward = pass == local::ConvolutionPass::forward,
                                          .backward_data = pass == local::ConvolutionPass::backward_data,
                                          .backward_filter = pass == local::ConvolutionPass::backward_filter,
                                          .relu = relu,
                                          .dense_input = views::is_dense(input),
                                          .dense_output = views::is_dense(output),
                                          .engine = call.engine};
    for (const Cached& known : all_)
      if (known.filters == filters && known.backend == call.backend && known.kernel->passes() == wanted &&
          known.kernel->problem() == call.problem)
        return known.kernel;
    std::shared_ptr<local::FilterOrders>& orders = orders_[filters];
    if (!orders) orders = local::make_filter_orders(scratch_);
    all_.push_back({local::make_local_convolution<T, Exec>(call.backend, call.problem, exec_, wanted, orders),
                    call.backend, filters});
    return all_.back().kernel;
  }
  void set_filter_version(std::uint64_t version) {
    for (const Cached& known : all_) known.kernel->set_filter_version(version);
  }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Cached& known : all_) sum += known.kernel->workspace_bytes();
    for (const auto& [filters, orders] : orders_) sum += orders->bytes();
    return sum;
  }

 private:
  struct Cached {
    Local kernel;
    local::ConvolutionBackend backend;
    const void* filters;
  };

  Exec exec_;
  std::shared_ptr<local::Scratch> scratch_;
  std::vector<Cached> all_;
  std::map<const void*, std::shared_ptr<local::FilterOrders>> orders_;
};

}  // namespace aloni::nn::detail
