#pragma once
// Times of kernels from three sources: measured, learned, roofline. The first source that knows a problem gives its
// time. Each estimate names its source and its probable error.
//
//   const MachineKernels kernels(machine, 2, 1);                  // two ranks per node, one thread each
//   const Estimate time = kernels.of(kernel_of(plan, node));
//   time.seconds, name(time.source), time.relative_error;
#include <aloni/model/kernel.hpp>
#include <aloni/model/machine.hpp>

#include <cstdint>
#include <string_view>

namespace aloni::model {

enum class KernelSource : std::uint8_t { measured, learned, roofline };
std::string_view name(KernelSource source);

struct Estimate {
  double seconds = 0;
  KernelSource source = KernelSource::roofline;
  double relative_error = 0;  ///< probable, as a share of `seconds`
};

/// Anything that gives times of kernels: a machine, or a test.
class KernelTimes {
 public:
  virtual ~KernelTimes() = default;
  virtual Estimate of(const KernelProblem& problem) const = 0;
};

/// The kernels of a machine in one layout of processes. A roofline adds Processor::kernel_seconds for each call.
class MachineKernels final : public KernelTimes {
 public:
  /// `machine` outlives this object. @pre ranks_per_node, threads_per_rank ≥ 1
  MachineKernels(const Machine& machine, int ranks_per_node, int threads_per_rank);
  Estimate of(const KernelProblem& problem) const override;

 private:
  const Machine* machine_;
  int ranks_per_node_, threads_per_rank_;
  const KernelTable* table_;
};

/// The roofline of a call (Williams, Waterman and Patterson 2009): the larger one of two times. Arithmetic runs at the
/// peak rate times the efficiency of its kind. Traffic runs at the bandwidth of the memory level that holds its bytes.
/// The ranks of the node share the bandwidth of memory and the shared cache.
double roofline_seconds(const Machine& machine, const KernelCall& call, int ranks_per_node, int threads_per_rank);

}  // namespace aloni::model
