#include <aloni/tools/launcher.hpp>

#include <algorithm>
#include <array>

namespace aloni::tools {

namespace {

// One variable of each launcher is enough: a launcher sets all of its own.
constexpr std::array variables{
    "OMPI_COMM_WORLD_SIZE",  // mpirun of Open MPI
    "PMIX_RANK",             // PMIx: prterun, and srun --mpi=pmix
    "PMI_RANK",              // MPICH (hydra), Intel MPI, Cray PALS
    "PMI_FD",                // MPICH before PMI_RANK is set
    "MV2_COMM_WORLD_RANK",   // MVAPICH
    "SLURM_PROCID",          // srun
    "FLUX_TASK_RANK",        // flux run
    "ALPS_APP_PE",           // aprun
    "PALS_RANKID",           // Cray mpiexec
    "JSM_NAMESPACE_RANK",    // jsrun
};

}  // namespace

bool started_by_launcher(const std::function<const char*(const char* name)>& variable) {
  return std::ranges::any_of(variables, [&](const char* name) { return variable(name) != nullptr; });
}

}  // namespace aloni::tools
