#pragma once
// Whether a launcher of MPI programs (mpirun, srun) has started this process.
//
//   started_by_launcher(std::getenv);
#include <functional>

namespace aloni::tools {

/// Whether the environment has a variable that a launcher sets: Open MPI, PMIx, MPICH, Intel MPI, MVAPICH, Slurm, Flux,
/// ALPS, PALS, jsrun. `variable`: the value of an environment variable; nullptr if it is not set. Pure.
/// Slurm also sets its variable in a batch script, where no launcher runs. The result is then true as well.
bool started_by_launcher(const std::function<const char*(const char* name)>& variable);

}  // namespace aloni::tools
