#pragma once
// How the work of one layer is split, as plain data with a text form: a process grid and, for convolutions, blocks of filters.
//
//   const LayerSplit split = LayerSplit::parse("h2f2");
//   split.size();                    // 4 ranks share the layer
//   split.tensor_grid();             // h2c2: the tensors before and behind it are split into as many runs of channels
//
// With c blocks of channels and f blocks of filters a rank multiplies one block of channels by one block of filters, so it needs that
// part of the weights only. Both tensors are split into c·f runs of channels. These are the three stationary forms of channel and filter
// parallelism (spatial-parallel-cnn, section III.D; Dryden et al., SC 2019):
//   c    stationary input: each rank's channels stay; the partial sums of all filters are reduced and scattered
//   f    stationary output: the input is gathered; each rank has its filters' outputs at once
//   c f  stationary weights: the input is gathered among the ranks with the same block of channels, partial sums are scattered among
//        those with the same block of filters
// Within the ranks that share a sample and a part of space, rank q·c + p has block p of the channels and block q of the filters.
#include <aloni/views/process_grid.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace aloni::nn {

/// How the exchange of ghosts and the computation of a layer go together. The results have the same bits where sums are exact.
enum class Overlap : std::uint8_t {
  interior_first,  ///< what needs no ghosts is computed while these are on their way
  blocking,        ///< everything at once when they are there, the gradient of the weights too
  /// Consecutive layers so named, split the same way, exchange ghosts once: the first fetches what the last of them depends on, and each
  /// computes what its readers need beyond what it owns. The backward pass exchanges as with interior_first, beside the gradient of the weights.
  recompute_halo
};

struct LayerSplit {
  views::ProcessGrid grid;  ///< of samples, depth, height, width, and of the channels that a convolution reads
  int filters = 1;          ///< blocks of filters; layers without filters split channels by these too
  Overlap overlap = Overlap::interior_first;

  LayerSplit() = default;
  LayerSplit(const views::ProcessGrid& g, int f = 1, Overlap o = Overlap::interior_first)
      : grid(g), filters(f), overlap(o) {}

  /// The text form of a process grid with one more letter, f. Throws InvalidArgument (equal on all ranks).
  static LayerSplit parse(std::string_view text);

  /// How many ranks share the layer; more ranks repeat it.
  int size() const { return grid.size() * filters; }
  /// The same splits of a tensor: those of filters are splits of channels.
  views::ProcessGrid tensor_grid() const;

  friend bool operator==(const LayerSplit&, const LayerSplit&) = default;
};

/// "n2h2f2"; "1" where nothing is split. Without the overlap.
std::string to_string(const LayerSplit& s);
/// "interior_first", "blocking", "recompute_halo".
std::string_view name(Overlap overlap);

}  // namespace aloni::nn
