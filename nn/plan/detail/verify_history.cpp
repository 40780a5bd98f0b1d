#include <aloni/nn/plan/detail/verify_history.hpp>

#include <algorithm>
#include <string>
#include <variant>

namespace aloni::nn::detail {

std::vector<int> History::writers_of(const PlanRegion& r) const {
  std::vector<int> writers;
  for (const WrittenCells& c : cells_of(r.buffer))
    if (c.through == through(r.buffer) && !intersect(c.box, r.box).empty()) writers.push_back(c.writer);
  return writers;
}

void History::check_summed(const PlanNode* n, BufferId b, const std::vector<int>& members, const Makes& makes) const {
  const std::string verb = n ? "uses " : "ends with ";
  for (const WrittenCells& c : cells_of(b)) {
    if (c.through != through(b)) continue;
    const std::string name = buffer(b).name + " " + views::to_string(c.box);
    const auto is_wrong = [&](int writer) { return writer == WrittenCells::initial || !makes(node(writer)); };
    const auto* sum = c.writer == WrittenCells::initial ? nullptr : std::get_if<ReductionWork>(&node(c.writer).work);
    if (!sum && members.size() > 1)
      refuse(plan_, n, verb + name + " before it is summed over the ranks " + list_of(members));
    if (sum && sum->members != members) {
      refuse(plan_, n,
             verb + name + ", which is summed over the ranks " + list_of(sum->members) + " and not over " +
                 list_of(members));
    }
    if (sum ? std::ranges::any_of(addends_.at({c.writer, plan_.root(b)}), is_wrong) : is_wrong(c.writer))
      refuse(plan_, n, verb + name + ", which is not the sum of the right values");
  }
}

}  // namespace aloni::nn::detail
