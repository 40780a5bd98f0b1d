#include <aloni/model/scaled_machine.hpp>

#include <aloni/core/error.hpp>

#include <cmath>
#include <string>

namespace aloni::model {

namespace {

void check_factor(const char* name, double factor) {
  if (factor > 0 && std::isfinite(factor)) return;
  throw InvalidArgument("aloni::model::scaled", name, std::to_string(factor), "a factor above 0");
}

}  // namespace

Machine scaled(const Machine& machine, const MachineFactors& factors) {
  check_factor("flops", factors.flops);
  check_factor("memory_bandwidth", factors.memory_bandwidth);
  check_factor("link_bandwidth", factors.link_bandwidth);
  Machine result = machine;
  Processor& processor = result.processor;
  for (double* rate :
       {&processor.float32_flops, &processor.float64_flops, &processor.bfloat16_flops, &processor.float16_flops})
    *rate *= factors.flops;
  processor.core_bandwidth *= factors.memory_bandwidth;
  processor.node_bandwidth *= factors.memory_bandwidth;
  result.combine_seconds_per_byte /= factors.memory_bandwidth;
  // Ranks of a host exchange values through memory.
  const double inside = machine.planning.on_host ? factors.memory_bandwidth : factors.link_bandwidth;
  const auto divide = [&](LinkKind kind, double factor) {
    result.links[static_cast<std::size_t>(kind)].seconds_per_byte /= factor;
  };
  divide(LinkKind::self, factors.memory_bandwidth);
  divide(LinkKind::shared_memory, inside);
  divide(LinkKind::within_node, inside);
  divide(LinkKind::between_nodes, factors.link_bandwidth);
  if (factors.memory_bandwidth != 1 || factors.link_bandwidth != 1) result.all_reduces.clear();
  return result;
}

ScaledKernels::ScaledKernels(const Machine& machine, const Machine& scaled_machine, int ranks_per_node,
                             int threads_per_rank)
    : machine_(&machine),
      scaled_(&scaled_machine),
      kernels_(machine, ranks_per_node, threads_per_rank),
      ranks_per_node_(ranks_per_node),
      threads_per_rank_(threads_per_rank) {}

Estimate ScaledKernels::of(const KernelProblem& problem) const {
  Estimate estimate = kernels_.of(problem);
  const double before = roofline(*machine_, problem);
  if (before > 0) estimate.seconds *= roofline(*scaled_, problem) / before;
  return estimate;
}

double ScaledKernels::roofline(const Machine& machine, const KernelProblem& problem) const {
  double seconds = machine.processor.kernel_seconds;
  for (const KernelCall& call : problem.calls)
    seconds += roofline_seconds(machine, call, ranks_per_node_, threads_per_rank_);
  return seconds;
}

}  // namespace aloni::model
