#pragma once
// Times of kernels from three sources: measured, learned, roofline. The first source that knows a problem gives its
// time. Each estimate names its source and its probable error.
//
//   const MachineKernels kernels(machine, 2, 1);                  // two ranks per node, one thread each
//   const Estimate time = kernels.of(kernel_of(plan, node));
//   time.seconds, name(time.source), time.relative_error;
#include <aloni/model/kernel.hpp>
#include <aloni/model/machine.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace aloni::model {

enum class KernelSource : std::uint8_t { measured, learned, roofline };
inline constexpr std::size_t kernel_sources = 3;
std::string_view name(KernelSource source);

struct Estimate {
  double seconds = 0;
  KernelSource source = KernelSource::roofline;
  /// Expected, as a share of `seconds`. Measured: the spread of the runs. Learned: the mean error on problems that were
  /// left out of the training. Roofline: a guess for all kernels.
  double relative_error = 0;
};

/// Seconds of several kernels, by the source of their times.
struct KernelSeconds {
  std::array<double, kernel_sources> by_source = {};
  double error = 0;  ///< sum of seconds times Estimate::relative_error, over measured and learned kernels

  /// `seconds`: those of the kernel, which may differ from Estimate::seconds by a factor. @pre seconds ≥ 0
  void add(double seconds, const Estimate& estimate);
  KernelSeconds& operator+=(const KernelSeconds& other);
  double sum() const;
  /// Of the sum, by source; zeros if the kernels take no time.
  std::array<double, kernel_sources> shares() const;

  /// Mean of Estimate::relative_error over the measured and the learned kernels, weighted by their seconds. Errors of
  /// single kernels partly cancel. So this is the largest expected error of the sum of these kernels, as a share of it.
  /// Kernels with the time of a roofline do not count, because no measurement tells their error. Empty if the measured
  /// and learned kernels take no time.
  std::optional<double> relative_error() const;

  /// The source of most seconds, and its share of all. Empty if the kernels take no time.
  struct MainSource {
    KernelSource source = KernelSource::measured;
    double share = 0;
  };
  std::optional<MainSource> main_source() const;
};

/// Of all layers, for example SimulatedStep::kernels.
KernelSeconds sum_of(const std::vector<KernelSeconds>& layers);

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
