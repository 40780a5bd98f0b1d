#include <aloni/nn/plan/process_memory.hpp>

#include <aloni/core/comm/all_reduce_traffic.hpp>
#include <aloni/nn/local/convolution_choice.hpp>
#include <aloni/nn/plan/detail/reduction_members.hpp>
#include <aloni/nn/plan/memory.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

namespace aloni::nn {

namespace {

using halo::Message;
using halo::Move;
using views::Box;

/// The values that one rank packs, or reads in the memory of other ranks, in one direction of a transfer.
class TransferPages {
 public:
  TransferPages(const StepPlan& plan, const MachineDescription& machine) : plan_(plan), machine_(machine) {}

  void add(const TransferWork& work) {
    std::map<std::pair<int, bool>, Index> bytes;  // by peer, and whether this rank sends
    for (const TransferItemPlan& item : work.items)
      for (const bool sends : {true, false})
        for (const Message& m : messages(work, item, sends)) bytes[{m.peer, sends}] += m.elements * element(item);
    for (const TransferItemPlan& item : work.items) {
      for (const bool sends : {true, false}) {
        for (const Message& m : messages(work, item, sends)) {
          if (!machine_.share_memory(plan_.rank, m.peer)) continue;
          if (bytes.at({m.peer, sends}) < machine_.direct_bytes) {
            packed += m.elements * element(item);
          } else {
            for (const Move& move : m.moves) add(work, item, m.peer, move, sends);
          }
        }
      }
    }
  }

  /// At most the shared memory of each of them. `shared`: the shared memory of this rank; that of others is similar.
  Index opened(Index shared) const {
    Index sum = 0;
    for (const auto& [peer, bytes] : opened_) sum += std::min(bytes, shared);
    return sum;
  }
  Index packed = 0;

 private:
  Index element(const TransferItemPlan& item) const {
    return bytes_of(plan_.buffers[static_cast<std::size_t>(item.source)].type);
  }
  static const std::vector<Message>& messages(const TransferWork& work, const TransferItemPlan& item, bool sends) {
    return sends != work.adjoint ? item.plan.sends : item.plan.receives;
  }
  /// The receiver copies the values from the sender's tensor, or from the sender's packed message where pieces are
  /// shorter than a cache line. Ghosts in place are packed for the adjoint.
  void add(const TransferWork& work, const TransferItemPlan& item, int peer, const Move& move, bool sends) {
    constexpr Index cache_line = 64;
    const Box& part = work.adjoint ? move.destination : move.source;
    // The peer's buffer has the extents of this rank's buffer, or nearly so.
    const Box& memory = work.adjoint ? item.destination_box : item.source_box;
    const bool packs =
        (work.adjoint && item.source == item.destination) || run_bytes(part, memory, element(item)) < cache_line;
    const Index bytes = move.source.size() * element(item);
    if (sends) {
      if (packs) packed += bytes;
      return;
    }
    const Index pages = packs ? bytes : touched_bytes(part, memory, element(item), machine_.page_bytes);
    opened_[peer] += pages;
  }

  const StepPlan& plan_;
  const MachineDescription& machine_;
  std::map<int, Index> opened_;
};

/// Pages of other ranks' values that a sum reads and writes: a rank combines its block of the values of all ranks.
Index opened_by(const StepPlan& plan, const ReductionWork& work, const MachineDescription& machine) {
  const auto sharing =
      std::ranges::count_if(work.members, [&](int r) { return r != plan.rank && machine.share_memory(plan.rank, r); });
  if (work.plan.algorithm != comm::AllReduceAlgorithm::direct) return 0;
  return static_cast<Index>(sharing) * work.travelling_elements() * bytes_of(work.type) /
         static_cast<Index>(work.members.size());
}

/// Convolution kernels that a Network makes for the plans: one for each pass, problem and part of the weights.
Index count_kernels(const std::vector<const StepPlan*>& plans) {
  std::set<std::tuple<std::string, int, std::string>> kernels;
  for (const StepPlan* plan : plans) {
    const auto add = [&](int weights, const std::vector<ConvolutionCall>& calls, int pass) {
      const BufferId w = plan->convolution_weights[static_cast<std::size_t>(weights)].w;
      for (const ConvolutionCall& call : calls)
        if (call.computes)
          kernels.emplace(plan->buffers[static_cast<std::size_t>(w)].name + ' ' + std::to_string(call.part), pass,
                          to_string(call.problem));
    };
    for (const PlanNode& node : plan->nodes) {
      if (const auto* work = std::get_if<ConvolutionWork>(&node.work)) {
        add(work->weights, work->calls, (work->gathers ? 0 : 1) + (work->relu ? 3 : 0));
      } else if (const auto* gradient = std::get_if<FilterGradientWork>(&node.work)) {
        add(gradient->weights, gradient->calls, 2);
      }
    }
  }
  return static_cast<Index>(kernels.size());
}

/// Whether a gradient of filters is computed by oneDNN's matrix products.
bool multiplies_for_filters(const StepPlan& plan) {
  return std::ranges::any_of(plan.nodes, [&](const PlanNode& node) {
    const auto* const work = std::get_if<FilterGradientWork>(&node.work);
    if (!work) return false;
    const ElementType type = plan.buffers[static_cast<std::size_t>(work->x)].type;
    return std::ranges::any_of(work->calls, [&](const ConvolutionCall& call) {
      return call.computes && call.backend == local::ConvolutionBackend::onednn &&
             local::multiplies_for_filters(call.problem, type);
    });
  });
}

}  // namespace

Index run_bytes(const Box& part, const Box& memory, Index element_bytes) {
  const auto mine = views::extents_of(part).values, all = views::extents_of(memory).values;
  Index run = element_bytes;
  for (std::size_t d = views::num_dims; d-- > 0;) {
    run *= mine[d];
    if (mine[d] != all[d]) break;
  }
  return run;
}

Index touched_bytes(const Box& part, const Box& memory, Index element_bytes, Index page_bytes) {
  if (part.empty()) return 0;
  const auto mine = views::extents_of(part).values, all = views::extents_of(memory).values;
  Index run = element_bytes, runs = 1, stride = element_bytes;
  for (std::size_t d = views::num_dims; d-- > 0;) {
    if (mine[d] > 1 && (runs > 1 || stride - run >= page_bytes)) {
      runs *= mine[d];
    } else {
      run += (mine[d] - 1) * stride;  // gaps are shorter than a page
    }
    stride *= all[d];
  }
  // A run begins and ends within pages: on average it touches a page more than it is long.
  return runs * (run + page_bytes);
}

ProcessMemory process_memory(const std::vector<const StepPlan*>& plans, const MemoryLayout& layout,
                             const MachineDescription& machine) {
  const StepPlan& plan = *plans.front();
  ProcessMemory memory{.network = bytes_of(plans, layout, machine) + layout.host_bytes,
                       .kernels = count_kernels(plans) * machine.kernel_bytes,
                       .libraries = machine.library_bytes};
  for (const StepPlan* p : plans) memory.kernels += std::ssize(p->nodes) * machine.node_bytes;
  if (std::ranges::any_of(plans, [](const StepPlan* p) { return multiplies_for_filters(*p); }))
    memory.libraries += machine.product_bytes;
  TransferPages pages(plan, machine);
  for (const PlanNode& node : plan.nodes) {
    if (const auto* transfer = std::get_if<TransferWork>(&node.work)) {
      pages.add(*transfer);
    } else if (const auto* sum = std::get_if<ReductionWork>(&node.work)) {
      memory.other_ranks += opened_by(plan, *sum, machine);
    }
  }
  Index shared = layout.shared_bytes;
  for (const PlanBuffer& buffer : plan.buffers)
    if (buffer.shared && buffer.alias == no_buffer && !layout.places.contains(buffer.name)) shared += buffer.bytes();
  if (lends_gradient_memory(plan))
    for (const GradientMemory& segment : plan.gradient_memory) shared += segment.shared ? segment.bytes : 0;
  memory.messages = pages.packed;
  memory.other_ranks += pages.opened(shared + pages.packed);
  return memory;
}

}  // namespace aloni::nn
