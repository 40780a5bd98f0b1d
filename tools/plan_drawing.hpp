#pragma once
// A picture of the plan of a training step, as SVG. It shows for each layer its blocks with their ghosts, its messages
// and its memory. It also shows the memory over the nodes of the step.
//
//   const PlanSummary summary = summarise(request);
//   write_result_file("plan.svg", to_svg(drawing_of(request, summary)));
//
// The picture is an SvgPage (svg_page.hpp).
#include <aloni/nn/plan/memory.hpp>
#include <aloni/tools/plan_summary.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace aloni::tools {

/// The contents of the picture.
struct PlanDrawing {
  /// The part of a layer's input that one rank owns, and the part that it reads.
  struct Block {
    views::Box owned = {}, reads = {};
  };

  struct Layer {
    LayerSummary summary;
    views::Extents extents = {};  ///< of the whole input
    /// The plane that is drawn: the two spatial dimensions with most blocks.
    views::Dim down = views::Dim::height, across = views::Dim::width;
    /// Of the first sample and channel: the first most_blocks blocks in each dimension of the plane.
    std::vector<Block> blocks = {};
    std::size_t most_read = 0;  ///< the block that reads most
    bool complete = true;       ///< whether `blocks` are all blocks of the plane
    int sample_blocks = 1, channel_blocks = 1;
  };
  static constexpr int most_blocks = 32;

  enum class Traffic : std::uint8_t { none, transfer, sum };
  struct Node {
    nn::StepPhase phase{};
    Traffic traffic{};  ///< with other ranks
  };

  std::string title, subtitle, totals;
  int spatial_rank = 2;
  std::vector<Layer> layers = {};

  /// The step of the rank that takes most memory.
  std::vector<Node> nodes = {};
  nn::MemoryOverNodes memory = {};
  Index taken = 0;  ///< in bytes; more than is in use at any node, because of gaps between buffers
  int memory_rank = 0, peak_node = -1;
  std::string peak_label = {};
};

/// @pre `summary` is summarise(request). Pure. Throws InvalidArgument.
PlanDrawing drawing_of(const PlanRequest& request, const PlanSummary& summary);

/// A complete SVG document in UTF-8. Characters of names that XML does not allow become escapes (core/printable.hpp).
std::string to_svg(const PlanDrawing& drawing);

}  // namespace aloni::tools
