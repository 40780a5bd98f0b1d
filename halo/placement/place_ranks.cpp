#include <aloni/halo/placement/place_ranks.hpp>

#include <aloni/core/error.hpp>
#include <aloni/halo/detail/agreement.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace aloni::halo {

comm::Communicator place_ranks(const comm::Communicator& comm, const Placement& placement) {
  constexpr const char* operation = "aloni::halo::place_ranks";
  const auto& order = placement.rank_of;
  std::uint64_t digest = 14695981039346656037U;  // FNV-1a
  for (const int rank : order) digest = (digest ^ static_cast<std::uint32_t>(rank)) * 1099511628211U;
  detail::check_agreement(comm, operation, "placement", digest);
  std::vector<int> all(static_cast<std::size_t>(comm.size()));
  std::iota(all.begin(), all.end(), 0);
  if (!std::ranges::is_permutation(order, all))
    throw InvalidArgument(operation, "placement.rank_of", std::to_string(order.size()) + " entries",
                          "each of the " + std::to_string(comm.size()) + " ranks of the communicator once");
  const auto subdomain = std::ranges::find(order, comm.rank()) - order.begin();
  return comm.split(0, static_cast<int>(subdomain));
}

}  // namespace aloni::halo
