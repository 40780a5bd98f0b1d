#include <aloni/halo/placement/traffic_matrix.hpp>

#include <aloni/core/error.hpp>

#include <map>
#include <string>

namespace aloni::halo {

TrafficMatrix make_traffic_matrix(const views::Distribution& distribution, const NeededBox& needed,
                                  const BoundaryConditions& boundaries, double bytes_per_element) {
  if (!(bytes_per_element > 0))
    throw InvalidArgument("aloni::halo::make_traffic_matrix", "bytes_per_element", std::to_string(bytes_per_element),
                          "above 0");
  TrafficMatrix traffic;
  traffic.grid = distribution.grid();
  traffic.sends.resize(static_cast<std::size_t>(distribution.ranks()));
  // Receivers ascend, so each sender's list ascends too.
  for (int receiver = 0; receiver < distribution.ranks(); ++receiver)
    for (const Message& m : plan_halo_receives(distribution, needed, boundaries, receiver).receives)
      traffic.sends[static_cast<std::size_t>(m.peer)].push_back(
          {receiver, static_cast<double>(m.elements) * bytes_per_element});
  return traffic;
}

TrafficMatrix operator+(const TrafficMatrix& a, const TrafficMatrix& b) {
  if (a.size() != b.size())
    throw InvalidArgument("aloni::halo::TrafficMatrix +", "subdomains", std::to_string(b.size()),
                          std::to_string(a.size()) + ", as in the left matrix");
  TrafficMatrix sum;
  // Either grid is a valid start for bricks: the search decides by cost.
  sum.grid = a.grid.size() == a.size() ? a.grid : b.grid;
  for (std::size_t i = 0; i < a.sends.size(); ++i) {
    std::map<int, double> bytes;
    for (const TrafficMatrix* traffic : {&a, &b})
      for (const TrafficMatrix::Share& share : traffic->sends[i]) bytes[share.to] += share.bytes;
    auto& sends = sum.sends.emplace_back();
    for (const auto& [to, total] : bytes) sends.push_back({to, total});
  }
  return sum;
}

}  // namespace aloni::halo
