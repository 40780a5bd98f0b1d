#pragma once
// The implementation that computes a pass of a convolution fastest. A pure rule: it uses the shape, the type and what
// the machine has (MachineDescription). So all ranks choose the same, and any plan names the kernels that run.
#include <aloni/core/machine.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/element_type.hpp>

namespace aloni::nn::local {

/// Never `automatic`. `type`: of the activations. With bfloat16 on the host always `onednn`.
/// On a device it is cuDNN where the machine has it. Without an engine for the problem Kokkos Kernels run in its place,
/// and LocalConvolution::implementation() says so.
/// Without AVX-512 oneDNN lacks kernels for some large volumes. Then the direct kernels run in its place, and
/// LocalConvolution::implementation() says so.
ConvolutionBackend choose_backend(const ConvolutionProblem& problem, ConvolutionPass pass, ElementType type,
                                  const MachineDescription& machine);

}  // namespace aloni::nn::local
