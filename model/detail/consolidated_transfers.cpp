#include <aloni/model/detail/consolidated_transfers.hpp>

#include <aloni/model/communication.hpp>
#include <aloni/nn/plan/cost.hpp>

#include <algorithm>
#include <cstddef>
#include <variant>

namespace aloni::model::detail {

namespace {

constexpr int no_rank = -1;

}  // namespace

ConsolidatedTransfers::ConsolidatedTransfers(std::vector<const nn::StepPlan*> plans, const std::vector<int>& class_of,
                                             const MachineDescription& description)
    : plans_(std::move(plans)), class_of_(class_of), description_(description), far_parcels_(plans_.size()) {
  if (!nn::joins_messages(description)) return;
  const int nodes = std::ranges::max(description.nodes) + 1;
  ranks_of_node_.resize(static_cast<std::size_t>(nodes));
  for (std::size_t r = 0; r < description.nodes.size(); ++r)
    ranks_of_node_[static_cast<std::size_t>(description.nodes[r])].push_back(static_cast<int>(r));
  for (std::size_t c = 0; c < plans_.size(); ++c) {
    const nn::StepPlan& plan = *plans_[c];
    for (const nn::PlanNode& node : plan.nodes) {
      const auto* const work = std::get_if<nn::TransferWork>(&node.work);
      if (!work) continue;
      std::vector<FarParcel> far;
      for (const bool leaves : {true, false})
        for (const auto& [peer, parcel] : parcels_of(plan, *work, leaves != work->adjoint))
          if (node_of(peer) != node_of(plan.rank))
            far.push_back({peer, static_cast<std::size_t>(parcel.bytes), leaves});
      if (!far.empty()) far_parcels_[c].emplace(node.communication, std::move(far));
    }
  }
}

void ConsolidatedTransfers::add_parcels(int rank, int communication, std::vector<halo::Parcel>& parcels) const {
  const auto c = static_cast<std::size_t>(class_of_[static_cast<std::size_t>(rank)]);
  const auto found = far_parcels_[c].find(communication);
  if (found == far_parcels_[c].end()) return;
  const int distance = rank - plans_[c]->rank, ranks = static_cast<int>(class_of_.size());
  for (const FarParcel& parcel : found->second) {
    int peer = no_rank;
    for (const int candidate : {parcel.peer + distance, parcel.peer})
      if (peer == no_rank && candidate >= 0 && candidate < ranks && node_of(candidate) != node_of(rank))
        peer = candidate;
    if (peer == no_rank || parcel.bytes == 0) continue;
    parcels.push_back({.from = parcel.leaves ? rank : peer, .to = parcel.leaves ? peer : rank, .bytes = parcel.bytes});
  }
}

const std::vector<halo::NodePair>& ConsolidatedTransfers::of(int rank_class, int communication) {
  static const std::vector<halo::NodePair> none;
  const auto c = static_cast<std::size_t>(rank_class);
  if (ranks_of_node_.empty() || !far_parcels_[c].contains(communication)) return none;
  const int node = node_of(plans_[c]->rank);
  const auto [pairs, is_new] = found_.try_emplace({node, communication});
  if (!is_new) return pairs->second;
  std::vector<halo::Parcel> parcels;
  for (const int rank : ranks_of_node_[static_cast<std::size_t>(node)]) add_parcels(rank, communication, parcels);
  const auto below = static_cast<std::size_t>(description_.consolidate_below);
  const auto is_short = [&](const halo::Parcel& parcel) { return parcel.bytes < below; };
  if (std::ranges::any_of(parcels, is_short))
    pairs->second = halo::pair_nodes(std::move(parcels), description_.nodes, below);
  return pairs->second;
}

}  // namespace aloni::model::detail
