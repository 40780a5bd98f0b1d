#include <aloni/model/kernel.hpp>
#include <aloni/model/sample_networks.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::model {
namespace test_sample_networks {

TEST(SampleNetworks, TogetherHaveManyDifferentKernelsOfMostKinds) {
  std::array<std::set<std::string>, kernel_kinds> keys;
  for (const KernelTask& task : kernel_tasks(sample_networks(60, 1), machine_of_samples(generic_machine()), {})) {
    const KernelProblem problem = kernel_of(*task.plan, task.plan->nodes[static_cast<std::size_t>(task.node)]);
    for (const KernelCall& call : problem.calls) keys[static_cast<std::size_t>(call.kind)].insert(problem.key);
  }
  for (const KernelKind kind :
       {KernelKind::convolution_forward, KernelKind::convolution_filter, KernelKind::dense, KernelKind::pooling,
        KernelKind::normalisation, KernelKind::pointwise, KernelKind::optimiser}) {
    EXPECT_GE(keys[static_cast<std::size_t>(kind)].size(), 50u) << name(kind);
  }
  EXPECT_GE(keys[static_cast<std::size_t>(KernelKind::copy)].size(), 10u) << "accumulated gradients";
}

/// Whether one of the calls of the kind has this value of the feature.
bool any_call(const std::vector<KernelTask>& tasks, KernelKind kind, std::string_view feature, double value) {
  const auto& names = feature_names(kind);
  const auto place = static_cast<std::size_t>(std::ranges::find(names, feature) - names.begin());
  return std::ranges::any_of(tasks, [&](const KernelTask& task) {
    const KernelProblem problem = kernel_of(*task.plan, task.plan->nodes[static_cast<std::size_t>(task.node)]);
    return std::ranges::any_of(
        problem.calls, [&](const KernelCall& call) { return call.kind == kind && call.features.at(place) == value; });
  });
}

TEST(SampleNetworks, HaveTheInteriorsAndBordersOfSplitConvolutions) {
  const Machine machine = machine_of_samples(generic_machine());
  const std::vector<KernelTask> tasks = kernel_tasks(sample_networks(120, 1), machine, {});
  for (const double value : {0, 1}) {
    EXPECT_TRUE(any_call(tasks, KernelKind::convolution_forward, "orders_filters", value)) << value;
    EXPECT_TRUE(any_call(tasks, KernelKind::convolution_forward, "input_gaps", value)) << value;
  }
}

TEST(SampleNetworks, HavePixelsWithGaps) {
  const Machine machine = machine_of_samples(generic_machine());
  const std::vector<KernelTask> tasks = kernel_tasks(sample_networks(60, 1), machine, {});
  int pointwise = 0, normalised = 0;
  for (const KernelTask& task : tasks) {
    for (const KernelCall& call : kernel_of(*task.plan, task.plan->nodes[static_cast<std::size_t>(task.node)]).calls) {
      const auto& names = feature_names(call.kind);
      const auto run = static_cast<std::size_t>(std::ranges::find(names, "run") - names.begin());
      const bool is_short = run < names.size() && call.features[run] > 0 && call.features[run] * 100 < call.bytes;
      pointwise += call.kind == KernelKind::pointwise && is_short ? 1 : 0;
      normalised += call.kind == KernelKind::normalisation && is_short ? 1 : 0;
    }
  }
  EXPECT_GE(pointwise, 30);
  EXPECT_GE(normalised, 30);
}

TEST(SampleNetworks, ArePlannedForAnyJobThatCalibrates) {
  Machine four_nodes = generic_machine();
  four_nodes.planning.nodes = {0, 1, 2, 3};
  four_nodes.ranks_per_node = 1;
  Machine one_core = generic_machine();
  one_core.most_nodes = one_core.ranks_per_node = 1;
  const auto samples = sample_networks(20, 1);
  const auto keys = [&](const Machine& machine) {
    std::vector<std::string> all;
    for (const KernelTask& task : kernel_tasks(samples, machine_of_samples(machine), {})) all.push_back(task.key);
    return all;
  };
  EXPECT_EQ(keys(four_nodes), keys(one_core));
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
