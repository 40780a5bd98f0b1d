#include <aloni/core/bfloat16.hpp>
#include <aloni/core/error.hpp>
#include <aloni/core/float16.hpp>
#include <aloni/core/queue.hpp>
#include <aloni/nn/local/local_types.hpp>
#include <aloni/nn/plan/memory_layout.hpp>
#include <aloni/nn/run/measure_node.hpp>
#include <aloni/tools/kernel_measurement.hpp>

#include <memory>

namespace aloni::tools {

namespace {

/// The plan of the last call, with its layout.
struct LaidOutPlan {
  const nn::StepPlan* plan = nullptr;
  MachineDescription machine;
  nn::MemoryLayout layout;
};

/// Throws Unsupported for a type of activations that this build does not compute.
template <class T>
nn::NodeTime measure(const comm::Communicator& comm, const LaidOutPlan& p, int node,
                     const nn::MeasureOptions& options) {
  using Exec = nn::execution_space_t<T>;
  if constexpr (nn::has_activations<T>)
    return nn::measure_node<T, Exec>(comm, Queue<Exec>(), *p.plan, p.layout, node, p.machine, options);
  throw Unsupported("aloni::tools::kernel_measurement", "activations", nn::name(nn::element_type<T>),
                    "a type of this build (CMake option aloni_ACTIVATIONS)");
}

}  // namespace

model::MeasureKernel kernel_measurement(const comm::Communicator& comm, const model::Machine& machine,
                                        const KernelMeasurementOptions& options) {
  return [comm, &machine, measuring = nn::MeasureOptions{.runs = options.runs, .least_seconds = options.least_seconds},
          last = std::make_shared<LaidOutPlan>()](const nn::StepPlan& plan, int node) {
    if (last->plan != &plan) {
      last->machine = model::description_of(machine, plan.ranks);
      last->layout = nn::lay_out_memory({&plan}, last->machine);
      last->plan = &plan;
    }
    nn::NodeTime time;
    switch (plan.buffers[static_cast<std::size_t>(plan.input)].type) {
      case nn::ElementType::bfloat16:
        time = measure<comm::bfloat16>(comm, *last, node, measuring);
        break;
      case nn::ElementType::float16:
        time = measure<comm::float16>(comm, *last, node, measuring);
        break;
      case nn::ElementType::float64:
        time = measure<double>(comm, *last, node, measuring);
        break;
      case nn::ElementType::float32:
      case nn::ElementType::int32:
        time = measure<float>(comm, *last, node, measuring);
        break;
    }
    const auto mean = [&](double value) { return comm.all_reduce(value, comm::Reduction::sum) / comm.size(); };
    return model::MeasuredKernel{.seconds = mean(time.seconds), .spread = mean(time.spread), .runs = time.runs};
  };
}

}  // namespace aloni::tools
