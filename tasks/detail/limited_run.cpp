#include <aloni/tasks/detail/limited_run.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <thread>
#include <utility>

namespace aloni::tasks {

namespace {

struct LargestTask {
  Index tiles = 0;       ///< of one task
  Index slot_bytes = 0;  ///< of the largest tile, in multiples of the alignment
};

LargestTask largest_task(const TaskRule& rule, const std::function<Index(const TileId&)>& bytes, Index alignment) {
  LargestTask largest;
  std::vector<TileAccess> accesses;
  std::vector<TileId> tiles;
  for (const TileId& tile : rule.tiles()) {
    largest.slot_bytes = std::max(largest.slot_bytes, ceil_div(bytes(tile), alignment) * alignment);
    for (std::int32_t v = 1; v <= rule.writes(tile); ++v) {
      accesses.clear();
      tiles.clear();
      rule.append_accesses(rule.writer_of({tile, v}), accesses);
      for (const TileAccess& access : accesses) tiles.push_back(access.tile);
      std::ranges::sort(tiles);
      tiles.erase(std::ranges::unique(tiles).begin(), tiles.end());
      largest.tiles = std::max(largest.tiles, static_cast<Index>(tiles.size()));
    }
  }
  return largest;
}

}  // namespace

Index least_memory(const TaskRule& rule, const std::function<Index(const TileId&)>& bytes, Index alignment) {
  const LargestTask largest = largest_task(rule, bytes, alignment);
  return largest.tiles * largest.slot_bytes;
}

namespace detail {

namespace {

/// How the limit is divided.
struct Plan {
  Index slot_bytes = 0, slots = 0, messages = 0;
  CacheOptions options{};
};

/// Throws InvalidArgument for a limit below the least.
Plan plan_slots(const std::string& operation, const TaskRule& rule, const std::function<Index(const TileId&)>& bytes,
                const MemoryLimit& limit, int workers, Index alignment, bool between_ranks) {
  const LargestTask largest = largest_task(rule, bytes, alignment);
  Plan plan{.slot_bytes = std::max<Index>(largest.slot_bytes, 1)};
  const Index reserved = between_ranks && largest.tiles > 0 ? 1 : 0;
  if (const Index least = (largest.tiles + reserved) * plan.slot_bytes; limit.bytes < least)
    throw InvalidArgument(operation, "memory limit", std::to_string(limit.bytes) + " bytes",
                          "at least " + std::to_string(least) + " bytes, the " + std::to_string(largest.tiles) +
                              " tiles of one task" + (between_ranks ? " and one of a message" : "") +
                              "; smaller tiles need less");
  if (limit.most_tasks < 0)
    throw InvalidArgument(operation, "most_tasks", std::to_string(limit.most_tasks), "at least 0");
  constexpr Index tasks_per_worker = 8;
  const int threads = workers > 0 ? workers : count_processors();
  plan.options = {.eviction = limit.eviction,
                  .most_tasks = limit.most_tasks > 0 ? limit.most_tasks : tasks_per_worker * threads};
  constexpr Index slots_per_message = 8, most_messages = 4;
  const Index room = limit.bytes / plan.slot_bytes;
  plan.messages = reserved * std::clamp<Index>(room / slots_per_message, 1, most_messages);
  plan.slots = room - plan.messages;
  return plan;
}

}  // namespace

views::TileShape agreed_block(const std::string& operation, const comm::Communicator& comm, const TaskRule& rule,
                              const std::function<bool(const TileId&)>& owns,
                              const std::function<Index(const TileId&)>& bytes, const MemoryLimit& limit, int workers) {
  const Plan plan = comm::collectively(
      comm, operation, [&] { return plan_slots(operation, rule, bytes, limit, workers, slot_alignment, true); });
  const views::TileShape block = comm::collectively(comm, operation, [&] {
    if (limit.block) return *limit.block;
    return comm.rank() == 0 ? choose_order(rule, plan.slots, plan.options, owns).block : views::TileShape(1);
  });
  std::array<Index, 2> shape{block.rows, block.columns};
  comm.run(comm::Broadcast{std::span(shape), 0});
  return {shape[0], shape[1]};
}

LimitedRun::LimitedRun(const std::string& operation, const TaskRule& rule,
                       const std::function<Index(const TileId&)>& bytes, SlotMemory& slots, const MemoryLimit& limit,
                       int workers, RankTiles ranks)
    : start_(trace_now()), rule_(rule), slots_(slots), ranks_(std::move(ranks)) {
  const Plan plan =
      plan_slots(operation, rule, bytes, limit, workers, slots.alignment(), static_cast<bool>(ranks_.owns));
  slot_bytes_ = plan.slot_bytes;
  order_ = limit.block ? make_order(rule, *limit.block, ranks_.owns)
                       : choose_order(rule, plan.slots, plan.options, ranks_.owns);
  for (std::size_t t = 0; t < order_.tiles.size(); ++t) {
    numbers_.emplace(order_.tiles[t], static_cast<std::int32_t>(t));
    bytes_.push_back(bytes(order_.tiles[t]));
  }
  for (std::size_t p = 0; p < order_.tasks.size(); ++p)
    positions_.emplace(order_.tasks[p].key(), static_cast<Index>(p));
  addresses_.resize(order_.tiles.size());
  cache_.emplace(order_.uses, plan.slots, plan.options);
  const auto size = static_cast<std::size_t>((cache_->slots() + plan.messages) * slot_bytes_);
  memory_ = slots.allocate(order_.uses.tiles, cache_->slots(), size);
  for (Index i = 0; i < plan.messages; ++i) send_buffers_.push_back(memory_ + (cache_->slots() + i) * slot_bytes_);
}

LimitedRun::~LimitedRun() = default;

Runtime& LimitedRun::prepare(Runtime::Body body, RuntimeOptions options) {
  options.admission = true;
  options.owns = ranks_.owns;
  return runtime_.emplace(
      rule_,
      [this, body = std::move(body)](const Task& task, int worker) {
        body(task, worker);
        end_task(task);
      },
      std::move(options));
}

LimitedReport LimitedRun::run() {
  LimitedReport report;
  std::exception_ptr failure;
  {
    std::jthread mover;  // joined at the end of the block
    try {
      std::unique_lock lock(mutex_);
      const std::vector<Task> first = act();
      lock.unlock();
      admit(first);
      mover = std::jthread([this] { move_tiles(); });
      report.run = runtime_->run();
    } catch (...) {
      failure = std::current_exception();
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
  }
  if (failure) std::rethrow_exception(failure);
  if (error_) std::rethrow_exception(error_);  // the last write-backs
  report.run.start = start_;
  report.run.end = trace_now();
  report.swaps = swaps_;
  report.swaps.tiles = cache_->counts();
  report.slots = cache_->slots();
  report.block = order_.block;
  report.compulsory_bytes = order_.uses.compulsory(bytes_);
  return report;
}

void LimitedRun::end_task(const Task& task) {
  std::unique_lock lock(mutex_);
  cache_->ended(positions_.at(task.key()));
  const std::vector<Task> tasks = act();
  lock.unlock();
  admit(tasks);
}

std::vector<Task> LimitedRun::act() {
  std::vector<Task> tasks;
  for (const CacheAction& a : cache_->take_actions()) {
    if (a.kind == CacheAction::Kind::run) {
      for (const TileOrder::Use& use : order_.uses.of(a.task)) {
        std::byte*& address = addresses_[static_cast<std::size_t>(use.tile)];
        std::byte* const here = contents(use.tile, cache_->slot(use.tile)).data();
        if (address != here) address = here;  // other workers may read it
      }
      tasks.push_back(order_.tasks[static_cast<std::size_t>(a.task)]);
      continue;
    }
    if (a.kind == CacheAction::Kind::fetch) {
      ranks_.fetch(order_.tiles[static_cast<std::size_t>(a.tile)]);
    } else {
      (a.kind == CacheAction::Kind::load ? loads_ : write_backs_).push_back(a);
    }
  }
  wake_.notify_one();
  return tasks;
}

void LimitedRun::admit(const std::vector<Task>& tasks) {
  for (const Task& task : tasks) runtime_->admit(task);
}

// --- between ranks ---

std::span<std::byte> LimitedRun::room(const TileId& tile) {
  const std::int32_t number = numbers_.at(tile);
  const std::lock_guard lock(mutex_);
  return contents(number, cache_->slot(number));
}

void LimitedRun::fetched(const TileId& tile) {
  std::unique_lock lock(mutex_);
  cache_->loaded(numbers_.at(tile));
  const std::vector<Task> tasks = act();
  lock.unlock();
  admit(tasks);
}

void LimitedRun::copy_out(const TileId& tile, std::byte* to, std::size_t bytes) {
  const auto number = numbers_.find(tile);  // none: no task of this rank computes with it
  if (number != numbers_.end()) {
    const std::lock_guard lock(mutex_);
    if (cache_->in_memory(number->second)) {
      std::ranges::copy(contents(number->second, cache_->slot(number->second)), to);
      return;
    }
  }
  // It was written back, and no task writes it again.
  ranks_.read(tile, {to, bytes});
}

// --- the thread that moves tiles ---

/// The life of this thread.
void LimitedRun::move_tiles() noexcept {
  try {
    std::unique_lock lock(mutex_);
    while (!stop_ && !cache_->finished()) {
      std::deque<CacheAction>& queue = write_backs_.empty() ? loads_ : write_backs_;
      if (queue.empty()) {
        wake_.wait(lock);
        continue;
      }
      const CacheAction action = queue.front();
      queue.pop_front();
      lock.unlock();
      move(action);
      lock.lock();
    }
    const bool finished = !stop_;
    lock.unlock();
    if (finished) slots_.finish();
  } catch (...) {
    error_ = std::current_exception();
    runtime_->fail(error_);
  }
}

void LimitedRun::move(const CacheAction& action) {
  const bool load = action.kind == CacheAction::Kind::load;
  const TileMove tile{order_.tiles[static_cast<std::size_t>(action.tile)], action.tile, action.slot,
                      contents(action.tile, action.slot)};
  load ? slots_.load(tile) : slots_.write_back(tile);
  std::unique_lock lock(mutex_);
  (load ? swaps_.bytes_in : swaps_.bytes_out) += static_cast<Index>(tile.contents.size());
  load ? cache_->loaded(action.tile) : cache_->written(action.tile);
  const std::vector<Task> tasks = act();
  lock.unlock();
  admit(tasks);
}

}  // namespace detail

}  // namespace aloni::tasks
