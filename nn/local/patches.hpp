#pragma once
// The patches that a convolution multiplies by its filters, as rows of a matrix.
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/gemm.hpp>
#include <aloni/nn/local/local_types.hpp>

namespace aloni::nn::local {

/// Row i has the inputs that output pixel first + i of all samples reads. They are in the order of the weights of a
/// filter: depth, height and width of the kernel, then channel. Inputs outside x are 0. Output pixels count in the
/// order sample, depth, height, width. `ones`: one more column, of ones, for the bias.
/// @pre problem.groups is 1; x has the extents of the problem; rows.columns = weights of a filter, plus 1 with `ones`;
/// first + rows.rows ≤ output pixels of all samples. Throws InvalidArgument.
/// Asynchronous on the given instance.
template <class T, class Exec>
void copy_patches(const Exec& exec, const ConvolutionProblem& problem, InTensor<T, Exec> x, bool ones, Index first,
                  const MatrixRef<parameter_type_t<T>>& rows);

}  // namespace aloni::nn::local
