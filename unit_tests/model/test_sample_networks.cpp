#include <aloni/model/kernel.hpp>
#include <aloni/model/sample_networks.hpp>

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

namespace aloni::model {
namespace test_sample_networks {

TEST(SampleNetworks, TogetherHaveManyDifferentKernelsOfMostKinds) {
  std::array<std::set<std::string>, kernel_kinds> keys;
  for (const KernelTask& task : kernel_tasks(sample_networks(60, 1), generic_machine(), {})) {
    const KernelProblem problem = kernel_of(*task.plan, task.plan->nodes[static_cast<std::size_t>(task.node)]);
    for (const KernelCall& call : problem.calls) keys[static_cast<std::size_t>(call.kind)].insert(problem.key);
  }
  for (const KernelKind kind :
       {KernelKind::convolution_forward, KernelKind::convolution_filter, KernelKind::dense, KernelKind::pooling,
        KernelKind::normalisation, KernelKind::pointwise, KernelKind::optimiser, KernelKind::copy}) {
    EXPECT_GE(keys[static_cast<std::size_t>(kind)].size(), 50u) << name(kind);
  }
}

TEST(SampleNetworks, TheFirstOnesAreTheSame) {
  const auto few = sample_networks(3, 7), more = sample_networks(20, 7), other = sample_networks(3, 8);
  bool differs = false;
  for (std::size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(few[i].samples, more[i].samples);
    EXPECT_EQ(few[i].network.input, more[i].network.input);
    differs = differs || !(few[i].network.input == other[i].network.input);
  }
  EXPECT_TRUE(differs);
}

TEST(SampleNetworks, StayWithinTheLimits) {
  const SampleLimits limits{.least_flops = 1e7, .most_flops = 1e8, .most_bytes = 4e6};
  for (const PlannedNetwork& sample : sample_networks(30, 2, limits)) {
    const auto extents = nn::infer_extents(sample.network, sample.samples);
    EXPECT_LE(static_cast<double>(extents.front().size()) * 4, limits.most_bytes);
    EXPECT_LE(static_cast<double>(sample.samples) * static_cast<double>(sample.network.input.size()) * 4,
              limits.most_bytes);
  }
}

}  // namespace test_sample_networks
}  // namespace aloni::model
