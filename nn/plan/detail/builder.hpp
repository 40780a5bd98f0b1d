#pragma once
// A step plan under construction. Planners of layers add buffers and nodes. The builder names nodes and numbers the
// communication. It knows the facts that all planners need: the rank, the machine, the types.
#include <aloni/core/machine.hpp>
#include <aloni/nn/plan/step_plan.hpp>

#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace aloni::nn::detail {

class PlanBuilder {
 public:
  /// `backend`: of all convolutions; automatic: the fastest for each (nn/local/convolution_choice.hpp).
  /// `tf32`: StepOptions::tf32.
  PlanBuilder(StepPlan& plan, const MachineDescription& machine, ElementType activations,
              local::ConvolutionBackend backend = local::ConvolutionBackend::automatic, bool tf32 = false)
      : plan_(plan), machine_(machine), activations_(activations), backend_(backend), tf32_(tf32) {}

  StepPlan& plan() { return plan_; }
  const MachineDescription& machine() const { return machine_; }
  int rank() const { return plan_.rank; }
  int ranks() const { return plan_.ranks; }
  /// Type of activations and their gradients.
  ElementType activations() const { return activations_; }
  /// Type of parameters and of sums.
  ElementType parameters() const { return is_16_bit(activations_) ? ElementType::float32 : activations_; }
  /// Chooses the implementation of a call.
  void choose_implementation(ConvolutionCall& call, const local::ConvolutionCase& convolution) const;
  /// Whether a convolution of this type multiplies in TF32.
  bool uses_tf32(local::ConvolutionBackend backend, ElementType type) const {
    return tf32_ && backend == local::ConvolutionBackend::cudnn && type == ElementType::float32;
  }

  const PlanBuffer& operator[](BufferId b) const { return plan_.buffers[static_cast<std::size_t>(b)]; }
  PlanBuffer& at(BufferId b) { return plan_.buffers[static_cast<std::size_t>(b)]; }
  /// Memory is shared by name, so each buffer has its own. Throws InvalidArgument for a name that exists: two names of
  /// layers with endings are equal.
  BufferId add(PlanBuffer buffer);
  /// A flat buffer of `elements` elements.
  BufferId add_array(std::string name, BufferRole role, ElementType type, Index elements);

  /// The next nodes belong to this layer and phase. `scope`: prefix of their labels.
  void begin(std::string scope, int layer, StepPhase phase) {
    scope_ = std::move(scope);
    layer_ = layer;
    phase_ = phase;
  }

  /// The parts that a node reads or writes; empty boxes and no_buffer are left out.
  using Regions = std::vector<PlanRegion>;
  PlanRegion whole(BufferId b) const { return b == no_buffer ? PlanRegion{} : PlanRegion{b, (*this)[b].box}; }
  PlanRegion owned(BufferId b) const { return b == no_buffer ? PlanRegion{} : PlanRegion{b, (*this)[b].owned}; }

  PlanNode& add(const std::string& what, Work work, Regions reads, Regions writes);
  /// A transfer. Every rank adds it, also with empty plans: its messages and its set-up are collective.
  PlanNode& transfer(const std::string& what, TransferWork work, Regions reads, Regions writes);
  /// Every rank calls it; a node is added if the rank is one of several members and there are elements. Chooses the
  /// algorithm.
  void reduction(const std::string& what, ReductionWork work, Regions regions);

 private:
  /// Limit for AllReducePlan::part_elements; 0: none.
  Index most_part_elements(const ReductionWork& work) const;

  StepPlan& plan_;
  const MachineDescription& machine_;
  ElementType activations_;
  local::ConvolutionBackend backend_;
  bool tf32_;
  std::map<std::vector<int>, comm::AllReduceChooser> choosers_ = {};  ///< by members
  std::unordered_set<std::string> names_ = {};                        ///< of the buffers
  std::string scope_;
  int layer_ = -1;
  StepPhase phase_ = StepPhase::forward;
};

/// A flat box.
inline views::Box flat(Index elements) { return {{0, 0, 0, 0, 0}, {1, 1, 1, 1, elements}}; }

}  // namespace aloni::nn::detail
