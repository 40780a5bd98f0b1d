#pragma once
// Fills a table of measured implementations of convolutions (ConvolutionTable): the distinct convolutions of the plans
// of some networks, each with all implementations that can run it. The tables of the machine are the state of the work:
// times that they have are not measured again.
//
//   std::vector<ConvolutionTask> tasks = convolution_tasks({{net, strategy, 2, 64}}, machine);
//   measure_convolutions(tasks, machine, measure, {.most_workspace_bytes = 1 << 30}, proceed);
//   description_of(machine, 2).convolutions;                  // planners choose by them
//
// Measuring is handed in, as for kernels (measure_kernels.hpp). Pure.
//
// Method. A convolution is measured as the node of a plan that has it. So the measurement has its gaps in memory, its
// bias and the state of the caches in a step. The first node that has it counts: it also puts the filters in the order
// of the kernels.
#include <aloni/model/machine.hpp>
#include <aloni/model/measure_kernels.hpp>
#include <aloni/nn/local/convolution_choice.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace aloni::model {

/// The plans of one rank that differ in the implementation of all convolutions. Made when they are asked for.
class PlansByImplementation;

/// A convolution to measure, by a node all of whose calls compute it.
struct ConvolutionTask {
  nn::local::ConvolutionCase convolution;
  std::shared_ptr<PlansByImplementation> plans;
  int node = 0;
  int calls = 1;  ///< of the node, each of this convolution
};

/// The distinct convolutions of all ranks of all networks, in the order of the networks and their nodes. Left out are
/// those that only one implementation can run, and nodes with several convolutions.
/// Throws InvalidArgument as description_of() and plan_step() do.
std::vector<ConvolutionTask> convolution_tasks(const std::vector<PlannedNetwork>& networks, const Machine& machine);

/// An implementation with the memory that it takes besides its operands.
struct ImplementationToMeasure {
  nn::local::ConvolutionImplementation implementation;
  Index workspace_bytes = 0;
};
using ListImplementations =
    std::function<std::vector<ImplementationToMeasure>(const nn::local::ConvolutionCase& convolution)>;
/// nn::local::implementations_to_measure(), with the scratch memory of their kernels as an estimate.
std::vector<ImplementationToMeasure> list_implementations(const nn::local::ConvolutionCase& convolution,
                                                          const MachineDescription& machine);

struct MeasureConvolutionsOptions {
  Index most_workspace_bytes = Index{1} << 30;  ///< larger ones are not measured; kept in the table
  /// For libraries with several engines; empty: list_implementations() with Machine::planning.
  ListImplementations list = {};
};

struct ConvolutionProgress {
  std::size_t done = 0, all = 0;          ///< convolutions
  const ConvolutionTask* next = nullptr;  ///< null after the last one
};

/// Measures the tasks in their order, and adds the times to the tables of `machine` for its layout of processes: those
/// of implementations to Machine::convolutions, those of whole nodes to Machine::kernels. Times that either table has
/// are not measured again. `proceed` is called before each task and after the last one; false ends the work, and the
/// tables have all results so far. If `measure` is collective, `proceed` returns the same value on all ranks.
/// Throws the exceptions of `measure`; the tables then have the results before. Throws InvalidArgument for a time that
/// is not above 0.
void measure_convolutions(const std::vector<ConvolutionTask>& tasks, Machine& machine, const MeasureKernel& measure,
                          const MeasureConvolutionsOptions& options,
                          const std::function<bool(const ConvolutionProgress&)>& proceed);

}  // namespace aloni::model
