#pragma once
// The local parts of batch normalisation. The layer does the rest: it adds sums over the ranks of a group.
//
//   BatchNormReduction<float> reduce(exec, x_extents…);
//   reduce.statistics(exec, x, sums);                     // sums[0..C) = Σx, sums[C..2C) = Σx², in double
//   … all-reduce sums over the group, count likewise …
//   batch_norm_finish(exec, count, {.epsilon = 1e-5}, sums, mean, inv_std, running_mean, running_variance);
//   batch_norm_forward(exec, x, mean, inv_std, gamma, beta, y);
//
//   reduce.gradients(exec, x, dy, mean, inv_std, sums);   // Σdy, Σdy·x̂ of this rank
//   batch_norm_parameter_gradients(exec, sums, dgamma, dbeta);   // before the all-reduce: gradients are added later
//   … all-reduce sums …
//   batch_norm_backward(exec, count, x, dy, mean, inv_std, gamma, sums, dx);
//
// Statistics are double for all precisions, because Σx² - (Σx)²/n loses half of the digits. The order of sums depends
// on the extents only, not on the number of threads.
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// Sums per channel over samples and pixels. The constructor allocates the workspace for partial sums, or gets it; no
/// call allocates.
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class BatchNormReduction {
 public:
  /// For tensors of up to `samples` × `rows` × … with `channels` channels, where a row is one (sample, depth, height).
  BatchNormReduction(const Exec& exec, Index samples, Index depth, Index height, Index channels);
  /// With memory of the caller: partial_sums(samples × depth × height, channels) elements (nn/local/channel_sums.hpp).
  BatchNormReduction(Index samples, Index depth, Index height, Index channels,
                     Kokkos::View<double*, typename Exec::memory_space> partial);

  /// sums (2C): Σx, Σx². @pre x.extent(0..2) at most those of the constructor
  void statistics(const Exec& exec, InTensor<T, Exec> x, OutArray<double, Exec> sums);
  /// gamma and beta of a normalisation with a ReLU behind it, for the sign of its output; extent 0: without a ReLU.
  struct Rectified {
    Array<const parameter_type_t<T>, Exec> gamma = {}, beta = {};
  };
  /// sums (2C): Σdy, Σdy·(x-mean)·inv_std. With `relu` dy is the gradient of the output of the ReLU.
  void gradients(const Exec& exec, InTensor<T, Exec> x, InTensor<T, Exec> dy, InArray<double, Exec> mean,
                 InArray<double, Exec> inv_std, OutArray<double, Exec> sums, Rectified relu = {});

 private:
  Index max_rows_, channels_;
  Kokkos::View<double*, typename Exec::memory_space> partial_;
};

struct BatchNormStatistics {
  double epsilon = 1e-5;
  double momentum = 0.1;  ///< running = (1 - momentum) × running + momentum × batch; the running variance is unbiased
};

/// Computes mean and inv_std of a batch of `count` elements per channel from their sums. Updates the running statistics
/// unless they have extent 0. If the sums of the first K channels are known, `known` (2K) has these, and `sums` those
/// of the other channels. Then both are written to `all` (2C).
template <class Exec>
void batch_norm_finish(const Exec& exec, Index count, BatchNormStatistics parameters, InArray<double, Exec> sums,
                       OutArray<double, Exec> mean, OutArray<double, Exec> inv_std, OutArray<double, Exec> running_mean,
                       OutArray<double, Exec> running_variance, InArray<double, Exec> known = {},
                       Array<double, Exec> all = {});

/// For evaluation: inv_std = 1 / sqrt(running_variance + epsilon).
template <class Exec>
void batch_norm_inverse(const Exec& exec, double epsilon, InArray<double, Exec> running_variance,
                        OutArray<double, Exec> inv_std);

/// y = (x - mean) × inv_std × gamma + beta, plus `summand` if it has memory, and with `relu` max(0, y). y may be x.
/// Computed in the type of the parameters. A summand has the extents of y.
template <class T, class Exec>
void batch_norm_forward(const Exec& exec, InTensor<T, Exec> x, InArray<double, Exec> mean,
                        InArray<double, Exec> inv_std, InArray<parameter_type_t<T>, Exec> gamma,
                        InArray<parameter_type_t<T>, Exec> beta, Tensor<T, Exec> y, bool relu = false,
                        InTensor<T, Exec> summand = {});

/// dgamma = Σdy·x̂, dbeta = Σdy from the sums of BatchNormReduction::gradients. T is the type of the parameters.
template <class T, class Exec>
void batch_norm_parameter_gradients(const Exec& exec, InArray<double, Exec> sums, Array<T, Exec> dgamma,
                                    OutArray<T, Exec> dbeta);

/// dx = gamma × inv_std × (dy - (Σdy + x̂ Σdy·x̂) / count), with the sums of the whole group. `summand` is added if it
/// has memory. dx may be dy or the summand. Computed in the type of the parameters. `beta_of_relu`: beta, if dy is the
/// gradient of a ReLU of the output; otherwise extent 0.
template <class T, class Exec>
void batch_norm_backward(const Exec& exec, Index count, InTensor<T, Exec> x, InTensor<T, Exec> dy,
                         InArray<double, Exec> mean, InArray<double, Exec> inv_std,
                         InArray<parameter_type_t<T>, Exec> gamma, InArray<double, Exec> sums, Tensor<T, Exec> dx,
                         InArray<parameter_type_t<T>, Exec> beta_of_relu = {}, InTensor<T, Exec> summand = {});

}  // namespace aloni::nn::local
