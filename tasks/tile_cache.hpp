#pragma once
// TileCache: which tiles of a run are in memory when memory is too small for all of them. It is a pure state machine:
// no thread, no file, no clock. Events go in, actions come out.
//
//   TileCache cache(order, 12, {.most_tasks = 16});     // 12 slots: places for one tile each
//   for (const CacheAction& a : cache.take_actions()) …  // after each event: load, write back, run
//   cache.loaded(tile);
//   cache.written(tile);
//   cache.ended(task);
//
// The order. Tasks get their tiles in one order, which is fixed before the run (tasks/task_order.hpp). A task is
// admitted when all its tiles have slots. From then until its end its tiles are pinned: nothing evicts them. Admitted
// tasks may run in any order that their dependences allow, so several workers have work. Tiles of the tasks behind are
// loaded meanwhile: this is the prefetch. `most_tasks` and `most_pinned` bound the number of admitted tasks.
//
// The victim. Since the order is fixed, the next use of each tile is known. The tile whose next use is furthest leaves
// first: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5 (1966). No
// rule loads fewer tiles for the same order, if tasks are admitted one by one. A tile that a task has changed is
// written back first; an unchanged one is dropped, and so is one that will be overwritten. For comparison Eviction::lru
// evicts the tile that was admitted longest ago. A tile that is needed again while it is written back stays.
//
// Progress. Let a task have at most m tiles. With m slots every run ends, whatever the order of the events:
//   - The admitted tasks are the first ones of the order. The order respects the dependences. So the first admitted
//     task that has not ended waits for no task, and its tiles are pinned or on the way: it runs.
//   - If all admitted tasks have ended, nothing is pinned but tiles of the next task. Each other slot is free, becomes
//     free after a write-back, or holds a tile that can be evicted. So the next task gets its m slots.
//   - Only the next task reserves slots. No two tasks hold a part of their slots and wait for each other.
// Between ranks the same holds under two conditions. The orders of all ranks are parts of one order, and ranks answer
// requests for finished tiles without a slot. The first task of that order which has not ended is the first one of its
// rank. The tiles of other ranks that it reads are finished, so they come.
//
// With fewer slots the task with m tiles could never run: m is the least. Workers then wait for each other, since only
// one task may be admitted at a time. With m slots for each worker all can run at once.
//
// Errors. InvalidArgument for a wrong event; the object is then as before.
#include <aloni/core/index.hpp>
#include <aloni/tasks/task.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace aloni::tasks {

/// The tiles of all tasks in the order in which tasks get them. Tiles have the numbers 0, 1, ….
struct TileOrder {
  struct Use {
    std::int32_t tile = 0;
    Access access = Access::read;  ///< write: the contents before are not needed, and not loaded
  };

  Index tiles = 0;
  std::vector<Use> uses;
  std::vector<Index> first{0};  ///< uses of task p: from first[p] to first[p + 1]
  /// Whether a tile is a copy of another rank's tile, by number; empty: none. Copies come by a message at first, and go
  /// to the store only if they leave memory before their last use.
  std::vector<char> copies = {};

  Index tasks() const { return static_cast<Index>(first.size()) - 1; }
  std::span<const Use> of(Index task) const {
    const auto p = static_cast<std::size_t>(task);
    return std::span(uses).subspan(static_cast<std::size_t>(first[p]),
                                   static_cast<std::size_t>(first[p + 1] - first[p]));
  }
  /// Appends a task. @pre each tile once, and below `tiles`
  void add(std::span<const Use> tiles_of_task);
  /// The least number of slots: the largest number of tiles of one task.
  Index most_tiles() const;
  /// The traffic of every run, at least: tiles whose contents tasks need once, plus tiles that tasks change once.
  /// `sizes`: of the tiles, by number; empty: 1 each. @pre as many as tiles
  Index compulsory(std::span<const Index> sizes = {}) const;
};

/// Which tile leaves memory.
enum class Eviction : std::uint8_t {
  furthest,  ///< the one whose next use is furthest
  lru        ///< the one that was least recently given to a task
};

struct CacheAction {
  enum class Kind : std::uint8_t {
    load,        ///< read `tile` from the store into `slot`, then call loaded()
    fetch,       ///< get the copy `tile` from its rank into `slot`, then call loaded()
    write_back,  ///< write `tile` from `slot` to the store, then call written()
    run          ///< the tiles of `task` are in memory: it may run once its dependences have ended; then call ended()
  };

  Kind kind{};
  std::int32_t tile = -1, slot = -1;
  Index task = -1;
};

struct CacheOptions {
  Eviction eviction = Eviction::furthest;
  Index most_tasks = 1;   ///< admitted tasks that have not ended
  Index most_pinned = 0;  ///< their tiles; 0: half of the slots. One task is always admitted.
};

class TileCache {
 public:
  /// Counted in tiles since construction.
  struct Counts {
    Index loads = 0, write_backs = 0;
    Index fetches = 0;     ///< copies that came from other ranks
    Index hits = 0;        ///< tiles that were in memory, or on the way, when a task was admitted
    Index evictions = 0;   ///< tiles that left memory before the end
    Index prefetches = 0;  ///< loads that began while an earlier task had not ended

    Index traffic() const { return loads + write_backs; }
  };

  /// `order` outlives the object. @pre slots ≥ order.most_tiles(), most_tasks ≥ 1, most_pinned ≥ 0.
  /// Throws InvalidArgument.
  TileCache(const TileOrder& order, Index slots, const CacheOptions& options);

  // --- events ---

  /// @pre an action `load` or `fetch` of the tile has not been answered. Throws InvalidArgument.
  void loaded(std::int32_t tile);
  /// @pre an action `write_back` of the tile has not been answered. Throws InvalidArgument.
  void written(std::int32_t tile);
  /// @pre an action `run` of the task has not been answered. Throws InvalidArgument.
  void ended(Index task);

  /// The actions since the last call, the first ones after construction.
  std::vector<CacheAction> take_actions() { return std::exchange(actions_, {}); }
  /// All tasks have ended, and all changed tiles have been written back.
  bool finished() const;
  const Counts& counts() const { return counts_; }
  Index slots() const { return slots_; }
  /// The slot of a tile; -1 if it has none. @pre 0 ≤ tile < order.tiles
  std::int32_t slot(std::int32_t tile) const { return tiles_[static_cast<std::size_t>(tile)].slot; }
  /// Whether the slot of the tile has its contents. Otherwise the store has them, or they do not exist yet.
  bool in_memory(std::int32_t tile) const {
    const State state = tiles_[static_cast<std::size_t>(tile)].state;
    return state == State::resident || state == State::writing;
  }

 private:
  enum class State : std::uint8_t { absent, loading, resident, writing };
  struct Tile {
    State state = State::absent;
    bool dirty = false;
    bool fetched = false;  // a copy that has come from its rank
    std::int32_t slot = -1;
    Index pins = 0;      // admitted tasks that have not ended
    Index next = 0;      // position in uses_ of the first use by a task that is not admitted
    Index end = 0;       // end of its uses
    Index key = 0;       // in evictable_
    Index last_use = 0;  // the last task that was admitted with it
    std::vector<Index> waiting;
  };
  struct Admitted {
    bool running = false;  // action `run` was given
    bool ended = true;
    std::int32_t missing = 0;
  };

  Tile& at(std::int32_t tile) { return tiles_[static_cast<std::size_t>(tile)]; }
  bool is_copy(std::int32_t tile) const {
    return !order_.copies.empty() && order_.copies[static_cast<std::size_t>(tile)];
  }
  bool is_dead(std::int32_t tile) const;
  void pin(std::int32_t tile);
  void unpin(std::int32_t tile);
  void arrive(std::int32_t tile);
  void admit();
  bool may_admit() const;
  bool make_room(Index absent);
  void place();
  void finish();

  const TileOrder& order_;
  Index slots_;
  CacheOptions options_;
  std::vector<Index> uses_;       // tasks that use a tile, tile by tile
  std::vector<char> overwrites_;  // whether they do so without its contents before
  std::vector<Tile> tiles_;
  std::vector<Admitted> tasks_;
  std::vector<std::int32_t> free_;                      // slots
  std::set<std::pair<Index, std::int32_t>> evictable_;  // by key; the last one leaves first
  Index next_ = 0;                                      // the first task that is not admitted
  bool reserved_ = false;                               // its tiles that are in memory are pinned
  Index unfinished_ = 0, pinned_ = 0;
  Index leaving_ = 0;  // tiles that are written back and then free their slot
  Index moving_ = 0;   // loads and write-backs without an answer
  std::vector<CacheAction> actions_;
  Counts counts_;
};

/// The traffic of a run in which each task ends as late as the options allow, so that most tiles are pinned. Nothing if
/// it is above `most`. @pre as for TileCache
std::optional<TileCache::Counts> simulate(const TileOrder& order, Index slots, const CacheOptions& options, Index most);

}  // namespace aloni::tasks
