#pragma once
// The part of `aloni calibrate` that measures the kernels of factorisations on tiles (tasks/kernel_time.hpp).
#include <aloni/core/comm/communicator.hpp>
#include <aloni/model/machine.hpp>

#include <cstdint>
#include <vector>

namespace aloni::tools {

inline constexpr std::int64_t most_tile_rows = 8192;

/// Throws UsageError in builds without aloni_ENABLE_LAPACK.
void check_tiles_can_be_measured();

/// Adds the times of potrf, getrf, trsm, syrk and gemm to the table for the layout of processes of `machine`. The tiles
/// are square and have these sizes, in float and double. All ranks of a node measure at the same time, each with
/// machine.threads_per_rank workers. Times that the table has are replaced. Equal on all ranks: the mean over ranks.
/// Collective. Throws as tasks::kernel_seconds().
void add_tile_kernels(const comm::Communicator& comm, model::Machine& machine, const std::vector<std::int64_t>& tiles);

}  // namespace aloni::tools
