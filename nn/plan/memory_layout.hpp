#pragma once
// Where the buffers of step plans lie in memory. Buffers that are in use at different times share memory: a gradient
// takes the place of another one that is no longer read. Pure arithmetic.
//
//   const MemoryLayout layout = lay_out_memory({&training, &inference}, machine);
//   layout.private_bytes + layout.shared_bytes;          // instead of the sum of all buffers
//   layout.places.at("conv1_dy").offset;
//
// A buffer is in use from the first to the last node that uses it. It is not in use where its contents are computed
// again later, or lie in host memory (PlanBuffer::unused). This holds in the list of the plan, and in the order of
// schedule(). A transfer uses its buffers from its start to its finish. Two buffers share memory only if one is done
// before the other begins, in both orders. So the dependencies that sharing adds hold in the schedule already, and the
// order of the actions stays as it was.
//
// The gradients of the parameters lie in memory of Parameters (StepPlan::gradient_memory). In a step with an update
// they are needed from their first access to the update. Before that, other buffers use this memory, and so do those of
// an inference step. Steps without an update leave their gradients to the caller: no other buffer uses their memory.
//
// The buffers are placed by descending size, each into the smallest gap that is free while it is in use. Source:
// Pisarchyk and Lee, Efficient memory management for deep neural net inference, 2020, section 5.2.
#include <aloni/core/machine.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace aloni::nn {

enum class MemoryKind : std::uint8_t {
  own,     ///< of this rank alone
  shared,  ///< the ranks of a node read it
  host     ///< host memory of a rank whose kernels run on a device
};
/// @pre `shares`: whether the ranks of a node share memory
MemoryKind memory_kind(const PlanBuffer& buffer, bool shares);

struct MemoryLayout {
  struct Place {
    MemoryKind memory = MemoryKind::own;
    Index offset = 0;  ///< in bytes; a multiple of `alignment`, except that of a gradient of parameters
    Index bytes = 0;
    int segment = -1;  ///< in the memory of the gradients of this segment of the parameters; -1: in that of the layout
  };
  static constexpr Index alignment = 64;

  /// By the name of the buffer. Aliases have no place, and neither have buffers with memory of their own: those of
  /// has_own_memory(), apart from gradients of parameters whose memory other buffers use.
  std::map<std::string, Place> places = {};
  Index private_bytes = 0, shared_bytes = 0, host_bytes = 0;  ///< multiples of `alignment`

  Index& bytes_of(MemoryKind memory) {
    return memory == MemoryKind::host ? host_bytes : memory == MemoryKind::shared ? shared_bytes : private_bytes;
  }
  Index bytes_of(MemoryKind memory) const { return const_cast<MemoryLayout*>(this)->bytes_of(memory); }
  /// Without host_bytes.
  Index bytes() const { return private_bytes + shared_bytes; }
};

/// Whether Parameters has the memory of a buffer: learned tensors, their gradients and the optimiser's state.
bool is_learned(const PlanBuffer& buffer);
/// Whether a buffer keeps its memory for itself: its contents outlive the step, or others allocate it.
bool has_own_memory(const PlanBuffer& buffer);

/// Whether other buffers use the memory of the gradients of parameters while the nodes of the plan do not need them.
bool lends_gradient_memory(const StepPlan& plan);

/// Layout for plans of one rank that run one after the other. Buffers of one name are one buffer.
/// @pre `machine` describes all ranks of the plans; a name has one type and role in all plans
MemoryLayout lay_out_memory(const std::vector<const StepPlan*>& plans, const MachineDescription& machine);

/// The first access to a value that another buffer in the same place has overwritten, or nothing. Runs the actions in
/// the order of schedule(). Proves layouts in tests; not needed to run a plan.
std::optional<std::string> find_overwritten(const StepPlan& plan, const MemoryLayout& layout,
                                            const ScheduleOptions& order = {});

}  // namespace aloni::nn
