#pragma once
// Random task graphs, and the integers that their tasks compute: any order that the accesses allow gives the same.
#include <aloni/tasks/task_graph.hpp>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace aloni::tasks::test {

/// Tasks with up to `most_accesses` accesses of random kinds to two matrices of `tiles` tiles. Task t has the
/// coordinate row = t.
inline TaskGraph random_graph(std::uint64_t seed, int tasks, int tiles, int most_accesses) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint64_t>(n)); };
  TaskGraph graph;
  for (int t = 0; t < tasks; ++t) {
    std::vector<TileAccess> accesses;
    for (int i = below(most_accesses + 1); i > 0; --i) {
      const TileId tile{below(2), below(tiles), 0};
      if (std::none_of(accesses.begin(), accesses.end(), [&](const TileAccess& a) { return a.tile == tile; }))
        accesses.push_back({tile, static_cast<Access>(below(3))});
    }
    graph.add({Kernel::other, t, 0, 0}, accesses, 1 + below(5));
  }
  return graph;
}

/// One integer for each tile of two matrices. A task mixes what it reads into what it writes, so that the order of two
/// tasks on one tile shows.
class TileValues {
 public:
  explicit TileValues(int tiles) : values_(2 * static_cast<std::size_t>(tiles), 1) {}

  void run(const TaskGraph& graph, std::int32_t t) {
    std::uint64_t mixed = static_cast<std::uint64_t>(t) + 1;
    for (const TileAccess& a : graph.accesses(t))
      if (a.access != Access::write) mixed = mixed * 6364136223846793005u + at(a.tile);
    for (const TileAccess& a : graph.accesses(t))
      if (a.access != Access::read) at(a.tile) = mixed;
  }
  friend bool operator==(const TileValues&, const TileValues&) = default;

 private:
  std::uint64_t& at(const TileId& id) {
    return values_[static_cast<std::size_t>(id.matrix) * (values_.size() / 2) + static_cast<std::size_t>(id.row)];
  }
  std::vector<std::uint64_t> values_;
};

}  // namespace aloni::tasks::test
