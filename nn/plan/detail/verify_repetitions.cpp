#include <aloni/nn/plan/detail/verify_repetitions.hpp>

#include <algorithm>
#include <string>
#include <variant>

namespace aloni::nn::detail {

using views::Box;

Repetitions::Repetitions(const StepPlan& plan) : plan_(plan) {
  for (const PlanNode& n : plan.nodes)
    if (n.repeats >= 0) read_[n.repeats] = {};
}

std::vector<Repetitions::Source> Repetitions::sources_of(const History& history, const PlanRegion& r) const {
  std::vector<Source> sources;
  for (const WrittenCells& c : history.cells_of(r.buffer)) {
    const Box box = intersect(c.box, r.box);
    if (c.through != history.through(r.buffer) || box.empty()) continue;
    const int repeats = c.writer == WrittenCells::initial ? -1 : history.node(c.writer).repeats;
    sources.push_back({box, repeats >= 0 ? repeats : c.writer});
  }
  return sources;
}

void Repetitions::check(const History& history, int n) {
  const PlanNode& node = history.node(n);
  if (const auto mine = read_.find(n); mine != read_.end())
    for (const PlanRegion& r : node.reads) mine->second.emplace_back(r, sources_of(history, r));
  if (node.repeats < 0) return;
  if (node.repeats >= n) refuse(plan_, &node, "repeats a later node");
  const PlanNode& original = history.node(node.repeats);
  if (original.phase != StepPhase::forward || node.phase != StepPhase::backward || original.layer != node.layer ||
      original.work.index() != node.work.index())
    refuse(plan_, &node, "repeats another kind of node: " + original.label);
  for (const auto& [region, sources] : read_.at(node.repeats)) {
    const PlanBuffer& buffer = history.buffer(region.buffer);
    const auto* norm = std::get_if<NormalisationWork>(&node.work);
    // Running statistics have other values by now, and are not needed.
    if (norm && region.buffer == norm->running && !norm->updates_running) continue;
    // A normalisation keeps its statistics, and writes the same bits again.
    if (norm && region.buffer == norm->statistics) {
      for (const Source& s : sources_of(history, region))
        if (s.writer != node.repeats)
          refuse(plan_, &node, "finds other statistics in " + buffer.name + " than the node that it repeats");
      continue;
    }
    const auto reads_region = [&](const PlanRegion& r) { return r.buffer == region.buffer && r.box == region.box; };
    if (std::ranges::none_of(node.reads, reads_region))
      refuse(plan_, &node, "does not read " + buffer.name + ", unlike the node that it repeats");
    const std::vector<Source> now = sources_of(history, region);
    for (const Source& then : sources) {
      std::vector<Box> same;
      for (const Source& s : now)
        if (s.writer == then.writer) same.push_back(s.box);
      if (!covered(then.box, same))
        refuse(plan_, &node,
               "reads other values of " + buffer.name + " " + views::to_string(then.box) +
                   " than the node that it repeats");
    }
  }
  for (const PlanRegion& r : node.writes)
    if (const PlanBuffer& changed = history.buffer(plan_.root(r.buffer)); changed.persistent)
      refuse(plan_, &node, "changes " + changed.name + " again, which outlives the step");
}

}  // namespace aloni::nn::detail
