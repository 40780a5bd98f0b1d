#include <aloni/nn/plan/detail/lifetimes.hpp>

#include <aloni/nn/plan/detail/verify_fault.hpp>
#include <aloni/views/box.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

namespace aloni::nn::detail {

namespace {

using views::Box;

/// The accesses to one root buffer, aliases included.
struct RootUse {
  int node;
  BufferId view;  ///< an alias with other indices, or the root
  Box box;
  bool writes;
};

/// Whether all values that are read from `node` on are written from `node` on.
bool is_written_before_read(const std::vector<RootUse>& uses, int node) {
  std::map<BufferId, std::vector<Box>> written;
  for (const RootUse& use : uses) {  // a node reads before it writes
    if (use.node < node) continue;
    if (use.writes) {
      written[use.view].push_back(use.box);
    } else if (!covered(use.box, written[use.view])) {
      return false;
    }
  }
  return true;
}

}  // namespace

void set_lifetimes(StepPlan& plan) {
  std::vector<std::set<int>> repeated(plan.buffers.size());  // by root: nodes that write it again
  std::vector<std::vector<RootUse>> uses(plan.buffers.size());
  const auto use = [&](const PlanRegion& r, int n, bool writes) {
    const BufferId root = plan.root(r.buffer);
    for (const BufferId touched : {r.buffer, root}) {
      PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(touched)];
      if (buffer.first < 0) buffer.first = n;
      buffer.last = n;
    }
    const bool other = plan.buffers[static_cast<std::size_t>(r.buffer)].other_indices;
    uses[static_cast<std::size_t>(root)].push_back({n, other ? r.buffer : root, r.box, writes});
    const PlanNode& node = plan.nodes[static_cast<std::size_t>(n)];
    if (writes && (node.repeats >= 0 || is_copy(node.work))) repeated[static_cast<std::size_t>(root)].insert(n);
  };
  for (int n = 0; n < static_cast<int>(plan.nodes.size()); ++n) {
    for (const PlanRegion& r : plan.nodes[static_cast<std::size_t>(n)].reads) use(r, n, false);
    for (const PlanRegion& r : plan.nodes[static_cast<std::size_t>(n)].writes) use(r, n, true);
  }
  std::vector<int> kept_until(plan.buffers.size(), -1);
  for (const PlanNode& node : plan.nodes)
    if (const auto* copy = std::get_if<OffloadWork>(&node.work); copy && !copy->back)
      kept_until[static_cast<std::size_t>(copy->buffer)] = copy->kept_until;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    for (const int n : repeated[b]) {
      int before = -1;
      for (const RootUse& u : uses[b])
        if (u.node < n) before = u.node;
      const bool back = is_copy(plan.nodes[static_cast<std::size_t>(n)].work);
      if (back) before = std::min(std::max(before, kept_until[b]), n - 1);
      if (before >= 0 && before + 1 < n && (back || is_written_before_read(uses[b], n)))
        plan.buffers[b].unused.push_back({before + 1, n - 1});
    }
  }
}

}  // namespace aloni::nn::detail
