#include "conv/interior_run.hpp"

#include "conv/check.hpp"
#include "conv/split_run.hpp"

#include <aloni/nn/network_plan.hpp>
#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/nn/strategy.hpp>
#include <aloni/nn/tensor.hpp>

#include <limits>
#include <stdexcept>
#include <string>
#include <variant>

namespace aloni::bench {

using namespace nn::local;
namespace {

/// The calls of the forward pass in the plan of a rank.
std::vector<nn::ConvolutionCall> forward_calls(const Layer& layer, nn::LayerSplit split, int rank,
                                               nn::Overlap overlap) {
  split.overlap = overlap;
  const nn::NetworkDescription net = network_of(layer);
  const int ranks = split.size();
  const nn::NetworkPlan layers =
      nn::plan_network(net, resolve(nn::Strategy::uniform(split), net, ranks), ranks, layer.problem.samples);
  // A plan without slabs, and with an interior whatever it costs: the benchmark shows its cost.
  MachineDescription machine =
      machine_of_this_build(Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible);
  machine.most_slabs = 1;
  const nn::StepPlan plan = nn::plan_step(net, layers, rank, nn::StepKind::inference, machine,
                                          {.largest_overhead = std::numeric_limits<double>::infinity()});
  std::vector<nn::ConvolutionCall> calls;
  for (const nn::PlanNode& node : plan.nodes)
    if (const auto* work = std::get_if<nn::ConvolutionWork>(&node.work))
      calls.insert(calls.end(), work->calls.begin(), work->calls.end());
  return calls;
}

/// The call that computes all outputs of the rank.
nn::ConvolutionCall whole_call(const Layer& layer, const nn::LayerSplit& split, int rank) {
  std::vector<nn::ConvolutionCall> calls = forward_calls(layer, split, rank, nn::Overlap::blocking);
  if (calls.size() != 1 || !calls.front().computes)
    throw std::runtime_error("bench::InteriorRun: the blocking plan of " + layer.name + " has " +
                             std::to_string(calls.size()) + " calls, expected one");
  return calls.front();
}

std::vector<nn::ConvolutionCall> calls_of(const Layer& layer, const nn::LayerSplit& split, int rank,
                                          bool interior_first) {
  if (!interior_first) return {whole_call(layer, split, rank)};
  std::vector<nn::ConvolutionCall> calls = forward_calls(layer, split, rank, nn::Overlap::interior_first);
  if (calls.size() < 2) throw std::runtime_error("bench::InteriorRun: the plan of " + layer.name + " has no interior");
  return calls;
}

}  // namespace

InteriorRun::InteriorRun(const Layer& layer, const nn::LayerSplit& split, int rank, bool interior_first)
    : InteriorRun(layer, whole_call(layer, split, rank), calls_of(layer, split, rank, interior_first)) {}

InteriorRun::InteriorRun(const Layer& layer, const nn::ConvolutionCall& whole,
                         const std::vector<nn::ConvolutionCall>& calls)
    : flops_(nn::local::flops(whole.problem)),
      x_(queue_.space(), input_extents(whole.problem), 1),
      y_(queue_.space(), output_extents(whole.problem), 2),
      w_(queue_.space(), filter_extents(layer.problem), 3) {
  for (const nn::ConvolutionCall& call : calls) {
    if (!contains(whole.source, call.source) || !contains(whole.target, call.target))
      throw std::runtime_error("bench::InteriorRun: a call of " + layer.name + " reaches beyond the rank's boxes");
    calls_.push_back({make_local_convolution<float>(call.backend, call.problem, queue_.space(),
                                                    {.forward = true,
                                                     .dense_input = call.source == whole.source,
                                                     .dense_output = call.target == whole.target}),
                      nn::part_of(x_.view(), whole.source, call.source),
                      nn::part_of(y_.view(), whole.target, call.target)});
    calls_.back().convolution->set_filter_version(1);
  }
  Kokkos::deep_copy(queue_.space(), y_.data, std::numeric_limits<float>::quiet_NaN());
  run();
  y_.bring_down(queue_.space());
  check(whole.problem, ConvolutionPass::forward, {x_.host.data(), x_.extents}, {y_.host.data(), y_.extents},
        {w_.host.data(), w_.extents}, calls.size() > 1 ? "interior and border" : "unsplit");
}

void InteriorRun::run() {
  for (const Call& call : calls_) call.convolution->forward(queue_.space(), call.x, w_.view(), {}, call.y);
  queue_.fence("aloni::bench: end of repetition");
}

}  // namespace aloni::bench
