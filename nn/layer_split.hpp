#pragma once
// How the work of one layer is split, as plain data with a text form: a process grid, and blocks of filters for
// convolutions. Of a dense layer the inputs are its channels, and the features its filters.
//
//   const LayerSplit split = LayerSplit::parse("h2f2");
//   split.size();                    // 4 ranks share the layer
//   split.tensor_grid();             // h2c2: input and output tensor have as many blocks of channels
//
// A rank multiplies one of c blocks of channels by one of f blocks of filters, so it needs only that part of the
// weights. Input and output are split into c·f blocks of channels. These are the three stationary forms of channel and
// filter parallelism (spatial-parallel-cnn, section III.D; Dryden et al., SC 2019):
//   c    stationary input: each rank keeps its channels; partial sums of all filters are reduced and scattered
//   f    stationary output: the input is gathered; each rank computes the complete outputs of its filters
//   c f  stationary weights: the input is gathered among the ranks with the same block of channels; partial sums are
//        reduced and scattered among the ranks with the same block of filters
// Consider the ranks that share a sample and a part of space. Among them, rank q·c + p has block p of the channels and
// block q of the filters.
#include <aloni/views/process_grid.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace aloni::nn {

/// How a layer overlaps its halo exchange with computation. Where sums are exact, all give the same bits.
enum class Overlap : std::uint8_t {
  interior_first,  ///< the interior is computed while ghosts travel
  blocking,        ///< computed after the ghosts have arrived, the gradient of the weights too
  /// Consecutive layers with this overlap and the same split exchange ghosts once. The first layer fetches all inputs
  /// that the last one depends on. Each layer also computes the outputs that its readers need beyond the owned box. The
  /// backward pass exchanges as with interior_first, hidden beside the gradient of the weights.
  recompute_halo
};

struct LayerSplit {
  views::ProcessGrid grid;  ///< of samples, depth, height, width, and the channels that a convolution reads
  int filters = 1;          ///< blocks of filters; layers without filters split channels by this number too
  Overlap overlap = Overlap::interior_first;

  LayerSplit() = default;
  LayerSplit(const views::ProcessGrid& g, int f = 1, Overlap o = Overlap::interior_first)
      : grid(g), filters(f), overlap(o) {}

  /// Parses the text form of a process grid with one more letter, f. Throws InvalidArgument (equal on all ranks).
  static LayerSplit parse(std::string_view text);

  /// Number of ranks that share the layer. Further ranks repeat it.
  int size() const { return grid.size() * filters; }
  /// The process grid of the layer's tensors: blocks of filters count as blocks of channels.
  views::ProcessGrid tensor_grid() const;

  friend bool operator==(const LayerSplit&, const LayerSplit&) = default;
};

/// "n2h2f2"; "1" if nothing is split. The overlap is not part of it.
std::string to_string(const LayerSplit& s);
/// "interior_first", "blocking", "recompute_halo".
std::string_view name(Overlap overlap);

}  // namespace aloni::nn
