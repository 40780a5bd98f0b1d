#include <aloni/nn/plan/offloading.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/detail/layer_names.hpp>
#include <aloni/nn/layer_pattern.hpp>
#include <aloni/nn/plan/recomputation.hpp>

#include <cmath>
#include <cstddef>

namespace aloni::nn {

Offloading offloaded_layers(const NetworkDescription& network, const std::string& patterns) {
  const std::vector<int> pattern_of =
      match_patterns(patterns, detail::layer_names(network), "aloni::nn::offloaded_layers");
  Offloading layers;
  for (std::size_t i = 0; i < pattern_of.size(); ++i)
    if (pattern_of[i] >= 0) layers.push_back(static_cast<int>(i));
  return layers;
}

void check_offloading(const Offloading& layers, int number, const char* operation) {
  int next = 0;
  for (const int layer : layers) {
    if (layer < next || layer >= number) {
      throw InvalidArgument(operation, "offload", "layer " + std::to_string(layer),
                            "ascending positions within the " + std::to_string(number) + " layers");
    }
    next = layer + 1;
  }
}

void check_work_per_copied_byte(const WorkPerCopiedByte& work, const char* operation, const char* argument) {
  for (const double number : {work.flops, work.flops_16_bit, work.traffic})
    if (!(std::isfinite(number) && number > 0))
      throw InvalidArgument(operation, argument, std::to_string(number), "finite numbers above 0");
}

std::string offloading_text(const Offloading& layers, const NetworkDescription& network) {
  Recomputation runs;
  for (const int layer : layers) {
    if (!runs.empty() && runs.back().last + 1 == layer) {
      runs.back().last = layer;
    } else {
      runs.push_back({layer, layer});
    }
  }
  return to_string(runs, network);
}

}  // namespace aloni::nn
