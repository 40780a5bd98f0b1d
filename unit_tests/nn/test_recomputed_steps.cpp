// Steps that compute activations again have the same bits as steps that keep them.
#include "saving_networks.hpp"

#include <aloni/nn/plan/recomputation.hpp>

#include <gtest/gtest.h>

#include <string>

namespace aloni::nn::test {
namespace test_recomputed_steps {

std::string recompute_any(NetworkOptions& options, const NetworkDescription& net, Dice& dice) {
  options.recompute = random_recomputation(dice, static_cast<int>(net.layers.size()));
  return "recomputed " + to_string(options.recompute, net);
}

Save recomputing(const std::string& patterns) {
  return [patterns](NetworkOptions& options, const NetworkDescription& net, Dice&) {
    options.recompute = recomputed_blocks(net, patterns);
    return "recomputed " + patterns;
  };
}

TEST(RecomputedSteps, HaveTheSameBitsInRandomNetworksOfFloat) {
  compare_random_networks<float>(100, 24, recompute_any);
}
TEST(RecomputedSteps, HaveTheSameBitsInRandomNetworksOfDouble) {
  compare_random_networks<double>(500, 24, recompute_any);
}

TEST(RecomputedSteps, TrainWithTheSameBits) {
  compare_training<double>(1, recomputing("a.*,b.*,c.*"));
  compare_training<float>(2, recomputing("*"));
  compare_training<float>(3, recomputing("?.norm,b.conv,c.conv"));
}

}  // namespace test_recomputed_steps
}  // namespace aloni::nn::test
