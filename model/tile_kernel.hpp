#pragma once
// The times of kernels on tiles, for simulate_tasks() (task_simulation.hpp).
//
//   const TileKernelTimes kernels(machine, 2, 8);                 // two ranks per node, eight workers each
//   kernels.of({tasks::Kernel::gemm, nn::ElementType::float64, 256, 256, 256}).seconds;
//
// Sources, the first one that knows a kernel: a time of the machine file for this shape; the rate of measured tiles of
// other sizes; the roofline. `aloni calibrate --tiles` measures.
#include <aloni/model/kernel_times.hpp>
#include <aloni/model/machine.hpp>
#include <aloni/model/task_simulation.hpp>
#include <aloni/tasks/task.hpp>
#include <aloni/views/tile_distribution.hpp>

#include <map>
#include <optional>
#include <string>
#include <utility>

namespace aloni::model {

/// A kernel of a factorisation. `rows` and `columns` are those of the tile that it writes. `inner`: for gemm and syrk
/// the columns of the left operand, for trsm the order of the triangle, otherwise as `columns`.
struct TileKernel {
  tasks::Kernel kernel = tasks::Kernel::gemm;
  nn::ElementType type = nn::ElementType::float64;
  Index rows = 0, columns = 0, inner = 0;

  friend bool operator==(const TileKernel&, const TileKernel&) = default;
};

/// "tile gemm double 256x256x256": names its time in KernelTable::times.
std::string key_of(const TileKernel& kernel);
/// Floating-point operations, as LAPACK counts them, without terms of lower order (Anderson et al., "LAPACK Users'
/// Guide", appendix C; "Installing LAPACK", LAPACK Working Note 41, 1999). @pre a kernel of Cholesky or LU
double flops_of(const TileKernel& kernel);
/// Bytes that it reads and writes, each tile once.
double bytes_of(const TileKernel& kernel);

/// The kernel of a task of cholesky() or lu() on a matrix with these tiles.
/// Throws Unsupported for tasks of other graphs.
TileKernel kernel_of(const tasks::Task& task, const views::TileDistribution& tiles, nn::ElementType type);

class TileKernelTimes {
 public:
  /// `machine` outlives this object. Of several tables with tiles, the one counts in which about as many cores of a
  /// node computed. @pre ranks_per_node, workers ≥ 1. Throws InvalidArgument as MachineKernels does.
  TileKernelTimes(const Machine& machine, int ranks_per_node, int workers);
  /// Source: measured also if the rate follows from measured tiles of other sizes. The rate is then interpolated
  /// between the next smaller and the next larger one, by the logarithm of the flops; outside it is that of the
  /// nearest.
  Estimate of(const TileKernel& kernel) const;

 private:
  using Rates = std::map<double, double>;  ///< flops per second, by the flops of a call

  const Machine* machine_;
  int busy_cores_;
  const KernelTable* table_ = nullptr;
  std::map<std::pair<tasks::Kernel, nn::ElementType>, Rates> rates_;
};

/// cholesky() or lu() of a matrix with these tiles on their ranks. `kernels` outlives the result.
TasksOnRanks factorisation_on(const views::TileDistribution& tiles, nn::ElementType type,
                              const TileKernelTimes& kernels, int workers);

}  // namespace aloni::model
