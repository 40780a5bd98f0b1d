#include <aloni/nn/factor_sums.hpp>

#include <aloni/nn/detail/instantiate.hpp>
#include <aloni/nn/local/gemm.hpp>
#include <aloni/nn/local/patches.hpp>
#include <aloni/nn/plan/kfac_cost.hpp>

#include <algorithm>

namespace aloni::nn {

template <class T, class Exec>
FactorSums<T, Exec>::FactorSums(const Queue<Exec>& queue, const KfacPlan& plan) : plan_(plan) {
  std::size_t end = 0;
  Index longest = factor_patch_elements;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const KfacLayer& layer = plan.layers[i];
    for (const Index order : {layer.columns, layer.rows}) {
      begins_.push_back(end);
      end += static_cast<std::size_t>(order * order);
      longest = std::max(longest, order);
    }
    position_.resize(static_cast<std::size_t>(layer.layer) + 1, -1);
    position_.back() = static_cast<int>(i);
  }
  values_ = Flat(Kokkos::view_alloc(queue.space(), "aloni::nn::factor_sums"), end);
  patches_ = Flat(Kokkos::view_alloc(queue.space(), "aloni::nn::patches", Kokkos::WithoutInitializing),
                  static_cast<std::size_t>(longest));
}

template <class T, class Exec>
void FactorSums<T, Exec>::add_products(const Exec& exec, const local::ConvolutionProblem& p, const View& x, bool ones,
                                       double factor, Parameter* c, Index order) {
  const Index pixels = p.samples * p.output[0] * p.output[1] * p.output[2];
  const Index most = std::max(Index{1}, static_cast<Index>(patches_.extent(0)) / order);
  for (Index first = 0; first < pixels; first += most) {
    const local::MatrixRef<Parameter> rows{patches_.data(), std::min(most, pixels - first), order, order};
    local::copy_patches<T, Exec>(exec, p, x, ones, first, rows);
    const local::MatrixRef<const Parameter> r{rows.data, rows.rows, rows.columns, rows.stride};
    local::gemm<Parameter, Exec>(exec, local::Transpose::yes, local::Transpose::no, static_cast<Parameter>(factor), r,
                                 r, Parameter(1), local::MatrixRef<Parameter>{c, order, order, order});
  }
}

template <class T, class Exec>
void FactorSums<T, Exec>::add(const Exec& exec, int layer, const local::ConvolutionProblem& p, const View& x,
                              const View& dy) {
  const auto l = static_cast<std::size_t>(layer);
  if (l >= position_.size() || position_[l] < 0) return;
  const auto i = static_cast<std::size_t>(position_[l]);
  const KfacLayer& planned = plan_.layers[i];
  add_products(exec, p, x, planned.bias, 1, values_.data() + begin_of_a(i), planned.columns);
  const local::ConvolutionProblem pixels{
      .samples = p.samples, .channels = p.filters, .filters = p.filters, .input = p.output, .output = p.output};
  add_products(exec, pixels, dy, false, batch_ * batch_, values_.data() + begin_of_g(i), planned.rows);
}

template <class T, class Exec>
void FactorSums<T, Exec>::clear(const Exec& exec) {
  Kokkos::deep_copy(exec, values_, Parameter(0));
  samples_ = 0;
}

#define INSTANTIATE(T, Exec) template class FactorSums<T, Exec>;
ALONI_INSTANTIATE_ACTIVATIONS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace aloni::nn
