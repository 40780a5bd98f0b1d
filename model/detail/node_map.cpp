#include <aloni/model/detail/node_map.hpp>

#include <aloni/core/index.hpp>

#include <algorithm>
#include <map>
#include <set>

namespace aloni::model::detail {

NodeMap::NodeMap(const MachineDescription& description, int ranks, int consecutive_per_node)
    : ranks_(ranks), consecutive_per_node_(consecutive_per_node) {
  std::map<int, int> numbers;
  for (const int node : description.nodes)
    nodes_.push_back(numbers.try_emplace(node, static_cast<int>(numbers.size())).first->second);
  of_node_.resize(std::max<std::size_t>(1, numbers.size()));
  for (int r = 0; r < ranks; ++r) {
    std::vector<RankRange>& company = of_node_[static_cast<std::size_t>(node_of(r))];
    if (company.empty() || company.back().last < r) {
      company.push_back({r, r + 1});
    } else {
      company.back().last = r + 1;
    }
  }
}

bool NodeMap::share_node(int rank, int other) const {
  return other >= 0 && other < ranks_ && node_of(rank) == node_of(other);
}

int NodeMap::of_group(int members, int stride) const {
  const int apart = std::max(1, stride);
  if (consecutive_per_node_ > 0) {  // the count below takes too long for thousands of members and prices
    const int on_a_node = std::max(1, consecutive_per_node_ / apart);
    return std::clamp<int>(static_cast<int>(ceil_div(members, on_a_node)), 1, static_cast<int>(of_node_.size()));
  }
  std::set<int> seen;
  for (int k = 0; k < members; ++k) seen.insert(node_of(std::min(k * apart, ranks_ - 1)));
  return static_cast<int>(seen.size());
}

}  // namespace aloni::model::detail
