#pragma once
// Deliberate faults in plans of training steps of random networks: verify() must refuse each, with the right words.
#include "random_network.hpp"

#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/plan/verify.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace aloni::nn::test {

/// Changes the plan of one rank. False: this plan has no place for the fault.
using Change = std::function<bool(StepPlan&, Dice&)>;
/// By name: a fault, and words of which the error has one.
using PlanFaults = std::map<std::string, std::pair<Change, std::vector<std::string>>>;

/// Tries each fault in several plans. `options_of`: of a step of a network with so many layers.
inline void expect_refused(const PlanFaults& faults, std::uint64_t first_seed,
                           const std::function<StepOptions(Dice&, int layers)>& options_of) {
  for (const auto& [name, fault] : faults) {
    const auto& [change_plan, words] = fault;
    int tried = 0;
    for (std::uint64_t seed = 0; seed < 600 && tried < 8; ++seed) {
      Dice dice(seed + first_seed);
      const NetworkDescription net = random_network(dice, Kinds::all);
      const int ranks = static_cast<int>(dice(1, 4));
      const std::vector<LayerSplit> splits(net.layers.size(), random_split(dice, ranks, net.spatial_rank));
      const NetworkPlan layers = plan_network(net, resolve(strategy_of(net, splits), net, ranks), ranks, dice(1, 3));
      const StepOptions options = options_of(dice, static_cast<int>(net.layers.size()));
      std::vector<StepPlan> plans;
      for (int r = 0; r < ranks; ++r)
        plans.push_back(plan_step(net, layers, r, StepKind::training, machine_of_nodes(ranks, 0), options));
      if (!change_plan(plans[static_cast<std::size_t>(dice(0, ranks - 1))], dice)) continue;
      ++tried;
      const auto found = verify(layers, plans);
      ASSERT_TRUE(found) << name << ", case " << seed;
      const auto says = [&, &text = found->what](const std::string& w) { return text.find(w) != std::string::npos; };
      EXPECT_TRUE(std::ranges::any_of(words, says)) << name << ", case " << seed << ": " << to_string(*found);
    }
    EXPECT_GT(tried, 2) << name << " was hardly tried";
  }
}

}  // namespace aloni::nn::test
