#include <aloni/views/process_grid.hpp>

#include <aloni/core/error.hpp>

#include <utility>

namespace aloni::views {

namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& expectation) {
  throw InvalidArgument("aloni::views::ProcessGrid::parse", "text", "\"" + std::string(text) + "\"", expectation);
}

}  // namespace

ProcessGrid ProcessGrid::parse(std::string_view text) {
  const std::string form = "letters n, d, h, w, c, each at most once, each with a positive count (n2h2), or 1";
  if (text == "1") return {};
  if (text.empty()) refuse(text, form);
  ProcessGrid grid;
  std::array<bool, num_dims> seen{};
  for (std::size_t i = 0; i < text.size();) {
    const Dim* dim = nullptr;
    for (const Dim& d : all_dims)
      if (letter(d) == text[i]) dim = &d;
    if (dim == nullptr) refuse(text, form);
    if (seen[position(*dim)]) refuse(text, std::string("each letter at most once, but ") + text[i] + " occurs again");
    seen[position(*dim)] = true;
    ++i;
    const std::size_t digits = i;
    std::int64_t count = 0;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
      count = 10 * count + (text[i] - '0');
      if (count > max_blocks) refuse(text, "counts of at most " + std::to_string(max_blocks));
    }
    if (i == digits || count < 1) refuse(text, form);
    grid[*dim] = static_cast<int>(count);
  }
  std::int64_t size = 1;
  for (int b : grid.blocks) {
    size *= b;
    if (size > max_blocks) refuse(text, "at most " + std::to_string(max_blocks) + " blocks in all");
  }
  return grid;
}

void ProcessGrid::refuse_size() const {
  throw InvalidArgument("aloni::views::ProcessGrid::size", "blocks", to_string(*this),
                        "counts of at least 1, and at most " + std::to_string(max_blocks) + " blocks in all");
}

std::array<int, num_dims> ProcessGrid::coordinate(int rank) const {
  std::array<int, num_dims> c{};
  int rest = rank;  // the outermost coordinate wraps around: ranks beyond size() repeat the grid
  for (int i = num_dims - 1; i >= 0; --i) {
    c[i] = rest % blocks[i];
    rest /= blocks[i];
  }
  return c;
}

int ProcessGrid::rank_of(const std::array<int, num_dims>& coordinate) const {
  int rank = 0;
  for (int i = 0; i < num_dims; ++i) rank = rank * blocks[i] + coordinate[i];
  return rank;
}

std::vector<int> ProcessGrid::ranks_of(const std::array<std::vector<int>, num_dims>& coordinates) const {
  std::vector<int> ranks{0};
  for (int i = 0; i < num_dims; ++i) {
    std::vector<int> next;
    next.reserve(ranks.size() * coordinates[i].size());
    for (const int rank : ranks)
      for (const int c : coordinates[i]) next.push_back(rank * blocks[i] + c);
    ranks = std::move(next);
  }
  return ranks;
}

std::string to_string(const ProcessGrid& g) {
  std::string text;
  for (Dim d : all_dims)
    if (g[d] != 1) text += letter(d) + std::to_string(g[d]);
  return text.empty() ? "1" : text;
}

std::vector<ProcessGrid> all_grids(int ranks, const std::vector<Dim>& dims) {
  std::vector<ProcessGrid> grids;
  if (dims.empty()) {
    if (ranks == 1) grids.emplace_back();
    return grids;
  }
  const std::vector<Dim> others(dims.begin() + 1, dims.end());
  for (int blocks = 1; blocks <= ranks; ++blocks) {
    if (ranks % blocks != 0) continue;
    for (ProcessGrid grid : all_grids(ranks / blocks, others)) {
      grid[dims.front()] = blocks;
      grids.push_back(grid);
    }
  }
  return grids;
}

}  // namespace aloni::views
