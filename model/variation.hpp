#pragma once
// Steps on ranks and links of unequal speed. Kernels take a random factor on each rank in each step, and a share of the
// nodes has a slow link. The results are statistics of many drawn steps.
//
//   const MachineKernels kernels(machine, 4, 1);
//   const VariedSteps steps = simulate_variation(net, layers, machine, kernels, {.straggler_sigma = 0.1});
//   steps.mean, steps.percentile_95, steps.without;
//
// Factors of kernels are lognormal with median 1, because measured times of kernels are medians. They are independent
// between ranks and steps, and constant during a step. Messages into a node with a slow link take
// Variation::slow_link_factor times as long. So do sums over nodes if one of these nodes has a slow link.
//
// Up to SimulationOptions::most_single_ranks, each rank has its own factor. Beyond it, ranks with equal plans and
// equally fast links are walked as one rank, with the largest factor of all of them:
//  - The largest one of n factors is drawn at once, by the inverse transform with the uniform number u^(1/n). The costs
//    of a draw do not grow with the ranks, but for the states of links.
//  - For equal plans this is exact if kernels hide the messages between neighbours. A factor is constant during the
//    step, so the slowest rank waits for no slower one, and all wait for it in a sum over all ranks.
//  - Otherwise it is an upper bound, because the neighbours of a slowest rank count as the slowest of their plans.
//    Three networks in four splits on 64 ranks have the mean of 64 single ranks within 1 % (sigma 0.1, 100 draws).
//  - It needs a sum over all ranks in each step, as a training has. Without it, slow ranks change from step to step,
//    and the result is an upper bound.
// Pure.
#include <aloni/model/simulate.hpp>

#include <cstdint>

namespace aloni::model {

struct Variation {
  double straggler_sigma = 0;   ///< of the logarithm of the factor of kernels; 0: all ranks are equal
  double slow_link_share = 0;   ///< probability that the link of a node is slow, from 0 to 1
  double slow_link_factor = 1;  ///< at least 1
  int draws = 200;              ///< at least 1
  std::uint64_t seed = 0;

  /// Whether all draws are equal.
  bool none() const { return straggler_sigma == 0 && (slow_link_share == 0 || slow_link_factor == 1); }
};

/// Seconds of a step, over all draws.
struct VariedSteps {
  double mean = 0, median = 0, percentile_95 = 0;
  double without = 0;  ///< of the step without variation
};

/// Equal arguments give equal results. @pre `layers` was made from `network`
/// Throws InvalidArgument for a variation out of its ranges, and if the machine has fewer ranks.
VariedSteps simulate_variation(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                               const Machine& machine, const KernelTimes& kernels, const Variation& variation,
                               const SimulationOptions& options = {});

/// The largest one of `count` independent lognormal numbers with median 1. `uniform`, from 0 to 1, is its probability
/// not to be exceeded. @pre sigma ≥ 0, count ≥ 1
double largest_lognormal(double sigma, int count, double uniform);

}  // namespace aloni::model
