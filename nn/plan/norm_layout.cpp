#include <aloni/nn/plan/norm_layout.hpp>

#include <aloni/views/box.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

namespace aloni::nn {

namespace {

using views::Box;

/// The elements of `part` in dense memory that covers `memory`, as runs that start at `begin`. Adjacent runs are one.
void add_runs(const Box& part, const Box& memory, Index begin, std::vector<NormRun>& runs) {
  if (part.empty()) return;
  const auto extents = views::extents_of(memory).values;
  std::array<Index, 5> i = part.lo;
  const Index length = part.hi[4] - part.lo[4];
  for (;;) {
    Index at = 0;
    for (std::size_t d = 0; d < 5; ++d) at = at * extents[d] + i[d] - memory.lo[d];
    if (!runs.empty() && runs.back().begin + runs.back().elements == begin + at) {
      runs.back().elements += length;
    } else {
      runs.push_back({.begin = begin + at, .elements = length});
    }
    std::size_t d = 4;  // the next row: the last dimension is in the run
    while (d-- > 0) {
      if (++i[d] < part.hi[d]) break;
      i[d] = part.lo[d];
      if (d == 0) return;
    }
  }
}

}  // namespace

NormLayout lay_out_norms(const ParameterLayout& parameters, int rank) {
  NormLayout layout;
  for (std::size_t s = 0; s < parameters.blocks.size(); ++s) {
    const int blocks = parameters.blocks[s];
    NormSegment segment{.first_tensor = layout.tensors.size(), .block = rank % blocks};
    segment.is_first_copy = blocks == 1 || rank < blocks;
    Index& sums = blocks == 1 ? layout.whole_sums : layout.block_sums;
    for (std::size_t p = 0; p < parameters.places.size(); ++p) {
      const ParameterPlace& place = parameters.places[p];
      if (place.segment != s) continue;
      NormTensor tensor{.begin = place.offset,
                        .elements = place.kept.size(),
                        .first_chunk = segment.chunks,
                        .first_sum = sums,
                        .blocks = blocks,
                        .is_weight = parameters.descriptions[p].name.ends_with(".weight")};
      std::vector<NormRun> runs;
      for (const Box& own : place.own) add_runs(own, place.kept, place.offset, runs);
      for (NormRun& run : runs) {
        run.first_chunk = segment.chunks;
        segment.chunks += (run.elements + NormLayout::chunk - 1) / NormLayout::chunk;
        segment.elements += run.elements;
      }
      segment.runs.insert(segment.runs.end(), runs.begin(), runs.end());
      tensor.end_chunk = segment.chunks;
      sums += blocks;
      layout.tensors.push_back(tensor);
    }
    segment.tensors = layout.tensors.size() - segment.first_tensor;
    layout.chunks = std::max(layout.chunks, segment.chunks);
    layout.segments.push_back(std::move(segment));
  }
  return layout;
}

}  // namespace aloni::nn
