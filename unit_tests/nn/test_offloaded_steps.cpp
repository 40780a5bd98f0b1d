// Steps whose activations lie in host memory between both passes have the same bits as steps that keep them.
#include "saving_networks.hpp"

#include <aloni/nn/plan/offloading.hpp>

#include <gtest/gtest.h>

#include <string>

namespace aloni::nn::test {
namespace test_offloaded_steps {

std::string offload_any(NetworkOptions& options, const NetworkDescription& net, Dice& dice) {
  const auto layers = static_cast<int>(net.layers.size());
  options.offload = random_offloading(dice, layers);
  if (dice(0, 1) == 0) options.recompute = random_recomputation(dice, layers);
  return "offloaded " + offloading_text(options.offload, net) + ", recomputed " + to_string(options.recompute, net);
}

Save offloading(const std::string& patterns) {
  return [patterns](NetworkOptions& options, const NetworkDescription& net, Dice&) {
    options.offload = offloaded_layers(net, patterns);
    return "offloaded " + patterns;
  };
}

TEST(OffloadedSteps, HaveTheSameBitsInRandomNetworksOfFloat) { compare_random_networks<float>(100, 24, offload_any); }
TEST(OffloadedSteps, HaveTheSameBitsInRandomNetworksOfDouble) { compare_random_networks<double>(500, 24, offload_any); }

TEST(OffloadedSteps, TrainWithTheSameBits) {
  compare_training<double>(1, offloading("*"));
  compare_training<float>(2, offloading("a.*,c.*"));
  compare_training<float>(3, [](NetworkOptions& options, const NetworkDescription& net, Dice&) {
    options.offload = offloaded_layers(net, "stem,a.*,b.pool");
    options.recompute = recomputed_blocks(net, "b.*");
    return "offloaded stem, a.*, b.pool, recomputed b.*";
  });
}

}  // namespace test_offloaded_steps
}  // namespace aloni::nn::test
