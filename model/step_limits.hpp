#pragma once
// Limits by which a step is planned, where a machine knows better than the constants of the library. They are the size
// of buckets of gradients and of chunks of partial sums. A further limit decides whether convolutions compute interiors
// before ghosts arrive.
//
//   const StepLimits limits = choose_step_limits(net, layers, machine, kernels, {.step = step});
//   machine.planning.bucket_bytes = limits.bucket_bytes;       // TrainOptions::bucket_bytes of a training
//   step.largest_overhead = limits.largest_overhead;           // TrainOptions::largest_overhead
//
// Large buckets and chunks save the latency of messages, small ones start earlier beside kernels. An interior hides the
// time of messages, and costs calls of kernels. simulate() prices the steps with a few values of each. Pure.
#include <aloni/core/index.hpp>
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/model/simulate.hpp>
#include <aloni/nn/network_description.hpp>
#include <aloni/nn/network_plan.hpp>

#include <optional>
#include <string>

namespace aloni::model {

struct StepLimits {
  Index bucket_bytes = 0, chunk_bytes = 0;      ///< MachineDescription::bucket_bytes, chunk_bytes
  std::optional<double> largest_overhead = {};  ///< StepOptions::largest_overhead; empty: the limits of the machine
  double seconds = 0, seconds_before = 0;       ///< of a step: with these limits, and with those given
  std::string reason = {};                      ///< one line: the limits that differ, and the gain
};

/// StepOptions::largest_overhead for convolutions that never compute an interior first, and that always do.
inline constexpr double interior_at_once = 0, interior_always_first = 10;

/// The given limits, those of the machine and of `options`, unless others make the step at least 1 % faster.
/// @pre `layers` was made from `network`. Throws as simulate().
StepLimits choose_step_limits(const nn::NetworkDescription& network, const nn::NetworkPlan& layers,
                              const Machine& machine, const KernelTimes& kernels,
                              const SimulationOptions& options = {});

/// MachineDescription::multiplications_per_slab of a measured machine. Between slabs of an interior messages make
/// progress; within one they wait. So a slab should take no longer than a fragment of a message on the link between
/// nodes. But each slab also costs a call, and fills the cache of the core with filters and rows again, from the shared
/// cache. A slab therefore takes at least so long that these costs are `interior_overhead_beside_messages` of it.
/// The rate is that of convolutions by the roofline. The value of `machine.planning` if the processor is not measured.
double multiplications_per_slab(const Machine& machine);

}  // namespace aloni::model
