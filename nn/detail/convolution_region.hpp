#pragma once
// Computes one region of a convolution's result on one rank, with one call of a local kernel per part of the
// channels. Where several samples are not dense together, there is one call per sample.
//
// A target whose type differs from the source's holds partial sums: float where activations are bfloat16. Kernels of
// floats then compute it from a copy of the source.
#include <aloni/nn/detail/convolution_direction.hpp>
#include <aloni/nn/local/bias.hpp>
#include <aloni/nn/local/convolution.hpp>
#include <aloni/nn/local/pointwise.hpp>
#include <aloni/nn/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <type_traits>
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

/// Local kernels by problem, pass and filters; equal ones are shared. Parts with equal extents have separate kernels,
/// because a kernel may cache its filters. Kernels with the same filters share that cache.
template <class T, class Exec>
class ConvolutionKernels {
 public:
  using View = views::LocalView<T, typename Exec::memory_space>;
  using Local = std::shared_ptr<local::LocalConvolution<T, Exec>>;

  ConvolutionKernels(const Exec& exec, local::ConvolutionBackend backend) : exec_(exec), backend_(backend) {}

  /// `input`, `output`: views that the kernel will get for these sides of the problem. `filters`: address of the
  /// filters that it will get, null if they are its result.
  Local of(const local::ConvolutionProblem& problem, local::ConvolutionPass pass, const View& input, const View& output,
           const void* filters, bool relu = false) {
    const local::ConvolutionPasses wanted{.forward = pass == local::ConvolutionPass::forward,
                                          .backward_data = pass == local::ConvolutionPass::backward_data,
                                          .backward_filter = pass == local::ConvolutionPass::backward_filter,
                                          .relu = relu,
                                          .dense_input = views::is_dense(input),
                                          .dense_output = views::is_dense(output)};
    for (const Cached& known : all_)
      if (known.filters == filters && known.kernel->passes() == wanted && known.kernel->problem() == problem)
        return known.kernel;
    std::shared_ptr<local::FilterOrders>& orders = orders_[filters];
    if (!orders) orders = local::make_filter_orders();
    all_.push_back({local::make_local_convolution<T, Exec>(backend_, problem, exec_, wanted, orders), filters});
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
    const void* filters;
  };

  Exec exec_;
  local::ConvolutionBackend backend_;
  std::vector<Cached> all_;
  std::map<const void*, std::shared_ptr<local::FilterOrders>> orders_;
};

/// The kernel calls that compute one region.
template <class T, class Exec, class Target = T>
class ConvolutionRegion {
 public:
  using Mem = typename Exec::memory_space;
  using View = views::LocalView<T, Mem>;
  using TargetView = views::LocalView<Target, Mem>;
  using Parameter = parameter_type_t<Target>;
  static constexpr bool copies_source = !std::is_same_v<T, Target>;

  /// `box`: includes all channels that the rank works on.
  ConvolutionRegion(const Direction& direction, int rank, const views::Box& box, const Tensor<T, Mem>& source,
                    const Tensor<Target, Mem>& target, const std::vector<PartWeights<Parameter, Exec>>& weights,
                    const Kokkos::View<Parameter*, Mem>& bias, ConvolutionKernels<Target, Exec>& kernels,
                    bool relu = false)
      : box_(box), relu_(relu) {
    for (const PartWeights<Parameter, Exec>& w : weights) {
      const views::Box to = with_channels(box, direction.target_channels(w.part));
      if (to.empty()) continue;
      const views::Box from =
          with_channels(source_of(direction, rank, box, source.box), direction.source_channels(w.part));
      Kokkos::View<Parameter*, Mem> part_bias;
      if (bias.extent(0) > 0)
        part_bias = Kokkos::subview(bias, Kokkos::make_pair(w.part.filters.lo, w.part.filters.hi));
      const bool whole =
          (views::is_dense(source.part(intersect(from, source.box))) && views::is_dense(target.part(to))) ||
          to.extent(views::Dim::sample) == 1;
      const Index step = whole ? to.extent(views::Dim::sample) : 1;
      for (Index n = to.lower(views::Dim::sample); n < to.upper(views::Dim::sample); n += step) {
        const views::Box y = with_range(to, views::Dim::sample, n, n + step);
        if (from.empty()) {  // the stride jumps over all inputs
          calls_.push_back({nullptr, {}, w.w, part_bias, target.part(y)});
          continue;
        }
        const views::Box x = intersect(with_range(from, views::Dim::sample, n, n + step), source.box);
        const auto problem = problem_of(direction.plan, w.part, direction.backward ? y : x, direction.backward ? x : y);
        const View in = source.part(x);
        const TargetView out = target.part(y), given = given_for(in);
        copied_ = std::max(copied_, copies_source ? in.size() : std::size_t{0});
        const void* const filters = w.w.data();
        auto kernel = direction.gathers()
                          ? kernels.of(problem, local::ConvolutionPass::forward, given, out, filters, relu)
                          : kernels.of(problem, local::ConvolutionPass::backward_data, out, given, filters);
        calls_.push_back({std::move(kernel), in, w.w, part_bias, out});
      }
      read_ = hull(read_, intersect(from, source.box));
    }
    gathers_ = direction.gathers();
  }

  const views::Box& box() const { return box_; }
  /// Box of the source.
  const views::Box& read() const { return read_; }

  /// Number of elements that use_copy() needs: 0 unless copies_source.
  std::size_t copied() const { return copied_; }
  /// Memory for the copy of the source. Several regions may use the same memory.
  void use_copy(const Kokkos::View<Target*, Mem>& memory) { copy_ = memory; }

  void run(const Exec& exec) const {
    for (const Call& c : calls_) {
      if (!c.local) {
        local::fill<Target, Exec>(exec, Target(0), c.to);
        if (c.bias.extent(0) > 0) local::add_bias<Target, Exec>(exec, c.bias, c.to);
        if (relu_) local::relu_forward<Target, Exec>(exec, c.to, c.to);
      } else if (gathers_) {
        c.local->forward(exec, given(exec, c.from), c.w, c.bias, c.to);
      } else {
        c.local->backward_data(exec, given(exec, c.from), c.w, c.to);
        if (c.bias.extent(0) > 0) local::add_bias<Target, Exec>(exec, c.bias, c.to);
      }
    }
  }

 private:
  /// The view that a kernel reads: of the source, or of its dense copy.
  TargetView given_for(const View& from) const {
    if constexpr (copies_source) {
      return local::dense_tensor<Target, Exec>(copy_.data(), from.extent(0), from.extent(1), from.extent(2),
                                               from.extent(3), from.extent(4));
    } else {
      return from;
    }
  }
  TargetView given(const Exec& exec, const View& from) const {
    const TargetView view = given_for(from);
    if constexpr (copies_source) local::convert<Target, T, Exec>(exec, from, view);
    return view;
  }

  /// Sources that a region needs. In dimensions in which the region is not split, all indices in memory: a part of
  /// the memory would have to be packed.
  static views::Box source_of(const Direction& direction, int rank, const views::Box& box, const views::Box& memory) {
    views::Box needed = direction.needed_for(box, rank);
    if (needed.empty()) return needed;
    const views::Box work = direction.work(rank);
    for (const views::Dim d : views::spatial_dims)
      if (box.extent(d) == work.extent(d)) needed.set(d, memory.lower(d), memory.upper(d));
    return needed;
  }

  struct Call {
    std::shared_ptr<local::LocalConvolution<Target, Exec>> local;
    View from;
    views::LocalView<Parameter, Mem> w;
    Kokkos::View<Parameter*, Mem> bias;
    TargetView to;
  };
  views::Box box_, read_;
  bool relu_;
  std::size_t copied_ = 0;
  Kokkos::View<Target*, Mem> copy_;
  std::vector<Call> calls_;
  bool gathers_ = true;
};

}  // namespace aloni::nn::detail
