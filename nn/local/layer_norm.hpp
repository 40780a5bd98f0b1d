#pragma once
// Layer normalisation over the channels of each pixel of each sample, forward and backward. It needs no communication
// where a rank has all channels of its pixels.
//
//   LocalLayerNorm<float> norm(exec, {n, d, h, w, c}, 1e-6);
//   norm.forward(exec, x, gamma, beta, y);
//   norm.backward(exec, x, dy, gamma, dx);
//   norm.parameter_gradients(exec, x, dy, dgamma, dbeta);
//
// Where a rank has some of the channels only, the layer adds sums over the ranks that share its pixels. `channels`:
// number of channels on all of these ranks together.
//   norm.sums(exec, x, sums);                           // … all-reduce sums …
//   norm.squares(exec, channels, x, sums, squares);     // … all-reduce squares …
//   norm.forward(exec, channels, x, gamma, beta, squares, y);
//   norm.gradient_sums(exec, x, dy, gamma, both);       // … all-reduce both …
//   norm.backward(exec, channels, x, dy, gamma, both, dx);
//
// A cell is one pixel of one sample with all its channels. Its variance is the mean of (x - mean)², computed in a
// second pass over channels that are still in the cache. All sums are double. The result of a cell has the same bits in
// every tensor that holds all its channels.
#include <aloni/nn/local/local_types.hpp>

#include <array>

namespace aloni::nn::local {

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class LocalLayerNorm {
 public:
  /// For tensors of exactly these extents, which may be 0. Allocates the workspace; no call allocates.
  LocalLayerNorm(const Exec& exec, const std::array<Index, 5>& extents, double epsilon);

  /// y = (x - mean) / sqrt(variance + epsilon) × gamma + beta. Keeps mean and deviation for backward(). y may be x.
  void forward(const Exec& exec, InTensor<T, Exec> x, InArray<parameter_type_t<T>, Exec> gamma,
               InArray<parameter_type_t<T>, Exec> beta, OutTensor<T, Exec> y);
  /// dx = (gamma·dy - mean of gamma·dy - x̂ · mean of gamma·dy·x̂) / sqrt(variance + epsilon). dx may be dy.
  void backward(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy, InArray<parameter_type_t<T>, Exec> gamma,
                OutTensor<T, Exec> dx) const;
  /// dgamma = Σdy·x̂, dbeta = Σdy over all cells.
  void parameter_gradients(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                           OutArray<parameter_type_t<T>, Exec> dgamma, OutArray<parameter_type_t<T>, Exec> dbeta);

  /// Number of cells.
  Index cells() const { return extents_[0] * extents_[1] * extents_[2] * extents_[3]; }
  /// sums: Σx of each cell, over the channels of this tensor.
  void sums(const Exec& exec, InTensor<T, Exec> x, OutArray<double, Exec> sums) const;
  /// squares: Σ(x - mean)² of each cell, over the channels of this tensor. `sums`: over all channels. Keeps the mean.
  /// @pre channels ≥ 1
  void squares(const Exec& exec, Index channels, InTensor<T, Exec> x, InArray<double, Exec> sums,
               OutArray<double, Exec> squares);
  /// As the other forward(), with the mean of squares() and `squares` over all channels. @pre channels ≥ 1
  void forward(const Exec& exec, Index channels, InTensor<T, Exec> x, InArray<parameter_type_t<T>, Exec> gamma,
               InArray<parameter_type_t<T>, Exec> beta, InArray<double, Exec> squares, OutTensor<T, Exec> y);
  /// sums: Σ gamma·dy of each cell, then Σ gamma·dy·x̂ of each cell, over the channels of this tensor.
  void gradient_sums(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                     InArray<parameter_type_t<T>, Exec> gamma, OutArray<double, Exec> sums) const;
  /// As the other backward(), with `sums` over all channels. @pre channels ≥ 1
  void backward(const Exec& exec, Index channels, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                InArray<parameter_type_t<T>, Exec> gamma, InArray<double, Exec> sums, OutTensor<T, Exec> dx) const;

 private:
  using Doubles = Kokkos::View<double*, typename Exec::memory_space>;
  std::array<Index, 5> extents_;
  double epsilon_;
  Doubles partial_, sums_, mean_, inv_std_;
};

}  // namespace aloni::nn::local
