#pragma once
// Inverts the factors of K-FAC on the task runtime, on threads beside the training: connects nn/kfac_options.hpp with
// tasks/cholesky.hpp.
#include <aloni/nn/kfac_options.hpp>

namespace aloni::tools {

/// Inverts one matrix after another on a thread of its own, by a tile Cholesky factorisation and the solution for each
/// column of the identity. `workers`: threads of the task runtime, this one included, at least 1. The thread ends with
/// the last copy of the callable; matrices that it has not begun by then are dropped.
/// Without LAPACK each future throws Unsupported. Not collective.
nn::FactorSolver task_factor_solver(int workers);

}  // namespace aloni::tools
