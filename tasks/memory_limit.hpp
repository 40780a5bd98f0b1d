#pragma once
// A limit of the memory for tiles: workers compute on tiles in memory, and the others wait in a store.
//
//   FileTileStore store(io::real_file_system(), "/scratch/tiles");
//   StoredMatrix<double> a(TileDistribution(n, n, 256), TilePart::lower, store);
//   a.fill(element);
//   const LimitedReport report = cholesky(a, {.bytes = a.bytes() / 2}, {.workers = 2});
//   report.swaps.bytes();                    // moved between memory and the store
//
// The limit is divided into slots, each with room for the largest tile. TileCache (tasks/tile_cache.hpp) says which
// tile is in which slot, and proves that every run ends if one task fits. So the least limit is that of the task with
// most tiles: 3 tiles for Cholesky, LU and solutions. A smaller one is refused before anything is moved, and the error
// names the least limit. With the least limit workers wait for each other; with 3 tiles for each worker all can compute
// at once. cholesky_on_device() takes a limit of the memory of a device (tasks/device_cholesky.hpp).
//
// Between ranks each rank has a limit and a store of its own. Copies of other ranks' tiles have slots, too. A copy
// comes from its owner once. If it leaves memory before its last use, it goes to the store. Tiles for other ranks are
// sent from one to four slots of their own, since the tile may have left memory. So the least limit is one slot more.
// Ranks ask for tiles in one order of all tasks, and copies serve no other ranks (TileRequests::set_most_clients(0)).
//
// The order of the tasks depends on the limit. choose_order() (tasks/task_order.hpp) takes blocks of tiles for which a
// simulated run moves least. The bits of the result do not depend on it. A helper thread moves tiles while workers
// compute. The order of all tasks of the rank is in memory: about 120 bytes for each task.
//
// Compulsory traffic. The matrix begins and ends in the store. So each tile is read once, if a task reads it, and
// written once, if a task changes it. For a factorisation this is twice the size of the matrix. A matrix that fits
// moves that much, too.
#include <aloni/tasks/runtime.hpp>
#include <aloni/tasks/tile_cache.hpp>
#include <aloni/tasks/tile_requests.hpp>
#include <aloni/views/tile_distribution.hpp>

#include <functional>
#include <optional>

namespace aloni::tasks {

struct MemoryLimit {
  Index bytes = 0;  ///< for tiles on this rank, copies of other ranks' tiles included
  Eviction eviction = Eviction::furthest;
  /// Tasks that may have tiles at once: those that run, and those whose tiles are loaded meanwhile. 0: 8 per worker.
  Index most_tasks = 0;
  /// Block of the order, in tiles; none: choose_order(). Between ranks the block of rank 0 counts.
  std::optional<views::TileShape> block = {};
};

/// What moved between memory and the store.
struct SwapCounts {
  TileCache::Counts tiles;
  Index bytes_in = 0, bytes_out = 0;

  Index bytes() const { return bytes_in + bytes_out; }
};

struct LimitedReport {
  RunReport run;
  SwapCounts swaps;
  TileRequests::Counts requests;  ///< between ranks
  Index compulsory_bytes = 0;     ///< the least that any run moves between memory and the store
  Index slots = 0;                ///< tiles in memory
  views::TileShape block{1};      ///< of the order, in tiles
};

/// Alignment of slots in host memory, in bytes: a cache line, and the widest vector.
inline constexpr Index slot_alignment = 64;

/// The least limit in bytes with which the tasks of the rule can run on one rank. `bytes`: of a tile. `alignment`: of
/// slots.
Index least_memory(const TaskRule& rule, const std::function<Index(const TileId&)>& bytes,
                   Index alignment = slot_alignment);

}  // namespace aloni::tasks
