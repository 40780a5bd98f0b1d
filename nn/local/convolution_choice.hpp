#pragma once
// The implementation that computes a pass of a convolution fastest. A pure rule: it uses the problem and the facts of
// the machine (MachineDescription). So all ranks choose the same implementation, and any plan names the kernels that
// run.
//
// The sources of a choice, in their order:
//   1. measured times of the problem (MachineDescription::convolutions, which a machine file brings);
//   2. those of the nearest measured problem of the same kind, at most `farthest_measured` away
//      (convolution_times.hpp);
//   3. rules on shapes, the same for all machines.
// Times that differ by less than `least_gain_of_choice` do not replace the choice of the rules: they are noise.
//
// Bits. Implementations add products in different orders, so their results differ in the last bits. Runs give equal
// bits only with equal tables; a table belongs to a number of threads. Forward and evaluation, full and last
// mini-batches are problems of their own, which may have different implementations.
#include <aloni/core/machine.hpp>
#include <aloni/nn/local/convolution_problem.hpp>
#include <aloni/nn/local/convolution_times.hpp>
#include <aloni/nn/local/element_type.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::nn::local {

/// The choice by the rules on shapes. Never `automatic`. `type`: of the activations. With bfloat16 on the host always
/// `onednn`.
/// On a device it is cuDNN where the machine has it. Without an engine for the problem Kokkos Kernels run in its place,
/// and LocalConvolution::implementation() says so.
/// Without AVX-512 oneDNN lacks kernels for some large volumes. Then the direct kernels run in its place, and
/// LocalConvolution::implementation() says so.
ConvolutionBackend choose_backend(const ConvolutionProblem& problem, ConvolutionPass pass, ElementType type,
                                  const MachineDescription& machine);

/// The source of a choice.
enum class ChoiceSource : std::uint8_t { given, rule, near, measured };
/// "given", "rule", "near", "measured".
std::string_view name(ChoiceSource source);

struct ConvolutionChoice {
  ConvolutionImplementation implementation = {};
  ChoiceSource source = ChoiceSource::rule;

  friend bool operator==(const ConvolutionChoice&, const ConvolutionChoice&) = default;
};

/// A measured implementation takes the place of the one of the rules if it is faster by this share or more.
inline constexpr double least_gain_of_choice = 0.05;

/// Equal on all ranks with equal machines. Takes no implementation that cannot_run() or whose workspace is larger than
/// MeasuredImplementations::most_workspace_bytes().
ConvolutionChoice choose_convolution(const ConvolutionCase& convolution, const MachineDescription& machine);

/// One line that says why: "measured: onednn 1.20 ms, direct 1.90 ms", with the chosen one first; "near: the times of
/// forward float32 …: …"; "rule: the nearest measured problem is 3.2 times as large or small"; "rule: no measured
/// times".
std::string explain_choice(const ConvolutionCase& convolution, const MachineDescription& machine);

/// Whether the machine lacks an implementation, or it is not given this problem: oneDNN computes some wrongly.
bool cannot_run(ConvolutionBackend backend, const ConvolutionCase& convolution, const MachineDescription& machine);

/// Whether oneDNN's implementation computes the gradient of these filters by matrix products, which are faster than its
/// convolution there (detail/filter_products.hpp). The same on all machines with x86-64; false on others.
bool multiplies_for_filters(const ConvolutionProblem& problem, ElementType type);
/// Whether these products read dense copies of views with gaps: short rows with one tap become one long row. Otherwise
/// they read views in place whose channels follow each other.
bool copies_for_products(const ConvolutionProblem& problem);

/// The implementations that are worth a measurement: all that can run the problem, without `reference` where a vector
/// kernel can. cuDNN without an engine stands for all its engines.
std::vector<ConvolutionBackend> implementations_to_measure(const ConvolutionCase& convolution,
                                                           const MachineDescription& machine);

}  // namespace aloni::nn::local
