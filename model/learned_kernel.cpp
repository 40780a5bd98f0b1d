#include <aloni/model/learned_kernel.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace aloni::model {

double bound_of(const LearnedKernel& model, const KernelCall& call) {
  return model.per_call + std::max(model.per_flop * call.flops, model.per_byte * call.bytes);
}

double predict(const LearnedKernel& model, const KernelCall& call) {
  std::vector<double> values(call.features.size()), next;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = (std::log1p(call.features[i]) - model.mean[i]) / model.deviation[i];
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const DenseLayer& layer = model.layers[l];
    next.assign(static_cast<std::size_t>(layer.outputs), 0);
    for (std::size_t o = 0; o < next.size(); ++o) {
      double sum = layer.biases[o];
      for (std::size_t i = 0; i < values.size(); ++i)
        sum += static_cast<double>(layer.weights[o * values.size() + i]) * values[i];
      next[o] = l + 1 < model.layers.size() ? std::max(0.0, sum) : sum;
    }
    std::swap(values, next);
  }
  return bound_of(model, call) * std::exp(values.front() * model.seconds_deviation + model.seconds_mean);
}

bool covers(const LearnedKernel& model, const KernelCall& call) {
  for (std::size_t i = 0; i < call.features.size(); ++i)
    if (call.features[i] < model.least[i] || call.features[i] > model.largest[i]) return false;
  return true;
}

}  // namespace aloni::model
