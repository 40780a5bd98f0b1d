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
  std::vector<double> inputs(call.features.size()), values, next;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const double feature = std::clamp(call.features[i], model.least[i], model.largest[i]);
    inputs[i] = (std::log1p(feature) - model.mean[i]) / model.deviation[i];
  }
  double sum_of_outputs = 0;
  for (const Perceptron& network : model.networks) {
    values = inputs;
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      const DenseLayer& layer = network.layers[l];
      next.assign(static_cast<std::size_t>(layer.outputs), 0);
      for (std::size_t o = 0; o < next.size(); ++o) {
        double sum = layer.biases[o];
        for (std::size_t i = 0; i < values.size(); ++i)
          sum += static_cast<double>(layer.weights[o * values.size() + i]) * values[i];
        next[o] = l + 1 < network.layers.size() ? std::max(0.0, sum) : sum;
      }
      std::swap(values, next);
    }
    sum_of_outputs += values.front();
  }
  const double output = sum_of_outputs / static_cast<double>(model.networks.size());
  return bound_of(model, call) * std::exp(output * model.seconds_deviation + model.seconds_mean);
}

bool covers(const LearnedKernel& model, const KernelCall& call) {
  constexpr double reach = 64;
  for (std::size_t i = 0; i < call.features.size(); ++i)
    if ((1 + call.features[i]) * reach < 1 + model.least[i] || 1 + call.features[i] > (1 + model.largest[i]) * reach)
      return false;
  return true;
}

}  // namespace aloni::model
