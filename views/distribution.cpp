#include <aloni/views/distribution.hpp>

#include <aloni/core/error.hpp>
#include <aloni/views/even_blocks.hpp>

#include <algorithm>
#include <limits>

namespace aloni::views {

namespace {

std::vector<Index> even_borders(Index extent, int blocks) {
  std::vector<Index> borders(static_cast<std::size_t>(blocks) + 1);
  for (int b = 0; b <= blocks; ++b) borders[static_cast<std::size_t>(b)] = even_border(extent, blocks, b);
  return borders;
}

}  // namespace

Distribution::Distribution() : Distribution(Extents{}, ProcessGrid{}, 1) {}

Distribution::Distribution(const Extents& extents, const ProcessGrid& grid, int ranks)
    : extents_(extents), grid_(grid), ranks_(ranks) {
  for (Dim d : all_dims) borders_[position(d)] = even_borders(extents[d], grid[d]);
}

Distribution Distribution::block(const Extents& extents, const ProcessGrid& grid, int ranks) {
  constexpr const char* operation = "aloni::views::Distribution::block";
  check_extents(operation, extents);
  for (Dim d : all_dims)
    if (grid[d] < 1)
      throw InvalidArgument(operation, std::string("grid, ") + name(d), std::to_string(grid[d]), "at least 1 block");
  if (ranks < 1 || ranks % grid.size() != 0)
    throw InvalidArgument(
        operation, "ranks", std::to_string(ranks),
        "a positive multiple of the " + std::to_string(grid.size()) + " blocks of grid " + to_string(grid));
  return Distribution(extents, grid, ranks);
}

Distribution Distribution::on_root(const Extents& extents, int ranks, int root) {
  constexpr const char* operation = "aloni::views::Distribution::on_root";
  check_extents(operation, extents);
  if (ranks < 1 || ranks > max_blocks)
    throw InvalidArgument(operation, "ranks", std::to_string(ranks), "from 1 to " + std::to_string(max_blocks));
  if (root < 0 || root >= ranks)
    throw InvalidArgument(operation, "root", std::to_string(root), "a rank from 0 to " + std::to_string(ranks - 1));
  // One block of samples per rank; all blocks except the root's are empty.
  ProcessGrid grid;
  grid[Dim::sample] = ranks;
  std::vector<Index> sizes(static_cast<std::size_t>(ranks), 0);
  sizes[static_cast<std::size_t>(root)] = extents[Dim::sample];
  return Distribution(extents, grid, ranks).with_blocks(Dim::sample, sizes);
}

Distribution Distribution::with_blocks(Dim d, const std::vector<Index>& sizes) const {
  const std::string operation = std::string("aloni::views::Distribution::with_blocks, ") + name(d);
  if (sizes.size() != static_cast<std::size_t>(grid_[d]))
    throw InvalidArgument(operation, "sizes.size()", std::to_string(sizes.size()),
                          std::to_string(grid_[d]) + ", the blocks of grid " + to_string(grid_));
  constexpr Index most = std::numeric_limits<Index>::max();
  std::vector<Index> borders{0};
  for (Index size : sizes) {
    if (size < 0) throw InvalidArgument(operation, "sizes", std::to_string(size), "at least 0");
    borders.push_back(size > most - borders.back() ? most : borders.back() + size);
  }
  if (borders.back() != extents_[d])
    throw InvalidArgument(operation, "sum of sizes", std::to_string(borders.back()),
                          std::to_string(extents_[d]) + ", the extent of the tensor");
  Distribution result = *this;
  result.borders_[position(d)] = std::move(borders);
  result.replicated_[position(d)] = false;
  return result;
}

Distribution Distribution::with_replicated(Dim d) const {
  Distribution result = *this;
  result.borders_[position(d)] = even_borders(extents_[d], grid_[d]);  // so that equal distributions compare equal
  result.replicated_[position(d)] = true;
  return result;
}

int Distribution::copies() const {
  int copies = ranks_ / grid_.size();
  for (Dim d : all_dims)
    if (replicated(d)) copies *= grid_[d];
  return copies;
}

int Distribution::block_of(Dim d, Index i) const {
  // The last border ≤ i begins the block. Of several equal borders, the others begin empty blocks.
  const auto& b = borders(d);
  return static_cast<int>(std::upper_bound(b.begin(), b.end(), i) - b.begin()) - 1;
}

Box Distribution::owned(int rank) const {
  const auto coordinate = grid_.coordinate(rank);
  Box box = whole(extents_);
  for (Dim d : all_dims) {
    if (replicated(d)) continue;
    const auto block = static_cast<std::size_t>(coordinate[position(d)]);
    box.set(d, borders(d)[block], borders(d)[block + 1]);
  }
  return box;
}

bool Distribution::is_first_copy(int rank) const {
  if (rank >= grid_.size()) return false;
  const auto coordinate = grid_.coordinate(rank);
  return std::all_of(all_dims.begin(), all_dims.end(),
                     [&](Dim d) { return !replicated(d) || coordinate[position(d)] == 0; });
}

std::vector<int> Distribution::owners(const Box& box) const {
  std::array<std::vector<int>, num_dims> coordinates;
  for (Dim d : all_dims) {
    const Index lo = std::max<Index>(box.lower(d), 0), hi = std::min(box.upper(d), extents_[d]);
    if (lo >= hi) return {};
    const int first = replicated(d) ? 0 : block_of(d, lo), last = replicated(d) ? grid_[d] - 1 : block_of(d, hi - 1);
    for (int c = first; c <= last; ++c) {
      const auto block = static_cast<std::size_t>(c);
      if (replicated(d) || borders(d)[block] < borders(d)[block + 1]) coordinates[position(d)].push_back(c);
    }
  }
  const std::vector<int> replica = grid_.ranks_of(coordinates);
  std::vector<int> all;
  for (int first = 0; first < ranks_; first += grid_.size())
    for (const int r : replica) all.push_back(first + r);
  return all;
}

std::vector<int> Distribution::group(int rank, const std::vector<Dim>& dims) const {
  const int first = rank - rank % grid_.size();
  const auto mine = grid_.coordinate(rank);
  std::array<std::vector<int>, num_dims> coordinates;
  for (Dim d : all_dims) {
    auto& list = coordinates[position(d)];
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) {
      list.push_back(mine[position(d)]);
    } else {
      for (int c = 0; c < grid_[d]; ++c) list.push_back(c);
    }
  }
  std::vector<int> members = grid_.ranks_of(coordinates);
  for (int& r : members) r += first;
  return members;
}

std::string to_string(const Distribution& d) {
  std::string text = to_string(d.extents()) + " over " + to_string(d.grid());
  for (Dim dim : all_dims)
    if (d.replicated(dim) && d.grid()[dim] > 1) text += std::string(", ") + name(dim) + " replicated";
  return text + " (" + std::to_string(d.ranks()) + (d.ranks() == 1 ? " rank)" : " ranks)");
}

}  // namespace aloni::views
