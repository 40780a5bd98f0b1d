#include <aloni/tasks/tile_cache.hpp>

#include <aloni/core/error.hpp>
#include <aloni/tasks/cholesky.hpp>
#include <aloni/tasks/detail/solve_rule.hpp>
#include <aloni/tasks/lu.hpp>
#include <aloni/tasks/task_order.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace aloni::tasks {
namespace test_tile_cache {

using detail::SolveRule;
using detail::Substitution;
constexpr Index any = std::numeric_limits<Index>::max();

/// Tasks with 1 to `most` tiles of `tiles`. `reads_only`: no task changes a tile.
TileOrder random_order(std::mt19937_64& random, Index tiles, Index tasks, Index most, bool reads_only) {
  const auto at_most = [&](Index n) { return std::uniform_int_distribution<Index>(0, n)(random); };
  TileOrder order;
  order.tiles = tiles;
  for (Index t = 0; t < tasks; ++t) {
    std::vector<TileOrder::Use> uses;
    for (Index n = 1 + at_most(most - 1); n > 0; --n) {
      const auto tile = static_cast<std::int32_t>(at_most(tiles - 1));
      const auto access = reads_only ? Access::read : static_cast<Access>(at_most(2));
      if (std::ranges::find(uses, tile, &TileOrder::Use::tile) == uses.end()) uses.push_back({tile, access});
    }
    order.add(uses);
  }
  return order;
}

/// A memory and a store whose tiles contain numbers, so that a tile in the wrong place is noticed.
class Machine {
 public:
  Machine(const TileOrder& order, Index slots, const CacheOptions& options)
      : order_(order),
        cache_(order, slots, options),
        slots_(static_cast<std::size_t>(slots), nowhere),
        store_(static_cast<std::size_t>(order.tiles)),
        expected_(store_) {
    take();
  }

  /// Answers one action at random. Returns whether there was one.
  bool step(std::mt19937_64& random) {
    if (moves_.empty() && running_.empty()) return false;
    const auto i = std::uniform_int_distribution<std::size_t>(0, moves_.size() + running_.size() - 1)(random);
    i < moves_.size() ? move(i) : end(i - moves_.size());
    take();
    return true;
  }

  void expect_finished() const {
    EXPECT_TRUE(cache_.finished());
    EXPECT_EQ(ended_.size(), static_cast<std::size_t>(order_.tasks()));
    EXPECT_EQ(store_, expected_);
  }
  const TileCache::Counts& counts() const { return cache_.counts(); }
  TileCache& cache() { return cache_; }

 private:
  static constexpr std::pair<std::int32_t, Index> nowhere{-1, -1};  ///< tile, contents

  void take() {
    for (const CacheAction& a : cache_.take_actions()) {
      if (a.kind == CacheAction::Kind::run) {
        ASSERT_TRUE(begun_.insert(a.task).second);
        running_.push_back(a.task);
        continue;
      }
      auto& slot = slots_.at(static_cast<std::size_t>(a.slot));
      if (a.kind == CacheAction::Kind::load) {
        ASSERT_FALSE(busy_.count(a.slot)) << "a slot that is written to the store";
        slot = {a.tile, -1};
      } else {
        ASSERT_EQ(slot.first, a.tile);
      }
      busy_.insert(a.slot);
      moves_.push_back(a);
    }
  }

  void move(std::size_t i) {
    const CacheAction a = moves_[i];
    moves_.erase(moves_.begin() + static_cast<std::ptrdiff_t>(i));
    busy_.erase(a.slot);
    auto& [tile, contents] = slots_[static_cast<std::size_t>(a.slot)];
    Index& stored = store_[static_cast<std::size_t>(a.tile)];
    if (a.kind == CacheAction::Kind::load) {
      contents = stored;
      cache_.loaded(a.tile);
    } else {
      ASSERT_EQ(tile, a.tile);
      stored = contents;
      cache_.written(a.tile);
    }
  }

  /// Tasks that share a tile which one of them writes run in order, as their dependences say.
  void end(std::size_t i) {
    const Index task = running_[i];
    for (Index other = 0; other < task; ++other)
      if (!ended_.count(other) && depends(task, other)) return;
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
    for (const auto& [tile, access] : order_.of(task)) {
      auto& slot = slots_.at(static_cast<std::size_t>(cache_.slot(tile)));
      Index& expected = expected_[static_cast<std::size_t>(tile)];
      if (access == Access::write) slot = {tile, expected};
      ASSERT_EQ(slot, (std::pair{tile, expected})) << "task " << task;
      ASSERT_FALSE(busy_.count(cache_.slot(tile))) << "a tile that moves while its task runs";
      if (access != Access::read) slot.second = expected = 1 + task;
    }
    ended_.insert(task);
    cache_.ended(task);
  }

  bool depends(Index task, Index other) const {
    for (const auto& a : order_.of(task))
      for (const auto& b : order_.of(other))
        if (a.tile == b.tile && (a.access != Access::read || b.access != Access::read)) return true;
    return false;
  }

  const TileOrder& order_;
  TileCache cache_;
  std::vector<std::pair<std::int32_t, Index>> slots_;
  std::vector<Index> store_, expected_;
  std::vector<CacheAction> moves_;
  std::vector<Index> running_;
  std::set<std::int32_t> busy_;
  std::set<Index> begun_, ended_;
};

/// Whatever the order of the events, all tasks run on the right contents, and the store has the last ones. Also with
/// the least number of slots.
TEST(TileCache, EveryRunEndsWithTheRightContents) {
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    std::mt19937_64 random(seed);
    const auto at_most = [&](Index n) { return std::uniform_int_distribution<Index>(0, n)(random); };
    const TileOrder order = random_order(random, 1 + at_most(9), 1 + at_most(40), 1 + at_most(4), seed % 5 == 0);
    const Index slots = order.most_tiles() + (seed % 3 == 0 ? 0 : at_most(5));
    Machine machine(order, slots,
                    {.eviction = at_most(1) == 0 ? Eviction::furthest : Eviction::lru,
                     .most_tasks = 1 + at_most(6),
                     .most_pinned = at_most(8)});
    int steps = 0;
    while (machine.step(random) && ++steps < 100'000 && !HasFatalFailure()) {
    }
    machine.expect_finished();
    EXPECT_GE(machine.counts().traffic(), order.compulsory());
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

/// The least number of loads of any rule, by trying all victims.
class BestRule {
 public:
  BestRule(const TileOrder& order, Index slots) : order_(order), slots_(slots) {}

  Index loads(Index task = 0, std::uint32_t here = 0) {
    if (task == order_.tasks()) return 0;
    const auto [known, is_new] = known_.try_emplace({task, here}, any);
    if (!is_new) return known->second;
    std::uint32_t needed = 0;
    Index loads_now = 0;
    for (const auto& [tile, access] : order_.of(task)) {
      needed |= 1U << tile;
      loads_now += (here >> tile & 1U) == 0 && access != Access::write;
    }
    Index least = any;
    const std::uint32_t others = here & ~needed;
    for (std::uint32_t kept = others;; kept = (kept - 1) & others) {
      if (std::popcount(kept | needed) <= slots_) least = std::min(least, loads_now + loads(task + 1, kept | needed));
      if (kept == 0) break;
    }
    return known_[{task, here}] = least;
  }

 private:
  const TileOrder& order_;
  Index slots_;
  std::map<std::pair<Index, std::uint32_t>, Index> known_;
};

TEST(TileCache, FurthestUseLoadsAsFewTilesAsTheBestRuleAndLruNeverFewer) {
  Index more = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    std::mt19937_64 random(seed);
    const TileOrder order = random_order(random, 7, 25, 3, seed % 2 == 0);
    const Index slots = order.most_tiles() + static_cast<Index>(seed % 3);
    const auto loads = [&](Eviction eviction) { return simulate(order, slots, {.eviction = eviction}, any)->loads; };
    ASSERT_EQ(loads(Eviction::furthest), BestRule(order, slots).loads()) << "seed " << seed;
    ASSERT_GE(loads(Eviction::lru), loads(Eviction::furthest)) << "seed " << seed;
    more += loads(Eviction::lru) - loads(Eviction::furthest);
  }
  EXPECT_GT(more, 400);
}

/// A rule of Cholesky, of LU, or of one half of a solution, of random sizes.
std::unique_ptr<TaskRule> random_rule(std::mt19937_64& random) {
  const auto at_most = [&](Index n) { return std::uniform_int_distribution<Index>(0, n)(random); };
  const Index tiles = 1 + at_most(9), height = 1 + at_most(2), kind = at_most(3);
  if (kind == 0) return std::make_unique<LuRule>(tiles, 1);
  if (kind == 1) return std::make_unique<CholeskyRule>(tiles, 1, height);
  const bool is_lu = at_most(1) == 0;
  return std::make_unique<SolveRule>(is_lu ? Factors::lu : Factors::cholesky,
                                     kind == 2 ? Substitution::forward : Substitution::backward, tiles, 1 + at_most(2),
                                     1, is_lu ? 1 : height);
}

/// Ranks with the least number of slots, or a few more. A copy comes at some time after its last write. Tasks end in
/// random orders. No rank waits forever.
TEST(TileCache, RanksWithFewSlotsDoNotWaitForeverForEachOther) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto at_most = [&](Index n) { return std::uniform_int_distribution<Index>(0, n)(random); };
    const views::TileGrid grid{1 + static_cast<int>(at_most(2)), 1 + static_cast<int>(at_most(2))};
    const std::unique_ptr<TaskRule> any_rule = random_rule(random);
    const TaskRule& rule = *any_rule;
    const views::TileShape block{1 + at_most(4), 1 + at_most(4)};
    const auto owner = [&](const TileId& t) { return t.row % grid.rows * grid.columns + t.column % grid.columns; };
    const int ranks = grid.rows * grid.columns;
    std::vector<BlockOrder> orders;
    std::vector<std::unique_ptr<TileCache>> caches;
    for (int r = 0; r < ranks; ++r)
      orders.push_back(make_order(rule, block, [&, r](const TileId& t) { return owner(t) == r; }));
    struct Event {
      int rank;
      CacheAction action;
    };
    std::vector<Event> events;
    const auto take = [&](int r) {
      for (const CacheAction& a : caches[static_cast<std::size_t>(r)]->take_actions()) events.push_back({r, a});
    };
    for (int r = 0; r < ranks; ++r) {
      const BlockOrder& order = orders[static_cast<std::size_t>(r)];
      caches.push_back(std::make_unique<TileCache>(order.uses, std::max<Index>(1, order.uses.most_tiles()) + at_most(2),
                                                   CacheOptions{.most_tasks = 1 + at_most(5)}));
      take(r);
    }
    std::map<TileId, std::int32_t> written;
    const auto is_ready = [&](const Task& task) {
      std::vector<TileAccess> accesses;
      rule.append_accesses(task, accesses);
      return std::ranges::all_of(accesses, [&](const TileAccess& a) {
        return written[a.tile] == (a.access == Access::read ? rule.writes(a.tile) : rule.output(task).version - 1);
      });
    };
    while (!events.empty()) {
      // Events that can happen, in random order.
      const auto can_happen = [&](const Event& e) {
        const BlockOrder& order = orders[static_cast<std::size_t>(e.rank)];
        if (e.action.kind == CacheAction::Kind::run)
          return is_ready(order.tasks[static_cast<std::size_t>(e.action.task)]);
        const TileId tile = order.tiles[static_cast<std::size_t>(e.action.tile)];
        return e.action.kind != CacheAction::Kind::fetch || written[tile] == rule.writes(tile);
      };
      std::ranges::shuffle(events, random);
      const auto next = std::ranges::find_if(events, can_happen);
      ASSERT_NE(next, events.end()) << "seed " << seed << ": all ranks wait";
      const auto [r, action] = *next;
      events.erase(next);
      const BlockOrder& order = orders[static_cast<std::size_t>(r)];
      TileCache& cache = *caches[static_cast<std::size_t>(r)];
      if (action.kind == CacheAction::Kind::run) {
        ++written[rule.output(order.tasks[static_cast<std::size_t>(action.task)]).tile];
        cache.ended(action.task);
      } else if (action.kind == CacheAction::Kind::write_back) {
        cache.written(action.tile);
      } else {
        cache.loaded(action.tile);
      }
      take(r);
    }
    for (int r = 0; r < ranks; ++r) ASSERT_TRUE(caches[static_cast<std::size_t>(r)]->finished()) << "seed " << seed;
    for (const TileId& tile : rule.tiles()) ASSERT_EQ(written[tile], rule.writes(tile));
  }
}

TEST(TileCache, CountsHitsEvictionsAndPrefetches) {
  TileOrder order;
  order.tiles = 3;
  for (const std::int32_t tile : {0, 1, 0, 2}) order.add(std::vector<TileOrder::Use>{{tile, Access::read_write}});
  TileCache cache(order, 2, {.most_tasks = 2, .most_pinned = 2});
  auto actions = cache.take_actions();
  ASSERT_EQ(actions.size(), 2U) << "tiles of two tasks";
  EXPECT_EQ(cache.counts().prefetches, 1);
  cache.loaded(0);
  cache.loaded(1);
  cache.ended(0);
  EXPECT_EQ(cache.counts().hits, 1) << "the third task";
  cache.ended(1);
  actions = cache.take_actions();
  EXPECT_EQ(actions.back().kind, CacheAction::Kind::write_back);
  EXPECT_EQ(actions.back().tile, 1) << "for the fourth task";
  EXPECT_EQ(cache.counts().evictions, 0);
  cache.written(1);
  EXPECT_EQ(cache.counts().evictions, 1);
  EXPECT_EQ(cache.counts().loads, 3);
}

TEST(TileCache, RefusesWrongArgumentsAndEvents) {
  std::mt19937_64 random(1);
  TileOrder order;
  order.tiles = 4;
  order.add(std::vector<TileOrder::Use>{{0, Access::read}, {1, Access::read}, {3, Access::write}});
  EXPECT_THROW(TileCache(order, 2, {}), InvalidArgument);
  EXPECT_THROW(TileCache(order, 3, {.most_tasks = 0}), InvalidArgument);
  EXPECT_THROW(TileCache(order, 3, {.most_pinned = -1}), InvalidArgument);
  TileCache cache(order, 3, {});
  EXPECT_THROW(cache.loaded(2), InvalidArgument);
  EXPECT_THROW(cache.loaded(4), InvalidArgument);
  EXPECT_THROW(cache.written(0), InvalidArgument);
  EXPECT_THROW(cache.ended(0), InvalidArgument);
  cache.loaded(0);
  EXPECT_THROW(cache.loaded(0), InvalidArgument);
  cache.loaded(1);
  cache.ended(0);
  EXPECT_THROW(cache.ended(0), InvalidArgument);
  cache.written(3);
  EXPECT_TRUE(cache.finished());
}

/// Each task comes after all tasks for which it waits.
void expect_order(const TaskRule& rule, const views::TileShape& block) {
  const std::vector<Task> order = block_order(rule, block);
  std::map<Task, std::size_t> position;
  for (std::size_t p = 0; p < order.size(); ++p) ASSERT_TRUE(position.emplace(order[p], p).second);
  std::size_t tasks = 0;
  for (const TileId& tile : rule.tiles()) tasks += static_cast<std::size_t>(rule.writes(tile));
  ASSERT_EQ(order.size(), tasks);
  std::vector<Task> successors;
  for (const Task& task : order) {
    successors.clear();
    rule.append_successors(task, successors);
    for (const Task& s : successors)
      ASSERT_LT(position.at(task), position.at(s))
          << to_string(task) << ", " << to_string(s) << " in blocks of " << to_string(block);
  }
}

TEST(BlockOrder, RespectsTheDependencesForAllBlocks) {
  for (Index h = 1; h <= 8; ++h)
    for (Index w = 1; w <= 8; ++w) {
      expect_order(LuRule(7, 1), {h, w});
      for (const Index height : {1, 2, 3}) expect_order(CholeskyRule(8, 1, height), {h, w});
      for (const Substitution half : {Substitution::forward, Substitution::backward}) {
        expect_order(SolveRule(Factors::lu, half, 7, 3, 1), {h, w});
        for (const Index height : {1, 2, 3}) expect_order(SolveRule(Factors::cholesky, half, 8, 3, 1, height), {h, w});
      }
      if (HasFatalFailure()) return;
    }
  EXPECT_THROW(block_order(LuRule(2, 1), {0, 1}), InvalidArgument);
}

TEST(BlockOrder, OfARankIsAPartOfTheOrderOfAll) {
  const CholeskyRule rule(9, 1);
  const auto owns = [](const TileId& t) { return t.row % 2 == 1 && t.column % 3 == 0; };
  std::vector<Task> part = block_order(rule, {3, 2});
  std::erase_if(part, [&](const Task& t) { return !owns(rule.output(t).tile); });
  EXPECT_FALSE(part.empty());
  EXPECT_EQ(block_order(rule, {3, 2}, owns), part);
}

/// The traffic of Cholesky in multiples of what any run must move, for 24 tile columns, square tiles and tall ones.
TEST(BlockOrder, CholeskyMovesLittleMoreThanItMust) {
  for (const Index height : {1, 4}) {
    const CholeskyRule rule(24, 1, height);
    const auto tiles = static_cast<Index>(rule.tiles().size());
    const auto ratio = [&](Index slots, Eviction eviction) {
      const BlockOrder order = choose_order(rule, slots, {.eviction = eviction, .most_tasks = 16});
      EXPECT_EQ(order.uses.compulsory(), 2 * tiles);
      return static_cast<double>(order.traffic) / static_cast<double>(2 * tiles);
    };
    EXPECT_EQ(ratio(tiles, Eviction::furthest), 1);
    EXPECT_EQ(ratio(tiles * 3 / 4, Eviction::furthest), 1);
    EXPECT_LE(ratio(tiles / 2, Eviction::furthest), 1.15);
    EXPECT_LE(ratio(tiles / 4, Eviction::furthest), 1.7);
    EXPECT_LE(ratio(3, Eviction::furthest), 9);
    // Even with an order chosen for it.
    for (const Index slots : {tiles / 2, tiles / 4, Index{3}})
      EXPECT_GT(ratio(slots, Eviction::lru), ratio(slots, Eviction::furthest)) << slots << " slots";
    EXPECT_GT(ratio(tiles / 2, Eviction::lru), 1.3);
    EXPECT_THROW(choose_order(rule, 2, {}), InvalidArgument);
  }
}

/// The bound of Beaumont and others holds for all orders; blocks reach it up to about √2 and lower terms.
TEST(BlockOrder, ReadsNoLessThanTheLowerBound) {
  constexpr Index n = 40;
  const CholeskyRule rule(n, 1);
  for (const Index slots : {8, 15, 35, 80}) {
    const BlockOrder order = choose_order(rule, slots, {});
    const auto loads = static_cast<double>(simulate(order.uses, slots, {}, any)->loads);
    const double bound = n * n * n / (3 * std::sqrt(2.0) * std::sqrt(static_cast<double>(slots)));
    EXPECT_GE(loads, bound - static_cast<double>(slots)) << slots << " slots";
    EXPECT_LE(loads, 2 * bound + n * n) << slots << " slots";
  }
}

}  // namespace test_tile_cache
}  // namespace aloni::tasks
