#include <aloni/tools/plan_drawing.hpp>

#include <aloni/nn/plan/plan_step.hpp>
#include <aloni/tools/objective_argument.hpp>
#include <aloni/tools/quantity_text.hpp>
#include <aloni/tools/svg_page.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

namespace aloni::tools {

using views::Box;
using views::Dim;

namespace {

// --- what is drawn ---

/// The two spatial dimensions with most blocks, the earlier one first. Of equal ones the later ones count: height and
/// width, if depth is not split.
std::pair<Dim, Dim> plane_of(const views::ProcessGrid& grid) {
  std::array<Dim, 3> dims{Dim::width, Dim::height, Dim::depth};
  std::ranges::stable_sort(dims, [&](Dim a, Dim b) { return grid[a] > grid[b]; });
  return std::minmax(dims[0], dims[1]);
}

PlanDrawing::Layer layer_of(const nn::LayerPlan& plan, const LayerSummary& summary) {
  const views::ProcessGrid& grid = plan.input.grid();
  PlanDrawing::Layer layer{.summary = summary,
                           .extents = plan.input.extents(),
                           .sample_blocks = grid[Dim::sample],
                           .channel_blocks = grid[Dim::channel]};
  std::tie(layer.down, layer.across) = plane_of(grid);
  const int rows = std::min(grid[layer.down], PlanDrawing::most_blocks);
  const int columns = std::min(grid[layer.across], PlanDrawing::most_blocks);
  layer.complete = rows == grid[layer.down] && columns == grid[layer.across];
  Index most = -1;
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      std::array<int, views::num_dims> coordinate{};
      coordinate[position(layer.down)] = row;
      coordinate[position(layer.across)] = column;
      const int rank = grid.rank_of(coordinate);
      layer.blocks.push_back({.owned = plan.input.owned(rank), .reads = plan.input_needed(rank)});
      if (const Index read = layer.blocks.back().reads.size(); read > most) {
        most = read;
        layer.most_read = layer.blocks.size() - 1;
      }
    }
  }
  return layer;
}

PlanDrawing::Traffic traffic_of(const nn::PlanNode& node) {
  if (const auto* transfer = std::get_if<nn::TransferWork>(&node.work)) {
    const bool moves = std::ranges::any_of(transfer->items, [](const nn::TransferItemPlan& item) {
      return !item.plan.sends.empty() || !item.plan.receives.empty();
    });
    return moves ? PlanDrawing::Traffic::transfer : PlanDrawing::Traffic::none;
  }
  const auto* sum = std::get_if<nn::ReductionWork>(&node.work);
  return sum != nullptr && sum->members.size() > 1 ? PlanDrawing::Traffic::sum : PlanDrawing::Traffic::none;
}

// --- SVG ---

/// "64 × 14 × 28 × 1".
std::string times_text(const views::Extents& extents, int spatial_rank) {
  std::string text;
  for (const char c : extents_text(extents, spatial_rank)) {
    if (c == 'x') {
      text += " × ";
    } else {
      text += c;
    }
  }
  return text;
}

// As in SvgPage: light colours, and the dark ones that replace them.
constexpr std::string_view plan_style = R"(
.tensor { fill: #eef1f4; stroke: #8c959f; }
.block { fill: none; stroke: #8c959f; stroke-width: 0.8; }
.ghosts { fill: #f0883e; fill-opacity: 0.28; }
.owned { fill: #2f6fb3; }
.read { fill: #f0883e; fill-opacity: 0.85; }
.sent { fill: #f0883e; }
.sums { fill: #8250df; }
.memory { fill: #2f6fb3; fill-opacity: 0.75; }
.always { fill: #afb8c1; fill-opacity: 0.45; }
.area { fill: #2f6fb3; fill-opacity: 0.25; }
.curve { fill: none; stroke: #2f6fb3; stroke-width: 1.5; }
.taken { stroke: #cf222e; stroke-dasharray: 5 4; fill: none; }
.peak { fill: #cf222e; }
@media (prefers-color-scheme: dark) {
  .tensor { fill: #21262d; stroke: #6e7681; }
  .block { stroke: #6e7681; }
  .owned, .memory, .area { fill: #4493f8; }
  .curve { stroke: #4493f8; }
  .sums { fill: #a371f7; }
  .always { fill: #6e7681; }
  .taken { stroke: #ff7b72; }
  .peak { fill: #ff7b72; }
}
)";

constexpr double page_width = SvgPage::width, margin = SvgPage::margin;

// --- memory over the step ---

/// A step of the vertical axis, a power of two, with at most six lines.
Index axis_step(Index most) {
  Index step = 1;
  while (most / step > 6) step *= 2;
  return step;
}

/// In the unit of the step: all labels of an axis have one unit.
std::string axis_text(Index bytes, Index step) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t u = 0;
  for (; step >= 1024 && u + 1 < units.size(); ++u) {
    step /= 1024;
    bytes /= 1024;
  }
  return fmt::format("{} {}", bytes, units[u]);
}

class MemoryPanel {
 public:
  MemoryPanel(SvgPage& page, const PlanDrawing& drawing, double top)
      : page_(page),
        drawing_(drawing),
        place_{margin + 62, top + 34, page_width - 2 * margin - 62, 170},
        most_(static_cast<double>(std::max<Index>(drawing.taken, 1)) * 1.15) {}

  double draw() {
    page_.text(margin, place_.y - 20, "head", "Memory over the step");
    page_.text(place_.x + 118, place_.y - 20, "muted",
               fmt::format("of rank {}, which takes most: {}", drawing_.memory_rank, bytes_text(drawing_.taken)));
    draw_axis();
    draw_phases();
    draw_curve();
    draw_traffic();
    return place_.y + place_.height + 56;
  }

 private:
  double x(std::size_t node) const {
    return place_.x + place_.width * static_cast<double>(node) / static_cast<double>(drawing_.nodes.size());
  }
  double y(Index bytes) const { return place_.y + place_.height * (1 - static_cast<double>(bytes) / most_); }

  void draw_axis() {
    const Index step = axis_step(static_cast<Index>(most_));
    for (Index bytes = 0; static_cast<double>(bytes) <= most_; bytes += step) {
      page_.line(place_.x, y(bytes), place_.x + place_.width, y(bytes), "line");
      page_.text(place_.x - 8, y(bytes) + 4, "small muted", axis_text(bytes, step), "end");
    }
  }

  // Runs of nodes of one phase.
  void draw_phases() {
    const auto& nodes = drawing_.nodes;
    for (std::size_t begin = 0, end = 0; begin < nodes.size(); begin = end) {
      while (end < nodes.size() && nodes[end].phase == nodes[begin].phase) ++end;
      if (begin > 0) page_.line(x(begin), place_.y - 8, x(begin), place_.y + place_.height, "line");
      const std::string name = nn::name(nodes[begin].phase);
      constexpr double width_of_character = 6.5;
      if (x(end) - x(begin) > width_of_character * static_cast<double>(name.size()))
        page_.text((x(begin) + x(end)) / 2, place_.y - 3, "small muted", name, "middle");
    }
  }

  void draw_curve() {
    const Index always = drawing_.memory.always;
    const auto& use = drawing_.memory.at_nodes;
    page_.rectangle({place_.x, y(always), place_.width, y(0) - y(always)}, "always");
    std::string curve;
    for (std::size_t n = 0; n < use.size(); ++n) {
      if (n == 0) {
        curve = fmt::format("M{:.1f} {:.1f}", x(0), y(always + use[0]));
      } else if (use[n] != use[n - 1]) {
        curve += fmt::format("H{:.1f}V{:.1f}", x(n), y(always + use[n]));
      }
    }
    if (!use.empty()) {
      curve += fmt::format("H{:.1f}", x(use.size()));
      page_.path(curve + fmt::format("V{:.1f}H{:.1f}Z", y(always), x(0)), "area");
      page_.path(curve, "curve");
    }
    page_.line(place_.x, y(drawing_.taken), place_.x + place_.width, y(drawing_.taken), "taken");
    if (drawing_.peak_node < 0) return;
    const auto peak = static_cast<std::size_t>(drawing_.peak_node);
    const double at_x = (x(peak) + x(peak + 1)) / 2, at_y = y(always + use[peak]);
    const bool left = at_x > place_.x + place_.width / 2;
    page_.circle(at_x, at_y, 4, "peak");
    // Nothing of the curve lies above its peak, but the line of the memory taken may.
    const double taken_y = y(drawing_.taken), text_y = at_y - 8;
    page_.text(at_x + (left ? 4 : -4), text_y - 11 < taken_y ? std::min(text_y, taken_y - 5) : text_y, "small strong",
               fmt::format("{} in use at {}", bytes_text(always + use[peak]), drawing_.peak_label),
               left ? "end" : "start");
  }

  // A mark for each node that communicates, below the axis; the legend.
  void draw_traffic() {
    const double below = place_.y + place_.height + 5;
    for (std::size_t n = 0; n < drawing_.nodes.size(); ++n) {
      const PlanDrawing::Traffic traffic = drawing_.nodes[n].traffic;
      if (traffic == PlanDrawing::Traffic::none) continue;
      const bool sum = traffic == PlanDrawing::Traffic::sum;
      const double width = std::clamp(x(1) - x(0) - 0.5, 1.0, 6.0);
      page_.rectangle({x(n), below + (sum ? 8 : 0), width, 7}, sum ? "sums" : "sent");
    }
    double at = place_.x;
    const auto entry = [&](std::string_view classes, std::string_view label, double width) {
      page_.rectangle({at, below + 24, 11, 11}, classes, 2);
      page_.text(at + 16, below + 33.5, "small muted", label);
      at += width;
    };
    entry("always", "parameters, messages, workspace: all the time", 286);
    entry("memory", "buffers that share memory over time", 232);
    entry("sent", "node that moves values", 156);
    entry("sums", "sum over ranks", 106);
    page_.line(at, below + 30, at + 14, below + 30, "taken");
    page_.text(at + 20, below + 33.5, "small muted", "taken, with gaps");
  }

  SvgPage& page_;
  const PlanDrawing& drawing_;
  Place place_;
  double most_;
};

// --- layers ---

constexpr double row_height = 46, name_at = margin, plane_at = 236, extents_at = 346, sent_at = 560, memory_at = 800;
constexpr double bar_width = 200;

class LayerRow {
 public:
  LayerRow(SvgPage& page, const PlanDrawing& drawing, const PlanDrawing::Layer& layer, double top)
      : page_(page), drawing_(drawing), layer_(layer), top_(top) {}

  void draw(Index most_sent, Index most_memory) {
    const LayerSummary& s = layer_.summary;
    const std::string owned = times_text(s.owned, drawing_.spatial_rank);
    const std::string reads = times_text(s.ghosted, drawing_.spatial_rank);
    page_.begin(fmt::format("{}: {}, grid {}, owns {} of its input, reads {}, sends {} in {} messages, memory {}",
                            s.name, s.operation, s.grid, owned, reads, bytes_text(s.halo_bytes), s.messages,
                            bytes_text(s.memory_bytes)));
    page_.line(margin, top_, page_width - margin, top_, "line");
    page_.text(name_at, top_ + 20, "strong", shortened(s.name, 28));
    page_.text(name_at, top_ + 36, "small muted", s.operation + (s.grid == "1" ? "" : ", " + s.grid));
    draw_plane();
    page_.text(extents_at, top_ + 20, "", owned);
    const std::string note =
        layer_.complete ? "" : fmt::format("; the first {} blocks are drawn", PlanDrawing::most_blocks);
    page_.text(extents_at, top_ + 36, "small muted", (owned == reads ? "no ghosts" : "reads " + reads) + note);
    if (s.messages > 0) {
      page_.text(sent_at, top_ + 20, "", bytes_text(s.halo_bytes) + " in " + count_text(s.messages, "message"));
      bar(sent_at, s.halo_bytes, most_sent, "sent");
    }
    page_.text(memory_at, top_ + 20, "", bytes_text(s.memory_bytes));
    bar(memory_at, s.memory_bytes, most_memory, "memory");
    page_.end();
  }

 private:
  void bar(double x, Index value, Index most, std::string_view classes) {
    if (value > 0)
      page_.rectangle(
          {x, top_ + 28, std::max(1.0, bar_width * static_cast<double>(value) / static_cast<double>(most)), 8}, classes,
          2);
  }

  Place on_plane(const Box& box) const {
    return {plane_.x + scale_ * static_cast<double>(box.lower(layer_.across)),
            plane_.y + scale_ * static_cast<double>(box.lower(layer_.down)),
            scale_ * static_cast<double>(box.extent(layer_.across)),
            scale_ * static_cast<double>(box.extent(layer_.down))};
  }

  void draw_plane() {
    constexpr double widest = 84, highest = 36, largest_cell = 7;
    const auto rows = static_cast<double>(std::max<Index>(layer_.extents[layer_.down], 1));
    const auto columns = static_cast<double>(std::max<Index>(layer_.extents[layer_.across], 1));
    scale_ = std::min({widest / columns, highest / rows, largest_cell});
    plane_ = {plane_at, top_ + (row_height - scale_ * rows) / 2, scale_ * columns, scale_ * rows};
    page_.rectangle(plane_, "tensor");
    if (!layer_.blocks.empty()) {
      const PlanDrawing::Block& most = layer_.blocks[layer_.most_read];
      if (!most.owned.empty()) page_.rectangle(on_plane(most.owned), "owned");
      if (layer_.blocks.size() > 1)
        for (const PlanDrawing::Block& block : layer_.blocks)
          if (!block.owned.empty()) page_.rectangle(on_plane(block.owned), "block");
      for (const PlanDrawing::Block& block : layer_.blocks) ghosts(block, "ghosts");
      ghosts(most, "read");
    }
    double beside = plane_.x + plane_.width + 5;
    for (const auto& [blocks, dim] :
         {std::pair{layer_.sample_blocks, Dim::sample}, {layer_.channel_blocks, Dim::channel}}) {
      if (blocks < 2) continue;
      const double height = 26, block = height / blocks, at = top_ + 4;
      page_.rectangle({beside, at, 6, height}, "tensor");
      page_.rectangle({beside, at, 6, std::max(block, 1.0)}, "owned");
      for (int i = 1; i < blocks && block >= 3; ++i)
        page_.line(beside, at + i * block, beside + 6, at + i * block, "block");
      page_.text(beside + 3, at + height + 11, "small muted", std::string(1, letter(dim)), "middle");
      beside += 10;
    }
  }

  // Ghosts are often thinner than a pixel: they are drawn wider, away from the owned cells.
  Place visible(Place p, bool towards_start, bool vertical) const {
    constexpr double thinnest = 2;
    double& start = vertical ? p.y : p.x;
    double& extent = vertical ? p.height : p.width;
    if (extent >= thinnest) return p;
    if (towards_start) start -= thinnest - extent;
    extent = thinnest;
    return p;
  }

  // The cells of `reads` outside `owned`, as up to four rectangles of the plane: above, below, left, right.
  void ghosts(const PlanDrawing::Block& block, std::string_view classes) {
    const Box &o = block.owned, &r = block.reads;
    if (o.empty() || r.empty()) return;
    const Dim down = layer_.down, across = layer_.across;
    const auto part = [&](Index top, Index bottom, Index left, Index right, bool towards_start, bool vertical) {
      if (top >= bottom || left >= right) return;
      Box box = r;
      box.set(down, top, bottom);
      box.set(across, left, right);
      page_.rectangle(visible(on_plane(box), towards_start, vertical), classes);
    };
    const Index top = std::max(r.lower(down), o.lower(down)), bottom = std::min(r.upper(down), o.upper(down));
    part(r.lower(down), std::min(o.lower(down), r.upper(down)), r.lower(across), r.upper(across), true, true);
    part(std::max(o.upper(down), r.lower(down)), r.upper(down), r.lower(across), r.upper(across), false, true);
    part(top, bottom, r.lower(across), std::min(o.lower(across), r.upper(across)), true, false);
    part(top, bottom, std::max(o.upper(across), r.lower(across)), r.upper(across), false, false);
  }

  SvgPage& page_;
  const PlanDrawing& drawing_;
  const PlanDrawing::Layer& layer_;
  double top_;
  Place plane_;
  double scale_ = 1;
};

double draw_layers(SvgPage& page, const PlanDrawing& drawing, double top) {
  page.text(margin, top, "head", "Layers");
  double at = margin + 62;
  const auto entry = [&](std::string_view classes, std::string_view label, double width) {
    page.rectangle({at, top - 10, 11, 11}, classes, 2);
    page.text(at + 16, top - 0.5, "small muted", label);
    at += width;
  };
  entry("owned", "input of the rank that reads most", 206);
  entry("read", "its ghosts", 80);
  entry("ghosts", "ghosts of other ranks", 146);
  entry("tensor", "the other blocks of one sample;  bars beside: blocks of samples (n), of channels (c)", 0);
  const double heads = top + 26;
  page.text(name_at, heads, "small muted", "layer, operation, grid");
  page.text(extents_at, heads, "small muted", "input: owned, and read");
  page.text(sent_at, heads, "small muted", "sent by transfers");
  page.text(memory_at, heads, "small muted", "memory, if buffers shared none");
  Index most_sent = 1, most_memory = 1;
  for (const PlanDrawing::Layer& layer : drawing.layers) {
    most_sent = std::max(most_sent, layer.summary.halo_bytes);
    most_memory = std::max(most_memory, layer.summary.memory_bytes);
  }
  double y = heads + 8;
  for (const PlanDrawing::Layer& layer : drawing.layers) {
    LayerRow(page, drawing, layer, y).draw(most_sent, most_memory);
    y += row_height;
  }
  return y;
}

}  // namespace

PlanDrawing drawing_of(const PlanRequest& request, const PlanSummary& summary) {
  const nn::NetworkDescription& network = request.network;
  const MachineDescription machine = machine_of(request);
  const auto splits = nn::resolve(request.strategy, network, request.ranks);
  const nn::NetworkPlan layers = nn::plan_network(network, splits, request.ranks, request.batch);
  PlanDrawing drawing{
      .title = request.model + " on " + count_text(request.ranks, "rank"),
      .subtitle = heading(request, summary),
      .totals = fmt::format("One {}, rank with the largest number: {} flops;  {} sent in {} "
                            "messages, {} of it sums of gradients;  {} of memory.",
                            step_text(request.objective), number_text(summary.flops), bytes_text(summary.bytes_sent),
                            summary.messages, bytes_text(summary.gradient_bytes), bytes_text(summary.peak_bytes)),
      .spatial_rank = network.spatial_rank,
      .taken = summary.peak_bytes,
      .memory_rank = summary.peak_rank,
      .peak_label = summary.peak_node};
  for (std::size_t i = 0; i < network.layers.size(); ++i)
    drawing.layers.push_back(layer_of(layers.layers[i], summary.layers[i]));
  nn::StepOptions options{.activations = request.activations, .optimiser = request.optimiser};
  summary.savings.apply(options);
  const nn::StepPlan step =
      nn::plan_step(network, layers, summary.peak_rank, step_kind_of(request.objective), machine, options);
  drawing.memory = nn::memory_over_nodes(step, machine);
  drawing.peak_node = drawing.memory.peak_node();
  for (const nn::PlanNode& node : step.nodes) drawing.nodes.push_back({node.phase, traffic_of(node)});
  return drawing;
}

std::string to_svg(const PlanDrawing& drawing) {
  SvgPage page;
  page.text(margin, 40, "title", drawing.title);
  page.text(margin, 62, "muted", drawing.subtitle);
  page.text(margin, 84, "", drawing.totals);
  const double layers = MemoryPanel(page, drawing, 106).draw();
  const double end = draw_layers(page, drawing, layers + 24);
  return page.document(drawing.title, end + 16, plan_style);
}

}  // namespace aloni::tools
