#pragma once
// Task graphs for tests of the messages between ranks: each task runs on one rank, reads tiles and writes one.
#include <aloni/tasks/tile_requests.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace aloni::test {

struct TileTask {
  int rank = 0;
  std::vector<tasks::TileKey> reads;
  tasks::TileKey writes = 0;  ///< one task for each key, which comes before its readers
};

/// Up to `most` tasks on random ranks. Each reads up to four of the earlier tiles, preferably late ones or, in some
/// graphs, one that all ranks read.
inline std::vector<TileTask> random_tasks(std::mt19937_64& random, int ranks, int most) {
  const auto at_most = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n)(random); };
  std::vector<TileTask> tasks(1 + at_most(static_cast<std::size_t>(most - 1)));
  const std::size_t popular = at_most(3);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    TileTask& t = tasks[i];
    t.rank = static_cast<int>(at_most(static_cast<std::size_t>(ranks - 1)));
    t.writes = 1000 + i;
    for (std::size_t n = i == 0 ? 0 : at_most(4); n > 0; --n) {
      const std::size_t from = at_most(2) == 0 ? std::min(popular, i - 1) : i - 1 - std::min(i - 1, at_most(20));
      if (std::ranges::find(t.reads, tasks[from].writes) == t.reads.end()) t.reads.push_back(tasks[from].writes);
    }
  }
  return tasks;
}

/// Right-looking Cholesky of n by n tiles, on a grid of rows times columns ranks, block-cyclic. A key for each version.
inline std::vector<TileTask> cholesky_tasks(int n, int rows, int columns) {
  std::vector<TileTask> tasks;
  std::map<std::pair<int, int>, int> version;
  const auto key = [&](int i, int j) {
    return (static_cast<tasks::TileKey>(i) << 40) | (static_cast<tasks::TileKey>(j) << 20) |
           static_cast<tasks::TileKey>(version[{i, j}]);
  };
  const auto add = [&](int i, int j, std::vector<tasks::TileKey> reads) {
    if (version[{i, j}] > 0) reads.push_back(key(i, j));
    ++version[{i, j}];
    tasks.push_back({.rank = i % rows * columns + j % columns, .reads = std::move(reads), .writes = key(i, j)});
  };
  for (int k = 0; k < n; ++k) {
    add(k, k, {});                                           // POTRF
    for (int i = k + 1; i < n; ++i) add(i, k, {key(k, k)});  // TRSM
    for (int j = k + 1; j < n; ++j) {
      add(j, j, {key(j, k)});                                             // SYRK
      for (int i = j + 1; i < n; ++i) add(i, j, {key(i, k), key(j, k)});  // GEMM
    }
  }
  return tasks;
}

/// The value that a task writes: a function of its number and of the values that it reads.
inline std::uint64_t value_of(std::size_t task, const std::vector<std::uint64_t>& read) {
  std::uint64_t h = 0x9e3779b97f4a7c15u * (task + 1);
  for (const std::uint64_t v : read) h = (h ^ v) * 0xbf58476d1ce4e5b9u + (h >> 29);
  return h;
}

/// The values that the tasks write, in their order, computed one after another.
inline std::vector<std::uint64_t> serial_values(const std::vector<TileTask>& tasks) {
  std::map<tasks::TileKey, std::uint64_t> tiles;
  std::vector<std::uint64_t> values;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    std::vector<std::uint64_t> read;
    for (const tasks::TileKey key : tasks[i].reads) read.push_back(tiles.at(key));
    values.push_back(tiles[tasks[i].writes] = value_of(i, read));
  }
  return values;
}

}  // namespace aloni::test
