#pragma once
// A convolution with groups as a sequence of convolutions without groups, on parts of the same tensors. Implementations
// that do not support groups use it. One object, hence one workspace, serves all groups one after the other.
#include <aloni/nn/local/convolution.hpp>

#include <memory>
#include <string>
#include <utility>

namespace aloni::nn::local::detail {

/// The problem of a single group.
constexpr ConvolutionProblem one_group(ConvolutionProblem p) {
  p.channels = p.channels_per_group();
  p.filters = p.filters_per_group();
  p.groups = 1;
  return p;
}

template <class T, class Exec>
class GroupByGroup final : public LocalConvolution<T, Exec> {
 public:
  /// `group` solves one_group(problem).
  GroupByGroup(const ConvolutionProblem& problem, ConvolutionPasses passes,
               std::unique_ptr<LocalConvolution<T, Exec>> group)
      : LocalConvolution<T, Exec>(problem, passes), group_(std::move(group)) {}

  std::string implementation(ConvolutionPass pass) const override {
    return group_->implementation(pass) + ", group by group";
  }
  std::size_t workspace_bytes() const override { return group_->workspace_bytes(); }

 private:
  using Part = std::pair<Index, Index>;

  static Part part(Index group, Index size) { return {group * size, (group + 1) * size}; }
  Part channels(Index group) const { return part(group, group_->problem().channels); }
  Part filters(Index group) const { return part(group, group_->problem().filters); }

  template <class View>
  static View last(const View& v, Part range) {
    return View(Kokkos::subview(v, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, range));
  }
  template <class View>
  static View first(const View& v, Part range) {
    return View(Kokkos::subview(v, range, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL));
  }
  template <class View>
  static View of(const View& v, Part range) {
    return v.extent(0) == 0 ? v : View(v.data() + range.first, static_cast<std::size_t>(range.second - range.first));
  }

  void run_forward(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& w,
                   const Array<const T, Exec>& bias, const Tensor<T, Exec>& y) override {
    for (Index g = 0; g < this->problem().groups; ++g)
      group_->forward(exec, last(x, channels(g)), first(w, filters(g)), of(bias, filters(g)), last(y, filters(g)));
  }
  void run_backward_data(const Exec& exec, const Tensor<const T, Exec>& dy, const Tensor<const T, Exec>& w,
                         const Tensor<T, Exec>& dx) override {
    for (Index g = 0; g < this->problem().groups; ++g)
      group_->backward_data(exec, last(dy, filters(g)), first(w, filters(g)), last(dx, channels(g)));
  }
  void run_backward_filter(const Exec& exec, const Tensor<const T, Exec>& x, const Tensor<const T, Exec>& dy,
                           const Tensor<T, Exec>& dw, const Array<T, Exec>& db) override {
    for (Index g = 0; g < this->problem().groups; ++g)
      group_->backward_filter(exec, last(x, channels(g)), last(dy, filters(g)), first(dw, filters(g)),
                              of(db, filters(g)));
  }

  std::unique_ptr<LocalConvolution<T, Exec>> group_;
};

}  // namespace aloni::nn::local::detail
