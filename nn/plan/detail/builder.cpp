#include <aloni/nn/plan/detail/builder.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/local/convolution_choice.hpp>

#include <aloni/nn/plan/detail/reduction_members.hpp>

#include <algorithm>

namespace aloni::nn::detail {

BufferId PlanBuilder::add(PlanBuffer buffer) {
  if (!names_.insert(buffer.name).second) {
    throw InvalidArgument("aloni::nn::plan_step", "layers", "two with a buffer \"" + buffer.name + '"',
                          "other names: that of one layer must not be that of another one with an ending");
  }
  plan_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(plan_.buffers.size()) - 1;
}

void PlanBuilder::choose_implementation(ConvolutionCall& call, const local::ConvolutionCase& convolution) const {
  local::ConvolutionChoice choice{{backend_}, local::ChoiceSource::given};
  if (backend_ == local::ConvolutionBackend::automatic) choice = local::choose_convolution(convolution, machine_);
  call.backend = choice.implementation.backend;
  call.engine = choice.implementation.engine;
  call.chosen_by = choice.source;
}

BufferId PlanBuilder::add_array(std::string name, BufferRole role, ElementType type, Index elements) {
  return add({.name = std::move(name), .role = role, .type = type, .owned = flat(elements), .box = flat(elements)});
}

PlanNode& PlanBuilder::add(const std::string& what, Work work, Regions reads, Regions writes) {
  const auto nothing = [](const PlanRegion& r) { return r.buffer == no_buffer || r.box.empty(); };
  std::erase_if(reads, nothing);
  std::erase_if(writes, nothing);
  plan_.nodes.push_back({.label = what.empty() ? scope_ : scope_ + ": " + what,
                         .layer = layer_,
                         .phase = phase_,
                         .work = std::move(work),
                         .reads = std::move(reads),
                         .writes = std::move(writes)});
  return plan_.nodes.back();
}

PlanNode& PlanBuilder::transfer(const std::string& what, TransferWork work, Regions reads, Regions writes) {
  for (const TransferItemPlan& item : work.items) {
    at(item.source).shared = true;
    at(item.destination).shared = true;
  }
  PlanNode& node = add(what, std::move(work), std::move(reads), std::move(writes));
  node.communication = plan_.communications++;
  return node;
}

/// Sums of gradients between nodes run in the background. The values that a kernel waits for, for example those of a
/// batch normalisation, leave behind the parts of these sums that have begun. So a part takes two milliseconds of the
/// link, if that is known. Smaller parts than the least size cost more messages than they save time: with 256 KiB,
/// 128 KiB and 64 KiB at 1 Gbit/s the communication of ResNet-18 takes 0.64, 0.73 and 0.94 of the time with 4 MiB.
Index PlanBuilder::most_part_elements(const ReductionWork& work) const {
  constexpr double seconds_of_part = 2e-3;
  constexpr double least_bytes = 256 * 1024, most_bytes = 1 << 30;
  if (work.segment < 0 || work.partial || !machine_.on_host || !machine_.tuning) return 0;
  if (machine_.tuning->nodes < 2 || !(machine_.tuning->seconds_per_byte > 0)) return 0;
  const double bytes = std::clamp(seconds_of_part / machine_.tuning->seconds_per_byte, least_bytes, most_bytes);
  return static_cast<Index>(bytes) / bytes_of(work.type);
}

void PlanBuilder::reduction(const std::string& what, ReductionWork work, Regions regions) {
  const int number = plan_.communications++;
  if (work.members.size() < 2 || work.elements == 0) return;
  auto chooser = choosers_.find(work.members);
  if (chooser == choosers_.end()) {
    const comm::AllReduceChooser choose(positions_by_node(work.members, machine_), machine_.shared_memory,
                                        machine_.tuning);
    chooser = choosers_.emplace(work.members, choose).first;
  }
  work.plan = chooser->second(work.travelling_elements(), static_cast<int>(bytes_of(work.type)));
  if (const Index most = most_part_elements(work); most > 0 && work.plan.part_elements > most)
    work.plan.part_elements = most;
  add(what, std::move(work), regions, regions).communication = number;
}

}  // namespace aloni::nn::detail
