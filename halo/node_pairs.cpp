#include <aloni/halo/node_pairs.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace aloni::halo {

namespace {

constexpr std::size_t aligned(std::size_t n) {
  return (n + parcel_alignment - 1) / parcel_alignment * parcel_alignment;
}

/// The ranks that send, or the ranks that receive.
std::vector<int> ranks_of(const NodePair& pair, int Parcel::*end) {
  std::vector<int> ranks;
  for (const Parcel& p : pair.parcels) ranks.push_back(p.*end);
  std::ranges::sort(ranks);
  ranks.erase(std::ranges::unique(ranks).begin(), ranks.end());
  return ranks;
}

}  // namespace

std::vector<int> NodePair::senders() const { return ranks_of(*this, &Parcel::from); }
std::vector<int> NodePair::receivers() const { return ranks_of(*this, &Parcel::to); }

NodePair reversed(NodePair pair) {
  std::swap(pair.relay_from, pair.relay_to);
  for (Parcel& p : pair.parcels) std::swap(p.from, p.to);
  return pair;
}

std::vector<NodePair> pair_nodes(std::vector<Parcel> parcels, std::span<const int> node_of, std::size_t below) {
  std::map<std::pair<int, int>, NodePair> pairs;
  std::ranges::sort(parcels, {}, [](const Parcel& p) { return std::pair(p.from, p.to); });
  for (const Parcel& p : parcels) {
    const int from = node_of[static_cast<std::size_t>(p.from)], to = node_of[static_cast<std::size_t>(p.to)];
    if (from == to) continue;
    NodePair& pair = pairs[{from, to}];
    pair.offsets.push_back(pair.bytes);
    pair.bytes += aligned(p.bytes);
    pair.parcels.push_back(p);
  }
  std::vector<NodePair> result;
  for (auto& [nodes, pair] : pairs) {
    const std::size_t n = pair.parcels.size();
    if (n < 2 || pair.bytes / n >= below) continue;
    const auto among = [number = static_cast<std::size_t>(nodes.first + nodes.second)](const std::vector<int>& ranks) {
      return ranks[number % ranks.size()];
    };
    pair.relay_from = among(pair.senders());
    pair.relay_to = among(pair.receivers());
    result.push_back(std::move(pair));
  }
  return result;
}

}  // namespace aloni::halo
