#include <aloni/tasks/tile_cache.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <deque>
#include <limits>
#include <string>

namespace aloni::tasks {

namespace {

constexpr const char* tile_cache_name = "aloni::tasks::TileCache";

}  // namespace

void TileOrder::add(std::span<const Use> tiles_of_task) {
  uses.insert(uses.end(), tiles_of_task.begin(), tiles_of_task.end());
  first.push_back(static_cast<Index>(uses.size()));
}

Index TileOrder::most_tiles() const {
  Index most = 0;
  for (Index t = 0; t < tasks(); ++t) most = std::max(most, static_cast<Index>(of(t).size()));
  return most;
}

Index TileOrder::compulsory(std::span<const Index> sizes) const {
  std::vector<char> used(static_cast<std::size_t>(tiles)), changed(used);
  Index sum = 0;
  for (const auto& [tile, access] : uses) {
    const auto t = static_cast<std::size_t>(tile);
    if (!copies.empty() && copies[t]) continue;
    const Index size = sizes.empty() ? 1 : sizes[t];
    if (!std::exchange(used[t], true) && access != Access::write) sum += size;
    if (access != Access::read && !std::exchange(changed[t], true)) sum += size;
  }
  return sum;
}

TileCache::TileCache(const TileOrder& order, Index slots, const CacheOptions& options)
    : order_(order),
      slots_(std::min(slots, std::max<Index>(order.tiles, 1))),
      options_(options),
      uses_(order.uses.size()),
      overwrites_(order.uses.size()),
      tiles_(static_cast<std::size_t>(order.tiles)),
      tasks_(static_cast<std::size_t>(order.tasks())) {
  if (const Index least = order.most_tiles(); slots < least)
    throw InvalidArgument(tile_cache_name, "slots", std::to_string(slots),
                          "at least " + std::to_string(least) + ", the tiles of one task");
  if (options.most_tasks < 1 || options.most_pinned < 0)
    throw InvalidArgument(tile_cache_name, "most_tasks, most_pinned",
                          std::to_string(options.most_tasks) + ", " + std::to_string(options.most_pinned),
                          "at least 1 and 0");
  if (options_.most_pinned == 0) options_.most_pinned = slots_ / 2;
  for (const TileOrder::Use& use : order.uses) ++at(use.tile).end;
  Index begin = 0;
  for (Tile& tile : tiles_) {
    tile.next = begin;
    begin += tile.end;
    tile.end = tile.next;
  }
  for (Index t = 0; t < order.tasks(); ++t)
    for (const TileOrder::Use& use : order.of(t)) {
      const auto i = static_cast<std::size_t>(at(use.tile).end++);
      uses_[i] = t;
      overwrites_[i] = use.access == Access::write;
    }
  for (Index s = slots_; s > 0; --s) free_.push_back(static_cast<std::int32_t>(s - 1));
  admit();
}

// --- events ---

void TileCache::loaded(std::int32_t tile) {
  if (tile < 0 || tile >= order_.tiles || at(tile).state != State::loading)
    throw InvalidArgument(tile_cache_name, "tile", std::to_string(tile), "a tile that is loaded");
  --moving_;
  if (is_copy(tile) && !std::exchange(at(tile).fetched, true)) at(tile).dirty = true;  // the store does not have it
  arrive(tile);
}

void TileCache::written(std::int32_t number) {
  if (number < 0 || number >= order_.tiles || at(number).state != State::writing)
    throw InvalidArgument(tile_cache_name, "tile", std::to_string(number), "a tile that is written back");
  --moving_;
  Tile& tile = at(number);
  tile.dirty = false;
  if (tile.pins > 0) {  // needed again meanwhile
    arrive(number);
  } else {
    --leaving_;
    counts_.evictions += next_ < order_.tasks() || unfinished_ > 0;
    tile.state = State::absent;
    free_.push_back(std::exchange(tile.slot, -1));
  }
  admit();
}

void TileCache::ended(Index task) {
  if (task < 0 || task >= next_ || !tasks_[static_cast<std::size_t>(task)].running)
    throw InvalidArgument(tile_cache_name, "task", std::to_string(task), "a task that runs");
  tasks_[static_cast<std::size_t>(task)].running = false;
  --unfinished_;
  for (const TileOrder::Use& use : order_.of(task)) {
    if (use.access != Access::read) at(use.tile).dirty = true;
    unpin(use.tile);
  }
  admit();
}

bool TileCache::finished() const {
  return next_ == order_.tasks() && unfinished_ == 0 && moving_ == 0 &&
         std::ranges::none_of(tiles_, [](const Tile& t) { return t.dirty; });
}

// --- tiles ---

/// Whether the contents are not needed: the next task that uses the tile overwrites it, or no task reads the copy.
bool TileCache::is_dead(std::int32_t number) const {
  const Tile& tile = tiles_[static_cast<std::size_t>(number)];
  return tile.next < tile.end ? overwrites_[static_cast<std::size_t>(tile.next)] != 0 : is_copy(number);
}

void TileCache::pin(std::int32_t number) {
  Tile& tile = at(number);
  if (tile.pins++ > 0) return;
  ++pinned_;
  if (tile.state == State::writing) --leaving_;  // it stays
  if (tile.state == State::resident) evictable_.erase({tile.key, number});
}

void TileCache::unpin(std::int32_t number) {
  Tile& tile = at(number);
  if (--tile.pins > 0) return;
  --pinned_;
  constexpr Index never = std::numeric_limits<Index>::max();
  if (options_.eviction == Eviction::lru) {
    tile.key = -tile.last_use;
  } else {
    tile.key = tile.next < tile.end && !is_dead(number) ? uses_[static_cast<std::size_t>(tile.next)] : never;
  }
  evictable_.insert({tile.key, number});
}

/// The tile is in memory: tasks that wait for nothing else may run.
void TileCache::arrive(std::int32_t number) {
  Tile& tile = at(number);
  tile.state = State::resident;
  for (const Index task : std::exchange(tile.waiting, {})) {
    Admitted& admitted = tasks_[static_cast<std::size_t>(task)];
    if (--admitted.missing > 0) continue;
    admitted.running = true;
    actions_.push_back({.kind = CacheAction::Kind::run, .task = task});
  }
}

// --- admission ---

/// Admits the next tasks in order, as long as they get their slots.
void TileCache::admit() {
  while (next_ < order_.tasks()) {
    if (!reserved_) {
      if (!may_admit()) return;
      // Only tiles that are here: a slot that becomes free is not yet that of a certain tile.
      for (const TileOrder::Use& use : order_.of(next_))
        if (at(use.tile).state != State::absent) pin(use.tile);
      reserved_ = true;
    }
    Index absent = 0;
    for (const TileOrder::Use& use : order_.of(next_)) absent += at(use.tile).state == State::absent;
    if (!make_room(absent)) return;
    place();
  }
  if (unfinished_ == 0) finish();
}

bool TileCache::may_admit() const {
  if (unfinished_ == 0) return true;
  if (unfinished_ >= options_.most_tasks) return false;
  Index pinned = pinned_;
  for (const TileOrder::Use& use : order_.of(next_)) pinned += tiles_[static_cast<std::size_t>(use.tile)].pins == 0;
  return pinned <= options_.most_pinned;
}

/// Evicts tiles until `absent` slots are free or will be. Returns whether they are free.
bool TileCache::make_room(Index absent) {
  while (static_cast<Index>(free_.size()) + leaving_ < absent && !evictable_.empty()) {
    const std::int32_t victim = std::prev(evictable_.end())->second;
    evictable_.erase(std::prev(evictable_.end()));
    Tile& tile = at(victim);
    if (tile.dirty && !is_dead(victim)) {
      tile.state = State::writing;
      ++leaving_;
      ++moving_;
      ++counts_.write_backs;
      actions_.push_back({.kind = CacheAction::Kind::write_back, .tile = victim, .slot = tile.slot});
    } else {
      ++counts_.evictions;
      tile.state = State::absent;
      tile.dirty = false;
      free_.push_back(std::exchange(tile.slot, -1));
    }
  }
  return static_cast<Index>(free_.size()) >= absent;
}

/// Gives the next task its slots.
void TileCache::place() {
  const Index task = next_++;
  Admitted& admitted = tasks_[static_cast<std::size_t>(task)];
  for (const auto& [number, access] : order_.of(task)) {
    Tile& tile = at(number);
    ++tile.next;
    tile.last_use = task;
    if (tile.state != State::absent) {
      ++counts_.hits;
    } else {
      pin(number);
      tile.slot = free_.back();
      free_.pop_back();
      if (access == Access::write) {
        tile.state = State::resident;
      } else {
        const bool fetch = is_copy(number) && !tile.fetched;
        tile.state = State::loading;
        ++moving_;
        ++(fetch ? counts_.fetches : counts_.loads);
        counts_.prefetches += !fetch && unfinished_ > 0;
        actions_.push_back(
            {.kind = fetch ? CacheAction::Kind::fetch : CacheAction::Kind::load, .tile = number, .slot = tile.slot});
      }
    }
    if (tile.state == State::resident) continue;
    ++admitted.missing;
    tile.waiting.push_back(task);
  }
  reserved_ = false;
  ++unfinished_;
  if (admitted.missing > 0) return;
  admitted.running = true;
  actions_.push_back({.kind = CacheAction::Kind::run, .task = task});
}

/// All tasks have ended: changed tiles go to the store.
void TileCache::finish() {
  for (std::int32_t number = 0; number < order_.tiles; ++number) {
    Tile& tile = at(number);
    if (is_copy(number)) tile.dirty = false;
    if (tile.state != State::resident || !tile.dirty) continue;
    evictable_.erase({tile.key, number});
    tile.state = State::writing;
    ++leaving_;
    ++moving_;
    ++counts_.write_backs;
    actions_.push_back({.kind = CacheAction::Kind::write_back, .tile = number, .slot = tile.slot});
  }
}

std::optional<TileCache::Counts> simulate(const TileOrder& order, Index slots, const CacheOptions& options,
                                          Index most) {
  TileCache cache(order, slots, options);
  std::deque<Index> running;
  for (;;) {
    const auto actions = cache.take_actions();
    for (const CacheAction& a : actions) {
      if (a.kind == CacheAction::Kind::load || a.kind == CacheAction::Kind::fetch) cache.loaded(a.tile);
      if (a.kind == CacheAction::Kind::write_back) cache.written(a.tile);
      if (a.kind == CacheAction::Kind::run) running.push_back(a.task);
    }
    if (cache.counts().traffic() > most) return std::nullopt;
    if (!actions.empty()) continue;
    if (running.empty()) return cache.counts();
    cache.ended(running.front());
    running.pop_front();
  }
}

}  // namespace aloni::tasks
