#pragma once
// What computes one region of a convolution's result on one rank: a call of a local kernel for each part of the channels, and for each sample
// where those of several don't lie dense.
#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/local/bias.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace aloni::nn::detail {

/// The weights of one part: those of the layer where they lie, or a dense copy.
template <class T, class Exec>
struct PartWeights {
  using View = views::LocalView<T, typename Exec::memory_space>;
  ConvolutionPart part;
  View w, dw = {};
  View original_w = {}, original_dw = {};  ///< empty unless copied
  std::shared_ptr<Kokkos::View<T*, typename Exec::memory_space>> memory = {}, gradient_memory = {};
  bool copied() const { return memory != nullptr; }
};

/// Local kernels by problem and pass: equal ones are shared.
template <class T, class Exec>
class ConvolutionKernels {
 public:
  using View = views::LocalView<T, typename Exec::memory_space>;
  using Local = std::shared_ptr<local::LocalConvolution<T, Exec>>;

  ConvolutionKernels(const Exec& exec, local::ConvolutionBackend backend) : exec_(exec), backend_(backend) {}

  /// `input` and `output`: the views that the kernel will be given for these sides of the problem.
  Local of(const local::ConvolutionProblem& problem, local::ConvolutionPass pass, const View& input, const View& output,
           bool relu = false) {
    const local::ConvolutionPasses wanted{.forward = pass == local::ConvolutionPass::forward,
                                          .backward_data = pass == local::ConvolutionPass::backward_data,
                                          .backward_filter = pass == local::ConvolutionPass::backward_filter,
                                          .relu = relu,
                                          .dense_input = views::is_dense(input),
                                          .dense_output = views::is_dense(output)};
    for (const Local& known : all_)
      if (known->passes() == wanted && known->problem() == problem) return known;
    all_.push_back(local::make_local_convolution<T, Exec>(backend_, problem, exec_, wanted));
    return all_.back();
  }
  void filters_are(std::uint64_t version) {
    for (const Local& known : all_) known->filters_are(version);
  }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const Local& known : all_) sum += known->workspace_bytes();
    return sum;
  }

 private:
  Exec exec_;
  local::ConvolutionBackend backend_;
  std::vector<Local> all_;
};

/// Calls of kernels that compute one region.
template <class T, class Exec>
class ConvolutionRegion {
 public:
  using View = views::LocalView<T, typename Exec::memory_space>;

  /// `box`: all channels that the rank works on.
  ConvolutionRegion(const Direction& direction, int rank, const views::Box& box,
                    const Tensor<T, typename Exec::memory_space>& source,
                    const Tensor<T, typename Exec::memory_space>& target,
                    const std::vector<PartWeights<T, Exec>>& weights,
                    const Kokkos::View<T*, typename Exec::memory_space>& bias, ConvolutionKernels<T, Exec>& kernels,
                    bool relu = false)
      : box_(box), relu_(relu) {
    for (const PartWeights<T, Exec>& w : weights) {
      const views::Box to = with_channels(box, direction.target_channels(w.part));
      if (to.empty()) continue;
      const views::Box from =
          with_channels(source_of(direction, rank, box, source.box), direction.source_channels(w.part));
      Kokkos::View<T*, typename Exec::memory_space> part_bias;
      if (bias.extent(0) > 0)
        part_bias = Kokkos::subview(bias, Kokkos::make_pair(w.part.filters.lo, w.part.filters.hi));
      const bool whole =
          (views::is_dense(source.part(intersect(from, source.box))) && views::is_dense(target.part(to))) ||
          to.extent(views::Dim::sample) == 1;
      const Index step = whole ? to.extent(views::Dim::sample) : 1;
      for (Index n = to.lower(views::Dim::sample); n < to.upper(views::Dim::sample); n += step) {
        const views::Box y = with_range(to, views::Dim::sample, n, n + step);
        if (from.empty()) {  // where a stride jumps over all
          calls_.push_back({nullptr, {}, w.w, part_bias, target.part(y)});
          continue;
        }
        const views::Box x = intersect(with_range(from, views::Dim::sample, n, n + step), source.box);
        const auto problem = problem_of(direction.plan, w.part, direction.backward ? y : x, direction.backward ? x : y);
        const View in = source.part(x), out = target.part(y);
        auto kernel = direction.gathers() ? kernels.of(problem, local::ConvolutionPass::forward, in, out, relu)
                                          : kernels.of(problem, local::ConvolutionPass::backward_data, out, in);
        calls_.push_back({std::move(kernel), in, w.w, part_bias, out});
      }
      read_ = hull(read_, intersect(from, source.box));
    }
    gathers_ = direction.gathers();
  }

  const views::Box& box() const { return box_; }
  /// Of the source.
  const views::Box& read() const { return read_; }

  void run(const Exec& exec) const {
    for (const Call& c : calls_) {
      if (!c.local) {
        local::fill<T, Exec>(exec, T(0), c.to);
        if (c.bias.extent(0) > 0) local::add_bias<T, Exec>(exec, c.bias, c.to);
        if (relu_) local::relu_forward<T, Exec>(exec, c.to, c.to);
      } else if (gathers_) {
        c.local->forward(exec, c.from, c.w, c.bias, c.to);
      } else {
        c.local->backward_data(exec, c.from, c.w, c.to);
        if (c.bias.extent(0) > 0) local::add_bias<T, Exec>(exec, c.bias, c.to);
      }
    }
  }

 private:
  /// What a region needs; where it isn't cut, all that there is: parts of memory would have to be packed.
  static views::Box source_of(const Direction& direction, int rank, const views::Box& box, const views::Box& memory) {
    views::Box needed = direction.needed_for(box, rank);
    if (needed.empty()) return needed;
    const views::Box work = direction.work(rank);
    for (const views::Dim d : views::spatial_dims)
      if (box.extent(d) == work.extent(d)) needed.set(d, memory.lower(d), memory.upper(d));
    return needed;
  }

  struct Call {
    std::shared_ptr<local::LocalConvolution<T, Exec>> local;
    View from, w;
    Kokkos::View<T*, typename Exec::memory_space> bias;
    View to;
  };
  views::Box box_, read_;
  bool relu_;
  std::vector<Call> calls_;
  bool gathers_ = true;
};

}  // namespace aloni::nn::detail
