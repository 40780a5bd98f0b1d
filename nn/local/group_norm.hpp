#pragma once
// The local parts of group normalisation: the channels of a group and all pixels of one sample share a mean and a
// variance. The layer does the rest: it adds sums over the ranks that share samples and groups.
//
//   LocalGroupNorm<float> norm(exec, {n, d, h, w, c}, groups);
//   norm.statistics(exec, x, sums);                     // of this rank's pixels and channels, in double
//   … all-reduce sums …
//   norm.finish(exec, count, 1e-5, sums);               // count: channels of a group × pixels of a whole sample
//   norm.forward(exec, x, gamma, beta, y);
//
//   norm.gradients(exec, x, dy, gamma, sums);
//   … start the all-reduce of sums …
//   norm.parameter_gradients(exec, dgamma, dbeta);      // of this rank's pixels; added over ranks later
//   … finish the all-reduce …
//   norm.backward(exec, count, x, dy, gamma, sums, dx);
//
// As in batch_norm.hpp, statistics are double for both precisions, and the order of sums depends on the extents only.
// One group is layer normalisation over whole samples. One group per channel is instance normalisation. layer_norm.hpp
// normalises over the channels of each pixel.
//
// Where the channels of groups are split over ranks, all of these ranks have sums of all these groups (ChannelGroups).
#include <aloni/nn/local/local_types.hpp>

#include <array>

namespace aloni::nn::local {

/// The groups of a tensor that may have only a part of their channels.
struct ChannelGroups {
  Index groups = 1;    ///< number of groups
  Index channels = 1;  ///< of each group, on all ranks together
  Index first = 0;     ///< position of the tensor's first channel among the channels of the groups
};

template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class LocalGroupNorm {
 public:
  /// For tensors of exactly these extents, which may be 0. Allocates the workspace; no call allocates.
  /// @pre groups ≥ 1 divides the channels
  LocalGroupNorm(const Exec& exec, const std::array<Index, 5>& extents, Index groups);
  /// For a part of the channels. @pre the channels of the tensor are channels of the groups
  LocalGroupNorm(const Exec& exec, const std::array<Index, 5>& extents, const ChannelGroups& groups);

  /// Elements of `sums`: two for each sample and group.
  Index sums() const { return 2 * extents_[0] * groups_.groups; }

  /// sums: Σx of all samples' groups, then Σx².
  void statistics(const Exec& exec, InTensor<T, Exec> x, OutArray<double, Exec> sums);
  /// Computes mean and deviation of groups of `count` elements from their sums, and keeps them for forward() and the
  /// gradients.
  /// @pre count ≥ 1
  void finish(const Exec& exec, Index count, double epsilon, InArray<double, Exec> sums);
  /// y = (x - mean) / sqrt(variance + epsilon) × gamma + beta. y may be x.
  void forward(const Exec& exec, InTensor<T, Exec> x, InArray<parameter_type_t<T>, Exec> gamma,
               InArray<parameter_type_t<T>, Exec> beta, OutTensor<T, Exec> y) const;

  /// sums: Σ gamma·dy of all samples' groups, then Σ gamma·dy·x̂.
  void gradients(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy, InArray<parameter_type_t<T>, Exec> gamma,
                 OutArray<double, Exec> sums);
  /// dgamma = Σdy·x̂, dbeta = Σdy of the last gradients().
  void parameter_gradients(const Exec& exec, OutArray<parameter_type_t<T>, Exec> dgamma,
                           OutArray<parameter_type_t<T>, Exec> dbeta) const;
  /// dx = (gamma·dy - (Σ gamma·dy + x̂ Σ gamma·dy·x̂) / count) / sqrt(variance + epsilon), with the sums of the whole
  /// group. dx may be dy. @pre count ≥ 1
  void backward(const Exec& exec, Index count, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                InArray<parameter_type_t<T>, Exec> gamma, InArray<double, Exec> sums, OutTensor<T, Exec> dx);

 private:
  using Doubles = Kokkos::View<double*, typename Exec::memory_space>;
  std::array<Index, 5> extents_;
  ChannelGroups groups_;
  Doubles partial_, channel_sums_, mean_, inv_std_, group_means_;
};

}  // namespace aloni::nn::local
