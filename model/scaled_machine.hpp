#pragma once
// A machine with faster or slower parts, for questions about machines that do not exist yet.
//
//   const MachineFactors factors{.flops = 2, .link_bandwidth = 4};
//   const Machine faster = scaled(machine, factors);
//   const ScaledKernels kernels(machine, faster, 4, 1);
//   simulate(network, layers, faster, kernels).seconds;
//
// Latencies and times of calls do not change. Neither do MachineDescription's costs, so the plans are those of the
// machine as it is. Pure.
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/machine.hpp>

namespace aloni::model {

struct MachineFactors {
  double flops = 1;             ///< of the peak rates of all types
  double memory_bandwidth = 1;  ///< of main memory, not of caches; and of copies of ranks of a host
  double link_bandwidth = 1;    ///< between nodes; and between devices of a node

  friend bool operator==(const MachineFactors&, const MachineFactors&) = default;
};

/// Measured all-reduces are left out if a factor of a bandwidth differs from 1: there is no law for their times.
/// Throws InvalidArgument for a factor that is not positive and finite.
Machine scaled(const Machine& machine, const MachineFactors& factors);

/// The kernels of a scaled machine: times of the machine as it is, measured ones too, multiplied by the ratio of the
/// rooflines of both.
class ScaledKernels final : public KernelTimes {
 public:
  /// `scaled_machine` outlives this object, and so does `machine`. @pre ranks_per_node, threads_per_rank ≥ 1
  ScaledKernels(const Machine& machine, const Machine& scaled_machine, int ranks_per_node, int threads_per_rank);
  Estimate of(const KernelProblem& problem) const override;

 private:
  double roofline(const Machine& machine, const KernelProblem& problem) const;

  const Machine *machine_, *scaled_;
  MachineKernels kernels_;
  int ranks_per_node_, threads_per_rank_;
};

}  // namespace aloni::model
