#pragma once
// The kernel problem of a node of a step plan: the facts that determine the time of its kernel on a given machine.
// Nodes with equal problems take equal time, wherever their boxes lie.
//
//   const std::vector<nn::Reuse> reuse = nn::reuse_of(plan, layout);
//   const KernelProblem problem = kernel_of(plan, plan.nodes[n], reuse[n]);
//   problem.key;                       // "convolution forward n4 c64 f64 in 34x34 …": names it in tables of times
//   for (const KernelCall& call : problem.calls) call.flops;
//
// Pure arithmetic on the plan.
#include <aloni/nn/plan/reuse.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aloni::model {

/// Kinds of kernels. Each has one regressor (learned_kernel.hpp) and one efficiency (Processor).
enum class KernelKind : std::uint8_t {
  convolution_forward,  ///< y from x; also dL/dx where forward kernels compute it (ConvolutionWork::gathers)
  convolution_data,     ///< dL/dx by backward-data kernels
  convolution_filter,   ///< dL/dW
  dense,
  pooling,
  resampling,     ///< adaptive pooling, up-sampling
  normalisation,  ///< all stages
  pointwise,      ///< element by element: ReLU, sums, dropout, rounding, biases, the loss
  optimiser,      ///< updates and norms
  copy            ///< weights in the order of kernels, packed values of a transfer
};
inline constexpr int kernel_kinds = 10;
std::string_view name(KernelKind kind);
std::optional<KernelKind> kernel_kind_named(std::string_view name);

/// One call of a kernel.
struct KernelCall {
  KernelKind kind = KernelKind::copy;
  nn::ElementType type = nn::ElementType::float32;
  /// Inputs of the regressor of the kind, in the order of feature_names(). All ≥ 0.
  std::vector<double> features = {};
  double flops = 0;
  double bytes = 0;  ///< read and written, each region once

  friend bool operator==(const KernelCall&, const KernelCall&) = default;
};

struct KernelProblem {
  std::string key = {};  ///< one line of ASCII; equal for nodes with equal kernels
  std::vector<KernelCall> calls = {};
  double flops() const;
  double bytes() const;
};

/// The names of KernelCall::features of a kind: "samples", "channels", …
const std::vector<std::string_view>& feature_names(KernelKind kind);

/// `reuse`: of the node, for the features of learned models. The key, flops and bytes do not depend on it.
/// @pre `node` is a node of `plan` whose work is neither a transfer nor a reduction
KernelProblem kernel_of(const nn::StepPlan& plan, const nn::PlanNode& node, const nn::Reuse& reuse = {});
/// Replaces the `reuse` of kernel_of(). Each call gets the share of the far bytes that it has of all bytes.
void set_reuse(KernelProblem& problem, const nn::Reuse& reuse);

}  // namespace aloni::model
