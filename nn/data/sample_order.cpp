#include <aloni/nn/data/sample_order.hpp>

#include <aloni/core/host_random.hpp>

#include <numeric>
#include <utility>

namespace aloni::nn {

void epoch_order(std::vector<Index>& order, Index samples, std::uint64_t seed, std::uint64_t epoch) {
  constexpr std::uint64_t stream = std::uint64_t{1} << 32;  // streams below belong to the parameters
  order.resize(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), Index{0});
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[random::host_integer(seed, stream + epoch, i) % i]);
}

std::vector<Index> epoch_order(Index samples, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<Index> order;
  epoch_order(order, samples, seed, epoch);
  return order;
}

}  // namespace aloni::nn
