#include <aloni/halo/placement/decomposition.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <functional>
#include <string>

namespace aloni::halo {

namespace {

using views::Dim;
using views::position;

constexpr const char* decompose_operation = "aloni::halo::decompose";

std::vector<int> prime_factors_largest_first(int n) {
  std::vector<int> factors;
  for (int p = 2; p <= n / p; ++p)
    for (; n % p == 0; n /= p) factors.push_back(p);
  if (n > 1) factors.push_back(n);
  std::ranges::sort(factors, std::greater<>());
  return factors;
}

using Lengths = std::array<double, views::num_dims>;

void split(Lengths& lengths, const std::vector<Dim>& dims, int count, views::ProcessGrid& grid) {
  for (const int factor : prime_factors_largest_first(count)) {
    const auto length = [&](Dim d) { return lengths[static_cast<std::size_t>(position(d))]; };
    const Dim longest = *std::ranges::max_element(dims, {}, length);
    lengths[static_cast<std::size_t>(position(longest))] /= factor;
    grid[longest] *= factor;
  }
}

void check_count(const char* name, int count) {
  if (count < 1) throw InvalidArgument(decompose_operation, name, std::to_string(count), "1 or more");
}

}  // namespace

Decomposition decompose(const views::Extents& extents, const std::vector<Dim>& dims, int nodes, int ranks_per_node,
                        const DecompositionOptions& options) {
  if (dims.empty()) throw InvalidArgument(decompose_operation, "dims", "none", "at least one dimension to split");
  for (const Dim d : dims)
    if (std::ranges::count(dims, d) > 1)
      throw InvalidArgument(decompose_operation, "dims", std::string(views::name(d)) + " twice",
                            "each dimension at most once");
  check_count("nodes", nodes);
  check_count("ranks_per_node", ranks_per_node);
  if (Index{nodes} * ranks_per_node > views::max_blocks)
    throw InvalidArgument(decompose_operation, "nodes and ranks_per_node",
                          std::to_string(nodes) + " and " + std::to_string(ranks_per_node),
                          "at most " + std::to_string(views::max_blocks) + " ranks in all");
  Lengths lengths{};
  for (const Dim d : dims) {
    const double halo = options.halo[static_cast<std::size_t>(position(d))];
    if (!(halo > 0))
      throw InvalidArgument(decompose_operation, std::string("options.halo of ") + views::name(d), std::to_string(halo),
                            "a width above 0");
    lengths[static_cast<std::size_t>(position(d))] = static_cast<double>(extents[d]) / halo;
  }

  Decomposition result;
  split(lengths, dims, nodes, result.nodes);
  result.grid = result.nodes;
  split(lengths, dims, ranks_per_node, result.grid);
  return result;
}

Decomposition decompose(const views::Extents& extents, const std::vector<Dim>& dims, int ranks,
                        const DecompositionOptions& options) {
  check_count("ranks", ranks);
  return decompose(extents, dims, 1, ranks, options);
}

int node_of(const Decomposition& decomposition, int block) {
  auto coordinate = decomposition.grid.coordinate(block);
  for (const Dim d : views::all_dims)
    coordinate[static_cast<std::size_t>(position(d))] /= decomposition.grid[d] / decomposition.nodes[d];
  return decomposition.nodes.rank_of(coordinate);
}

}  // namespace aloni::halo
