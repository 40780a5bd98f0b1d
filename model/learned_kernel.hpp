#pragma once
// A learned model of the times of one kind of kernels: multilayer perceptrons on logarithms. They have an input layer,
// five hidden layers of 50 with ReLU, and one output (paper performance-models, section 3.1). tools/ trains them by
// this library's own networks. They are evaluated here, in plain C++.
//
// The paper predicts the time, from thousands of measurements. Here there are some hundreds, hence two differences.
// * A perceptron predicts the factor by which a kernel is slower than a simple bound. A problem that is unlike all
//   measured ones has a factor near the mean.
// * Several perceptrons are trained from different values on different parts of the measurements. Their mean has the
//   smaller error (Hansen and Salamon, Neural network ensembles, 1990).
#include <aloni/model/kernel.hpp>

#include <vector>

namespace aloni::model {

/// y = weights · x + biases.
struct DenseLayer {
  int inputs = 0, outputs = 0;
  std::vector<float> weights = {};  ///< outputs × inputs, row by row
  std::vector<float> biases = {};   ///< outputs

  friend bool operator==(const DenseLayer&, const DenseLayer&) = default;
};

/// ReLU between its layers.
struct Perceptron {
  std::vector<DenseLayer> layers = {};

  friend bool operator==(const Perceptron&, const Perceptron&) = default;
};

struct LearnedKernel {
  KernelKind kind = KernelKind::copy;
  nn::ElementType type = nn::ElementType::float32;
  int ranks_per_node = 1, threads_per_rank = 1;  ///< layout of processes of the measurements
  /// The bound: per_call + max(per_flop · flops, per_byte · bytes), in seconds. Not all are zero.
  double per_call = 0, per_flop = 0, per_byte = 0;
  /// Normalisation: input i is (log(1 + feature) - mean[i]) / deviation[i]; the output is
  /// (log(seconds / bound) - seconds_mean) / seconds_deviation.
  std::vector<double> mean = {}, deviation = {};
  double seconds_mean = 0, seconds_deviation = 1;
  std::vector<double> least = {}, largest = {};  ///< features of the measured problems
  std::vector<Perceptron> networks = {};         ///< at least one; the mean of their outputs counts
  double relative_error = 0;                     ///< mean over problems that were left out of the training

  friend bool operator==(const LearnedKernel&, const LearnedKernel&) = default;
};

/// The bound of a call, in seconds.
double bound_of(const LearnedKernel& model, const KernelCall& call);

/// Predicted seconds. A feature beyond the measured ones counts as the last measured one, but the bound has the whole
/// arithmetic and all bytes: a kernel with more work is as efficient as the largest measured one.
/// @pre call.kind == model.kind, and it has the model's number of features
double predict(const LearnedKernel& model, const KernelCall& call);

/// Whether no feature is far from all measured ones: 1 + feature at most 64 times as large, or as small. So a flag that
/// all measured problems share, for example ordered filters, excludes no other problem.
bool covers(const LearnedKernel& model, const KernelCall& call);

}  // namespace aloni::model
