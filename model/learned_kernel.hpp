#pragma once
// A learned model of the times of one kind of kernels: a multilayer perceptron on logarithms (paper
// performance-models, section 3.1: an input layer, five hidden layers of 50 with ReLU, one output). tools/ trains it by
// this library's own networks; it is evaluated here, in plain C++.
//
// The paper predicts the time, from thousands of measurements. Here the perceptron predicts the factor by which a
// kernel is slower than a simple bound. So some dozens of measurements do better than the roofline: a problem that is
// unlike all measured ones has a factor near the mean.
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
  std::vector<double> least = {}, largest = {};  ///< features of the training set; outside them nothing is predicted
  std::vector<DenseLayer> layers = {};           ///< ReLU between them
  double relative_error = 0;                     ///< mean over problems that were left out of the training

  friend bool operator==(const LearnedKernel&, const LearnedKernel&) = default;
};

/// The bound of a call, in seconds.
double bound_of(const LearnedKernel& model, const KernelCall& call);

/// Predicted seconds. @pre call.kind == model.kind, and it has the model's number of features
double predict(const LearnedKernel& model, const KernelCall& call);

/// Whether all features lie within the training set.
bool covers(const LearnedKernel& model, const KernelCall& call);

}  // namespace aloni::model
