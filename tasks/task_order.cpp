#include <aloni/tasks/task_order.hpp>

#include <aloni/core/error.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace aloni::tasks {

namespace {

/// Shapes of blocks, those with the least traffic probably first.
std::vector<views::TileShape> block_candidates(Index rows, Index columns, Index slots) {
  std::vector<views::TileShape> shapes{{rows, 1}};
  const auto add = [&](Index h, Index w) {
    const views::TileShape shape{std::clamp<Index>(h, 1, rows), std::clamp<Index>(w, 1, columns)};
    if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
  };
  for (Index w = 1; w <= columns && w * w <= 2 * slots; w += std::max<Index>(1, w / 4)) {
    add((slots - w) / (w + 1), w);      // the block, and a column and a row of finished tiles
    add((slots / 2 - w) / (w + 1), w);  // the same in the half that is not pinned
    add(w, w);
    add(rows, w);
  }
  add(rows, columns);
  return shapes;
}

}  // namespace

std::vector<Task> block_order(const TaskRule& rule, const views::TileShape& block,
                              const std::function<bool(const TileId&)>& owns) {
  if (block.rows < 1 || block.columns < 1)
    throw InvalidArgument("aloni::tasks::block_order", "block", to_string(block), "at least 1 tile");
  struct Write {
    bool has_work;
    Index panel, block_row;
    std::int32_t version, column, row;
    Task task;
    auto key() const { return std::tie(has_work, panel, block_row, version, column, row); }
  };
  const std::vector<TileId> tiles = rule.tiles();
  std::int32_t last_row = 0;
  for (const TileId& tile : tiles) last_row = std::max(last_row, tile.row);
  std::vector<Write> writes;
  for (const TileId& tile : tiles) {
    if (owns && !owns(tile)) continue;
    const std::int32_t row = rule.is_bottom_up() ? last_row - tile.row : tile.row;
    for (std::int32_t v = 1; v <= rule.writes(tile); ++v) {
      const Task task = rule.writer_of({tile, v});
      writes.push_back(
          {task.kernel != Kernel::provide, tile.column / block.columns, row / block.rows, v, tile.column, row, task});
    }
  }
  std::ranges::sort(writes, [](const Write& a, const Write& b) { return a.key() < b.key(); });
  std::vector<Task> tasks;
  tasks.reserve(writes.size());
  for (const Write& w : writes) tasks.push_back(w.task);
  return tasks;
}

BlockOrder make_order(const TaskRule& rule, const views::TileShape& block,
                      const std::function<bool(const TileId&)>& owns) {
  BlockOrder order{.block = block, .tasks = block_order(rule, block, owns)};
  std::unordered_map<TileId, std::int32_t> numbers;
  std::vector<TileAccess> accesses;
  std::vector<TileOrder::Use> uses;
  for (const Task& task : order.tasks) {
    accesses.clear();
    uses.clear();
    if (task.kernel != Kernel::provide) rule.append_accesses(task, accesses);
    for (const auto& [tile, access] : accesses) {
      const auto [at, is_new] = numbers.try_emplace(tile, static_cast<std::int32_t>(numbers.size()));
      if (is_new) {
        order.tiles.push_back(tile);
        order.uses.copies.push_back(owns && !owns(tile));
      }
      const auto same = std::ranges::find(uses, at->second, &TileOrder::Use::tile);
      if (same == uses.end()) {
        uses.push_back({at->second, access});
      } else if (same->access != access) {
        same->access = Access::read_write;
      }
    }
    order.uses.add(uses);
  }
  order.uses.tiles = static_cast<Index>(numbers.size());
  return order;
}

BlockOrder choose_order(const TaskRule& rule, Index slots, const CacheOptions& options,
                        const std::function<bool(const TileId&)>& owns) {
  Index rows = 1, columns = 1;
  for (const TileId& tile : rule.tiles()) {
    rows = std::max<Index>(rows, tile.row + 1);
    columns = std::max<Index>(columns, tile.column + 1);
  }
  std::optional<BlockOrder> best;
  Index least = std::numeric_limits<Index>::max();
  for (const views::TileShape& block : block_candidates(rows, columns, slots)) {
    BlockOrder order = make_order(rule, block, owns);
    const auto counts = simulate(order.uses, slots, options, least - 1);
    if (!counts) continue;
    least = order.traffic = counts->traffic();
    best = std::move(order);
    if (least == best->uses.compulsory()) break;
  }
  return *std::move(best);
}

}  // namespace aloni::tasks
